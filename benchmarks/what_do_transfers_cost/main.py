#!/usr/bin/env python3
"""What do transfers cost? A trainer with room for everything, beside a process that moves bytes."""
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, side_by_side, spread, traffic  # noqa: E402  pylint: disable=wrong-import-position

BUDGETS = report.REPOSITORY / "benchmarks/how_slow_at_which_budget/results.json"
PERCENTS = (75, 50, 35, 25)
CASES = (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS)  # Those that rarely wait.
ENDLESS = 1_000_000


class TransferCost(report.Benchmark):
    """Takes rates and ratios from the results of how_slow_at_which_budget."""

    rounds, steps, skipped = 4, 4, 8
    quick_rounds, quick_steps = 2, 3

    def __init__(self):
        super().__init__(__file__, __doc__)

    def check(self, options):
        pass  # Steps that are skipped are those before the first turn.

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, steps per turn: {results['steps']}, without the first "
                "of each.")

    def measure(self, options):
        budgets = json.loads(BUDGETS.read_text(encoding="utf-8"))["cases"]
        return {"cases": {case.name: self.measure_case(options, self.sized(options, case),
                                                       budgets[case.name]["runs"])
                          for case in CASES if case.name in budgets}}

    def measure_case(self, options, case, runs):
        command = [*cases.under_spillway(options.bin, cases.NO_PRESSURE, options.work / "stats.json",
                                         options.disk),
                   *case.command(options.bin, ENDLESS, 2)]
        rows = {}
        with side_by_side.Live(case.name, command) as live:
            live.turn(self.skipped)
            for percent in PERCENTS:
                run = runs.get(f"{percent} %")
                if run:
                    rows[percent] = self.beside_traffic(options, live, run)
        return rows

    def beside_traffic(self, options, live, run):
        """The in-core trainer alone, then beside as much traffic as `run` had, in turn."""
        seconds = statistics.median(turn["seconds"] for turn in run["turns"])
        moved = traffic.Traffic(options.disk, [size / seconds for size in side_by_side.bytes_per_step(run)])
        turns, achieved = [], []
        try:
            before = side_by_side.step_seconds(live, options.steps)
            for _ in range(options.rounds):
                with moved.moving(achieved):
                    beside = side_by_side.step_seconds(live, options.steps)
                after = side_by_side.step_seconds(live, options.steps)
                turns.append({"seconds": beside, "reference": (before + after) / 2})
                before = after
                print(f"{live.name}: {turns[-1]}", file=sys.stderr, flush=True)
        finally:
            moved.remove()
        return {"turns": turns, "bytes_per_second": achieved, "asked_for": sum(moved.rates),
                "under_budget": side_by_side.over_reference(run).values}

    def report(self, results, folder):
        rows = []
        for name, shares in results["cases"].items():
            for percent, figures in shares.items():
                rate = spread.Spread(value / 1e9 for value in figures["bytes_per_second"])
                rows.append([name, f"{percent} %", f"{figures['asked_for'] / 1e9:.2f}",
                             rate.shown(), side_by_side.over_reference(figures).shown(3),
                             spread.Spread(figures["under_budget"]).shown(3)])
        self.plot(results, folder)
        return report.table(["trainer", "as at", "GB/s both ways", "fio's GB/s",
                             "in-core beside fio / alone", "under that budget / in-core"],
                            rows) + "\n![Beside fio and under a budget](plot.svg)\n"

    def plot(self, results, folder):
        figure, axes = report.drawing(4 * len(results["cases"]), 3.2, len(results["cases"]))
        for axis, (name, shares) in zip(axes[0], results["cases"].items()):
            for label, over in (("in core, beside fio", side_by_side.over_reference),
                                ("under the budget", lambda figures:
                                 spread.Spread(figures["under_budget"]))):
                axis.plot([f"{percent} %" for percent in shares],
                          [over(figures).median for figures in shares.values()], marker="o",
                          label=label)
            axis.set_title(name, fontsize=9)
        axes[0][0].set_ylabel("step / step in core alone")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    TransferCost().run()
