#!/usr/bin/env python3
"""Do plans follow the disk? A trainer under a budget while another process takes bandwidth."""
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, side_by_side, spread  # noqa: E402  pylint: disable=wrong-import-position
from measure import traffic, training  # noqa: E402  pylint: disable=wrong-import-position

CASES = (cases.TEXT_PARAMETERS, cases.BRAIN_UNET)
PERCENT = 35
ENDLESS = 1_000_000
BYTES_PER_SECOND = 1.5e9  # Of the other process, each way.
PHASES = ("alone", "beside fio", "alone again")
# As `--log-level info` says it of every plan.
PLAN = re.compile(r"(?:new|renewed) plan for .*: ([0-9.e+-]+) s predicted .*, ([^,]+) out and "
                  r"([^,]+) in, (\d+) operators run again")


class Following(report.Benchmark):
    """Each round is one run of each case: alone, then beside fio, then alone again."""

    rounds, steps, skipped = 3, 40, 20
    quick_rounds, quick_steps = 1, 30

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, steps per phase: {results['steps']}; figures are of "
                f"those behind the first {results['skipped']}.")

    def measure(self, options):
        results = {}
        for case in CASES:
            sized, stats = self.sized(options, case), options.work / "needs.json"
            run = training.train([*cases.under_spillway(options.bin, cases.NO_PRESSURE, stats,
                                                        options.disk),
                                  *sized.command(options.bin, 3, 2)], stats_file=stats)
            run.require_success(f"{case.name}, needs")
            budget = run.stats["needed_bytes"] * PERCENT // 100
            results[case.name] = [self.run_once(options, sized, budget)
                                  for _ in range(options.rounds)]
        return {"cases": results}

    def run_once(self, options, case, budget):
        stats = options.work / "run.json"
        told = [word for word in cases.under_spillway(options.bin, budget, stats, options.disk,
                                                      "--log-level", "info") if word != "--quiet"]
        command = [*told, *case.command(options.bin, ENDLESS, 2)]
        load = traffic.Traffic(options.disk, [BYTES_PER_SECOND] * 2)
        moved, phases = [], []
        try:
            with side_by_side.Live(case.name, command) as live:
                for name in PHASES:
                    if name == "beside fio":
                        with load.moving(moved):
                            phases.append(self.phase(options, live))
                    else:
                        phases.append(self.phase(options, live))
                    print(f"{case.name}, {name}: {phases[-1]}", file=sys.stderr, flush=True)
        finally:
            load.remove()
        return {"phases": phases, "bytes_per_second": moved}

    def phase(self, options, live):
        read = len(live.run.output)
        first, end = live.turn(options.steps)
        plans = PLAN.findall(live.run.output[read:])
        known = PLAN.findall(live.run.output)
        if not known:
            raise training.Failure(f"{live.name}: no plan within {end} steps")
        seconds, out, into, again = known[-1]
        return {"plans": len(plans), "planned": float(seconds), "out": out, "in": into,
                "again": int(again),
                "measured": statistics.median(
                    live.run.step_seconds[first + self.skipped:end])}

    def report(self, results, folder):
        rows = []
        for name, runs in results["cases"].items():
            for place, phase in enumerate(PHASES):
                of_phase = [run["phases"][place] for run in runs]
                last = of_phase[-1]
                ratio = spread.Spread(each["measured"] / each["planned"] for each in of_phase)
                rows.append([name, phase,
                             f"{statistics.median(each['measured'] for each in of_phase):.3f}",
                             ratio.shown(3),
                             statistics.median(each["plans"] for each in of_phase),
                             f"{last['out']} out, {last['in']} in, {last['again']} again"])
        self.plot(results, folder)
        return report.table(("case", "phase", "step, s", "measured / latest plan",
                             "plans made in it", "the last one of them"),
                            rows) + "\n![Steps and plans](plot.svg)\n"

    @staticmethod
    def plot(results, folder):
        figure, axes = report.drawing(4 * len(results["cases"]), 3.2, len(results["cases"]))
        for axis, (name, runs) in zip(axes[0], results["cases"].items()):
            for key, label in (("measured", "measured"), ("planned", "latest plan")):
                axis.plot(PHASES, [statistics.median(run["phases"][place][key] for run in runs)
                                   for place in range(len(PHASES))], marker="o", label=label)
            axis.set_title(name, fontsize=9)
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("seconds per step")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Following().run()
