#!/usr/bin/env python3
"""Checks one promise of an example trainer.

  check_trainer.py CHECK --program P --work FOLDER [--reference FOLDER] [--data PATH]... -- FLAG...

The check `reference` trains once; most others compare with what it left in its --work folder. The
flags after -- make the trainer small. Exit status: 0 the promise holds, 1 it does not, 77 a --data
path, which the trainer reads, is not on this machine.
"""
import argparse
import math
import pathlib
import shlex
import shutil
import signal
import struct
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import trainer_script  # noqa: E402  pylint: disable=wrong-import-position

STEPS = 3
HALF = 1
# By trainer: flags that no other case gives, and what the log has to say then. Not among them is
# `--crop full`: two steps on whole photographs take 4 GB and more than ten seconds in any model.
VARIANTS = {
    "brain_unet": [
        ({"--voxel": "0.5mm"}, "volume of 362 x 434 x 362 voxels"),
        ({"--patch": "whole", "--stem": "2", "--width": "1", "--depth": "1"},
         "volume of 182 x 218 x 182 voxels"),
        ({"--norm": "instance"}, ""),
        ({"--norm": "group"}, ""),
        ({"--optimizer": "sgd"}, ""),
        ({"--weight-decay": "0.1"}, ""),
        ({"--weight-decay": "0.1", "--optimizer": "adamw"}, ""),
        ({"--width": "3"}, ""),
        ({"--depth": "3"}, ""),
    ],
    "photo_net": [
        ({"--task": "denoise"}, ""),
        ({"--task": "super_resolve"}, ""),
    ],
}


class Broken(Exception):
    """Says which promise does not hold, and how."""


class Trainer:
    def __init__(self, options):
        self.program = options.program
        self.under = shlex.split(options.under)
        self.folder = options.work
        self.flags = options.flags
        self.reference = options.reference
        self.said = ""  # By the run that has ended last.

    def command(self, name, *flags):
        """Each run has a folder, so that its files can have the same names as those of another."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return [*self.under, str(self.program), *self.flags, *(str(flag) for flag in flags)]

    def file(self, name, file):
        return self.folder / name / file

    def fail(self, name, *flags):
        """Runs the trainer, which may refuse; returns its status and what it said."""
        run = subprocess.run(self.command(name, *flags), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        return run.returncode, run.stdout

    def train(self, name, *flags, steps=STEPS, seed=1):
        """Runs the trainer to its end; returns the bytes of its losses."""
        losses = self.file(name, "losses")
        status, self.said = self.fail(name, "--threads", 2, "--steps", steps, "--seed", seed,
                                      "--losses", losses, *flags)
        if status != 0:
            raise Broken(f"'{name}' ended with status {status}:\n{self.said}")
        return losses.read_bytes()

    def plain(self, file):
        """What the check `reference` left: its losses, model.pt or state.pt."""
        path = self.reference / "run" / file
        if not path.exists():
            raise Broken(f"{path} is missing: run the check 'reference' first")
        return path


def require_equal(first, second, what):
    if first != second:
        raise Broken(f"{what} differ:\n{first!r}\n{second!r}")


def losses_in(content):
    lines = content.decode().splitlines()
    steps = [int(line.split()[0]) for line in lines]
    require_equal(steps, list(range(1, len(lines) + 1)), "the steps in the file and 1, 2, 3, ...")
    losses = [float(line.split()[1]) for line in lines]
    if not all(map(math.isfinite, losses)):
        raise Broken(f"not all losses are finite: {losses}")
    return losses


def reference(trainer):
    losses = losses_in(trainer.train("run", "--save-model", trainer.file("run", "model.pt"),
                                     "--checkpoint", trainer.file("run", "state.pt")))
    require_equal(len(losses), STEPS, "the number of losses and that of steps")


def same_seed(trainer):
    first = trainer.plain("losses").read_bytes()
    require_equal(first, trainer.train("second"), "losses of two runs with one seed")
    if first.startswith(trainer.train("other_seed", seed=2, steps=1)):
        raise Broken("another seed gave the same loss")


def as_float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def exact_losses(trainer):
    """A loss is written with as many digits as tell it from every other float, and no more."""
    for text in trainer.plain("losses").read_text().split()[1::2]:
        loss = as_float32(float(text))
        needed = next(count for count in range(1, 10)
                      if as_float32(float(f"{loss:.{count}g}")) == loss)
        written = len(text.partition("e")[0].replace(".", "").strip("-0"))
        if written != needed:
            raise Broken(f"{text} has {written} digits, {needed} would tell it from other floats")


def resume(trainer):
    checkpoint, model = (trainer.file("halves", name) for name in ("state.pt", "model.pt"))
    trainer.train("halves", "--checkpoint", checkpoint, steps=HALF)
    halves = trainer.train("halves", "--resume", checkpoint, "--save-model", model)
    require_equal(trainer.plain("losses").read_bytes(), halves,
                  "losses without and with a stop in between")
    if trainer.plain("model.pt").read_bytes() != model.read_bytes():
        raise Broken("the models without and with a stop in between differ")


def killed(trainer):
    """A run that dies without warning is completed from its last checkpoint."""
    checkpoint, losses = (trainer.file("killed", name) for name in ("state.pt", "losses"))
    command = trainer.command("killed", "--threads", 2, "--steps", STEPS, "--losses", losses,
                              "--checkpoint", checkpoint, "--checkpoint-every", 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith(f"step {HALF + 1} "):
                process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise Broken(f"the trainer ended with {process.returncode} before it could be killed")
    resumed = trainer.train("killed", "--resume", checkpoint)
    require_equal(trainer.plain("losses").read_bytes(), resumed,
                  "losses of a run and of one that was killed and resumed")


def require_refusals(trainer, refusals):
    for flags, expected in refusals:
        status, output = trainer.fail("refused", *flags)
        if status != 2 or expected not in output:
            raise Broken(f"{flags} gave status {status}, wanted 2 and '{expected}':\n{output}")


def bad_input(trainer):
    """What each trainer declares or remembers by itself."""
    require_refusals(trainer, [
        (["--preset", "enormous"], "--preset"),
        (["--resume", trainer.plain("state.pt"), "--width", "24"], "--width"),
    ])


def bad_shared_input(trainer):
    """What bindings/examples/trainer refuses, for all trainers alike."""
    damaged = trainer.folder / "damaged.pt"
    damaged.write_bytes(b"not a checkpoint")
    require_refusals(trainer, [
        (["--no-such-flag"], "--no-such-flag"),
        (["--steps", "many"], "--steps"),
        (["--steps", "0"], "--steps: must be 1 or more, not 0"),
        (["--lr", "-1"], "--lr: must be "),
        (["--threads", "-1"], "--threads: must be 0 or more, not -1"),
        (["--checkpoint-every", "1"], "--checkpoint"),
        (["--resume", trainer.folder / "nothing.pt"], "nothing.pt"),
        (["--resume", damaged], "damaged.pt"),
        (["--resume", trainer.plain("state.pt"), "--seed", "2"], "--seed: 1 then, 2 now"),
        (["--losses", trainer.folder / "no" / "folder"], "--losses"),
        (["--checkpoint", trainer.folder / "no" / "folder"], "--checkpoint"),
        (["--save-model", trainer.folder / "no" / "folder"], "--save-model"),
    ])
    status, output = trainer.fail("full_disk", "--losses", "/dev/full")
    if status != 1 or "/dev/full" not in output:
        raise Broken(f"a full disk gave status {status}:\n{output}")


def help_page(trainer):
    status, output = trainer.fail("asked", "--help")
    if status != 0 or "--checkpoint" not in output or "--preset" not in output:
        raise Broken(f"--help gave status {status}:\n{output}")


def learns(trainer):
    losses = losses_in(trainer.train("run", steps=9))
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    if last >= 0.9 * first:
        raise Broken(f"the loss went from {first} to {last} only")


def micro_batches(trainer):
    """A step of two is as wide as two steps: their batches, and the mean of their losses."""
    first, second = losses_in(trainer.train("one_by_one", "--lr", 1e-30, steps=2))
    both, = losses_in(trainer.train("together", "--lr", 1e-30, "--micro-batches", 2, steps=1))
    if first == second or not math.isclose(both, (first + second) / 2, rel_tol=1e-6):
        raise Broken(f"the losses of two steps are {first} and {second}, that of both in one is {both}")


def loaders_change_nothing(trainer):
    for count in (1, 4):
        require_equal(trainer.plain("losses").read_bytes(),
                      trainer.train(f"loaders_{count}", "--loaders", count),
                      f"losses with two and with {count} loaders")


def evaluation_changes_nothing(trainer):
    require_equal(trainer.plain("losses").read_bytes(),
                  trainer.train("evaluated", "--evaluate-every", 1, "--sample-every", 2),
                  "losses without and with evaluation and samples")


def two_steps(trainer, name):
    """The losses and the model; instance norm differs from batch norm in the model alone."""
    model = trainer.file(name, "model.pt")
    losses = trainer.train(name, "--save-model", model, steps=2)
    require_equal(len(losses_in(losses)), 2, "the number of losses and that of steps")
    return losses, model.read_bytes()


def variants(trainer):
    """Flags that make another task, other data or another model of it."""
    usual = dict(zip(trainer.flags[::2], trainer.flags[1::2]))
    known = {two_steps(trainer, "default"): "the default"}
    for changed, expected in VARIANTS[trainer.program.name]:
        name = "_".join(changed.values())
        trainer.flags = [word for pair in {**usual, **changed}.items() for word in pair]
        result = two_steps(trainer, name)
        if result in known:
            raise Broken(f"{changed} gave the losses and the model of {known[result]}")
        known[result] = changed
        if expected not in trainer.said:
            raise Broken(f"{changed}: '{expected}' is not in its output:\n{trainer.said}")


CHECKS = {check.__name__: check for check in (
    reference, same_seed, exact_losses, resume, killed, bad_input, bad_shared_input, help_page,
    learns, micro_batches, loaders_change_nothing, evaluation_changes_nothing, variants)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=CHECKS)
    trainer_script.add_trainer_options(parser)
    parser.add_argument("--under", default="", help="the words of a command that the trainer is a part of")
    parser.add_argument("--reference", type=pathlib.Path, default=pathlib.Path("reference"),
                        help="work folder of the check 'reference'")
    options = trainer_script.parse(parser, sys.argv[1:])
    if trainer_script.tell_missing_data(options):
        return trainer_script.SKIPPED
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    try:
        CHECKS[options.check](Trainer(options))
    except Broken as broken:
        print(f"{options.check}: {broken}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
