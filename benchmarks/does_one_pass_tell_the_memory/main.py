#!/usr/bin/env python3
"""Does one pass tell the memory of a model? Peaks that plans for one device predict, beside the trainers' own."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, training  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import as_option  # noqa: E402  pylint: disable=wrong-import-position,wrong-import-order

CASES = (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS, cases.TEXT_PARAMETERS)
DEVICES = (4, 8)
SHARE = 50  # Of the memory that a trainer needs, in %: a model that does not fit.
LONG_ENOUGH = 100  # Steps; the profile ends the trainer before.
MEBIBYTE = 2**20


class OnePass(report.Benchmark):
    """Each case with room for everything, then with too little."""

    rounds, steps, skipped = 1, 3, 0
    quick_rounds, quick_steps = 1, 3

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--case", action="append", default=[],
                                 choices=[case.name for case in CASES])

    def extent(self, results):
        return f"One run for each figure; a profile is of {results['steps']} steps."

    def profiled(self, options, case, budget):
        """What a run under a budget had in memory at most, and what a plan makes of its profile."""
        spillway = self.program(options, "spillway")
        stats, profile = options.work / "stats.json", options.work / "step.profile.json"
        training.output_of([spillway, "profile", "--quiet", "--out", profile, "--steps", options.steps,
                            "--budget", budget, "--stats", stats, "--nvme", options.disk, "--",
                            *case.command(options.bin, LONG_ENOUGH, 2)])
        plan = json.loads(training.output_of([spillway, "plan-job", profile, "--ranks", 1, "--micro-batches", 1,
                                              "--schedule", "1f1b", "--json"]))
        return {"measured_bytes": training.load_stats(stats)["peak_bytes"],
                "predicted_bytes": plan["per_rank"][0]["peak_bytes"],
                "layers": plan["stages"][-1]["last"] + 1}

    def measure(self, options):
        results = {}
        for case in CASES:
            if options.case and case.name not in options.case:
                continue
            sized = self.sized(options, case)
            whole = self.profiled(options, sized, cases.NO_PRESSURE)
            part = self.profiled(options, sized, as_option(whole["measured_bytes"] * SHARE // 100))
            results[case.name] = {"flags": list(sized.flags), "whole": whole, "part": part}
            print(f"{case.name}: {whole['predicted_bytes'] / whole['measured_bytes']:.3f} of what was measured",
                  file=sys.stderr, flush=True)
        return {"cases": results}

    def report(self, results, folder):
        peaks, runs, worst = [], [], 0.0
        for name, case in results["cases"].items():
            whole, part = case["whole"], case["part"]
            errors = [each["predicted_bytes"] / whole["measured_bytes"] - 1 for each in (whole, part)]
            worst = max(worst, *map(abs, errors))
            peaks.append([name, mebibytes(whole["measured_bytes"]), mebibytes(whole["predicted_bytes"]),
                          f"{errors[0]:+.1%}", mebibytes(part["measured_bytes"]),
                          mebibytes(part["predicted_bytes"]), f"{errors[1]:+.1%}"])
            layers = whole["layers"]
            runs.append([name, layers, layers, *(capslog_runs(layers, devices) for devices in DEVICES), 1])
        return (report.table(("case", "measured peak MiB", "predicted MiB", "off",
                              f"profiled with {SHARE} %: in memory MiB", "predicted MiB", "off"), peaks)
                + f"\nThe worst is off by {worst:.1%}.\n\n"
                + report.table(("case", "layers", "runs by mCAP",
                                *(f"by CAPSlog, {devices} devices" for devices in DEVICES), "here"), runs))


def mebibytes(size):
    return f"{size / MEBIBYTE:.0f}"


def capslog_runs(layers, devices):
    """Windows of single layers, and of pairs at even and odd places, of K - 2 layers a run; three for the ends."""
    singles = -(-(layers - devices + 1) // (devices - 2))
    pairs = -(-(layers - 2 * devices) // (2 * (devices - 2)))
    return 3 + singles + 2 * pairs


if __name__ == "__main__":
    OnePass().run()
