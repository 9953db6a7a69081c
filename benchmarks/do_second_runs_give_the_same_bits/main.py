#!/usr/bin/env python3
"""Do second runs give the same bits? Every kind of call of the examples and the awkward programs."""
import collections
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, training  # noqa: E402  pylint: disable=wrong-import-position

EXAMPLES = (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS, cases.TEXT_PARAMETERS)


class SecondRuns(report.Benchmark):
    """Each program once with --verify."""

    rounds, steps, skipped = 1, 3, 0
    quick_rounds, quick_steps = 1, 2

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return f"Steps of each example: {results['steps']}."

    def verified(self, options, name, command):
        """What the statistics of one run say; None for a program that ends itself before they are written."""
        stats = options.work / "verified.json"
        run = training.train([options.bin / "spillway", "run", "--quiet", "--verify", "--budget",
                              cases.NO_PRESSURE, "--stats", stats, "--nvme", options.disk, "--",
                              *command], stats_file=stats)
        if run.status != 0:
            raise training.Failure(f"{name}: {run.ending()}\n{run.output[-2000:]}")
        if not run.stats:
            return None
        print(f"{name}: {run.stats['verified_kinds']} kinds, {run.stats['differing_kinds']} differ",
              file=sys.stderr, flush=True)
        return {"operators": run.stats["verified_operators"],
                "differing": run.stats["differing_kinds"]}

    def measure(self, options):
        awkward = self.program(options, "awkward")
        listed = subprocess.run([awkward, "--list"], capture_output=True, text=True, check=True)
        programs = {case.name: self.sized(options, case).command(options.bin, options.steps, 2)
                    for case in EXAMPLES}
        for line in listed.stdout.splitlines():
            name = line.split()[0]
            programs[name] = [awkward, name, "--out", options.work / "digest", "--threads", 2]
        return {"programs": {name: self.verified(options, name, command)
                             for name, command in programs.items()}}

    def report(self, results, folder):
        told = {name: figures for name, figures in results["programs"].items() if figures}
        silent = sorted(set(results["programs"]) - set(told))
        kinds, programs = collections.Counter(), collections.Counter()
        for figures in told.values():
            for operator, count in figures["operators"].items():
                kinds[operator] += count
                programs[operator] += 1
        rows = [[f"`{name}`", kinds[name], programs[name]]
                for name in sorted(kinds, key=lambda name: (-kinds[name], name))]
        examples = [case.name for case in EXAMPLES if case.name in told]
        of_examples = sum(sum(told[name]["operators"].values()) for name in examples)
        return (f"{sum(kinds.values())} kinds of call of {len(kinds)} operators in {len(told)} "
                f"programs ran twice; {of_examples} of them in the examples. "
                f"{sum(figures['differing'] for figures in told.values())} gave other bits."
                + (f" Without statistics: {', '.join(silent)}." if silent else "") + "\n\n"
                + report.table(("operator", "kinds", "programs"), rows))


if __name__ == "__main__":
    SecondRuns().run()
