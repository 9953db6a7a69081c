"""The trainers that benchmarks run, sized for steps of seconds and one to two GiB of tensors."""
import dataclasses

from budget_text import as_option

NO_PRESSURE = "1TiB"


@dataclasses.dataclass(frozen=True)
class Case:
    """A trainer with the flags that size it."""

    name: str
    program: str
    flags: tuple

    def command(self, binaries, steps, threads):
        return [binaries / self.program, *self.flags, "--steps", steps, "--threads", threads]


BRAIN_UNET = Case("brain_unet", "brain_unet", ("--patch", "80x80x80", "--kernel", "factored"))
PHOTO_NET = Case("photo_net", "photo_net", ("--crop", "1024x1024", "--blocks", "4"))
TEXT_ACTIVATIONS = Case("text_gpt, activations", "text_gpt",
                        ("--preset", "activations", "--layers", "4"))
TEXT_PARAMETERS = Case("text_gpt, parameters", "text_gpt",
                       ("--preset", "parameters", "--layers", "6"))

# For steps of several micro-batches, on several ranks.
SMALLER = {BRAIN_UNET: dataclasses.replace(BRAIN_UNET, flags=("--patch", "48x48x48", "--kernel", "factored")),
           PHOTO_NET: dataclasses.replace(PHOTO_NET, flags=("--crop", "640x640", "--blocks", "4")),
           TEXT_ACTIVATIONS: dataclasses.replace(TEXT_ACTIVATIONS, flags=(*TEXT_ACTIVATIONS.flags, "--batch", "4")),
           TEXT_PARAMETERS: dataclasses.replace(TEXT_PARAMETERS, flags=("--preset", "parameters", "--layers", "3"))}

# For checks of a script: seconds instead of minutes, and figures that mean nothing.
TINY = {case: dataclasses.replace(case, flags=("--preset", "tiny", *flags))
        for case, flags in ((BRAIN_UNET, ("--kernel", "factored", "--patch", "48x48x48")),
                            (PHOTO_NET, ("--crop", "256x256")), (TEXT_ACTIVATIONS, ()),
                            (TEXT_PARAMETERS, ()))}


def under_spillway(binaries, budget, stats_file, disk, *options, quiet=True):
    """The words before a trainer's; `budget` is in bytes, or text that --budget understands."""
    shown = budget if isinstance(budget, str) else as_option(budget)
    quietly = ["--quiet"] if quiet else []
    return [binaries / "spillway", "run", *quietly, "--budget", shown, "--stats", stats_file,
            "--nvme", disk, *options, "--"]
