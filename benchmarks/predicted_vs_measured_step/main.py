#!/usr/bin/env python3
"""Does a step take what its plan has predicted? Time and peak of the examples under budgets."""
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

CASES = (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS, cases.TEXT_PARAMETERS)
PERCENTS = (75, 50, 35, 25)
TIME_GOAL = 0.05
PEAK_GOAL = 0.01
MEBIBYTE = 2**20
KEPT = ("strategy", "planned_step_seconds", "followed_step_seconds", "planned_peak_bytes",
        "followed_peak_bytes", "peak_bytes", "bound_step_seconds", "steps", "deviations",
        "write_bytes_per_second", "read_bytes_per_second", "duplex_share", "replays",
        "spilled_bytes", "fetched_bytes", "dropped_bytes")


class Predictions(report.Benchmark):
    """Every case under every budget, one after the other, round by round."""

    rounds, steps, skipped = 5, 60, 0
    quick_rounds, quick_steps = 3, 40

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--case", action="append", default=[],
                                 choices=[case.name for case in CASES])

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, steps per run: {results['steps']}; of each run the "
                "last plan under which steps went as planned, and at most its latest 16 steps.")

    def run_once(self, options, case, percent, needed):
        stats = options.work / "run.json"
        run = training.train([*cases.under_spillway(options.bin, needed * percent // 100, stats,
                                                    options.disk),
                              *case.command(options.bin, options.steps, 2)], stats_file=stats)
        if run.status != 0 and run.stats.get("largest_op_needs_bytes", 0) > needed * percent // 100:
            return None  # Its largest operator does not fit.
        run.require_success(f"{case.name}, {percent} %")
        kept = {key: run.stats[key] for key in KEPT}
        print(f"{case.name}, {percent} %: {kept['planned_step_seconds']:.3f} s planned, "
              f"{kept['followed_step_seconds']:.3f} s measured", file=sys.stderr, flush=True)
        return kept

    def measure(self, options):
        results = {}
        chosen = [case for case in CASES if not options.case or case.name in options.case]
        for case in chosen:
            sized = self.sized(options, case)
            results[case.name] = {"flags": list(sized.flags),
                                  "needed_bytes": self.needed_bytes(options, sized),
                                  "runs": {str(percent): [] for percent in PERCENTS}}
        variants = [(case, percent) for case in chosen for percent in PERCENTS]
        for _, (case, percent) in spread.take_turns(variants, options.rounds):
            kept = self.run_once(options, self.sized(options, case), percent,
                                 results[case.name]["needed_bytes"])
            if kept:
                results[case.name]["runs"][str(percent)].append(kept)
        return {"cases": results}

    def report(self, results, folder):
        rows, errors, points = [], [], []
        for name, case in results["cases"].items():
            for percent, runs in case["runs"].items():
                followed = [run for run in runs if run["followed_step_seconds"] > 0]
                if followed:
                    partly = "" if len(followed) == len(runs) else f", {len(followed)} of {len(runs)} runs followed"
                    rows.append(row_of(name, f"{percent} %{partly}", followed))
                    errors += [abs(error_of(run)) for run in followed]
                    points += [(name, run) for run in followed]
                else:
                    rows.append([name, f"{percent} %", *["–"] * 6, "largest operator does not fit"
                                 if not runs else "no step went as planned"])
        self.plot(points, folder)
        return (report.table(("case", "budget", "planned s", "measured s", "measured / planned",
                              f"within {TIME_GOAL:.0%}", "planned peak MiB", "measured peak MiB",
                              "within 1 % or 1 MiB"), rows)
                + f"\n{verdict(errors)}\n\n![Measured over planned step](plot.svg)\n")

    @staticmethod
    def plot(points, folder):
        figure, axes = report.drawing(7, 4)
        axis = axes[0][0]
        for name in dict.fromkeys(name for name, _ in points):
            runs = [run for case, run in points if case == name]
            axis.plot([run["planned_step_seconds"] for run in runs],
                      [1 + error_of(run) for run in runs], "o", markersize=4, label=name)
        axis.axhspan(1 - TIME_GOAL, 1 + TIME_GOAL, alpha=0.15)
        axis.set_xlabel("planned step, seconds")
        axis.set_ylabel("measured / planned")
        if points:
            axis.legend(fontsize=8)
        report.save(figure, folder / "plot.svg")


def error_of(run):
    return run["followed_step_seconds"] / run["planned_step_seconds"] - 1


def verdict(errors):
    if not errors:
        return "In no run went a step as planned."
    within = sum(error <= TIME_GOAL for error in errors)
    return (f"Of {len(errors)} runs {within} took within {TIME_GOAL:.0%} of what was planned; the median is "
            f"off by {statistics.median(errors):.1%}, the worst by {max(errors):.1%}.")


def row_of(name, budget, runs):
    def middle(key):
        return statistics.median(run[key] for run in runs)

    ratio = spread.Spread(1 + error_of(run) for run in runs)
    off = [abs(run["followed_peak_bytes"] - run["planned_peak_bytes"]) for run in runs]
    is_peak_met = all(gap <= max(MEBIBYTE, PEAK_GOAL * run["planned_peak_bytes"])
                      for gap, run in zip(off, runs))
    return [name, budget, f"{middle('planned_step_seconds'):.3f}",
            f"{middle('followed_step_seconds'):.3f}", ratio.shown(3),
            "yes" if abs(ratio.median - 1) <= TIME_GOAL else "**no**",
            f"{middle('planned_peak_bytes') / MEBIBYTE:.0f}",
            f"{middle('followed_peak_bytes') / MEBIBYTE:.0f}", "yes" if is_peak_met else "**no**"]


if __name__ == "__main__":
    Predictions().run()
