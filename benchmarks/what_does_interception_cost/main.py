#!/usr/bin/env python3
"""What does interception cost? Trainers with room for everything, with and without Spillway."""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

CASES = [cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS]
PLAIN, HUGE, SPILLWAY = "plain", "plain, huge pages", "Spillway"
VARIANTS = [PLAIN, HUGE, SPILLWAY]
PER_OP = re.compile(r"^([a-z ]+): ([0-9.]+)$", re.MULTILINE)
STEP_GOAL, OP_GOAL_US = 1.01, 0.3


class InterceptionCost(report.Benchmark):
    """Steps of the examples, and single operators that do next to nothing."""

    rounds, quick_rounds = 7, 3

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--op-rounds", type=int, default=9,
                                 help="runs of the cheap operators, each way")
        self.parser.add_argument("--ops-bin", type=pathlib.Path,
                                 help="folder of spillway_cheap_ops, when it is not --bin")

    def measure(self, options):
        return {"cheap_ops": self.measure_ops(options),
                "cases": {case.name: self.measure_case(options, case) for case in CASES}}

    def command(self, options, variant, program):
        if variant != SPILLWAY:
            return program
        return [*cases.under_spillway(options.bin, cases.NO_PRESSURE,
                                      options.work / "stats.json", options.disk), *program]

    def measure_case(self, options, case):
        case = self.sized(options, case)
        program = case.command(options.bin, options.steps, os.cpu_count())
        runs = {variant: [] for variant in VARIANTS}
        for number, variant in spread.take_turns(VARIANTS, options.rounds):
            print(f"{case.name}, round {number + 1}: {variant}", file=sys.stderr)
            run = training.train(self.command(options, variant, program),
                                 environment=training.HUGE_PAGES if variant == HUGE else None,
                                 stats_file=options.work / "stats.json")
            run.require_success(f"{case.name}, {variant}")
            runs[variant].append(run.record())
        training.require_equal_losses(case.name, [run for each in runs.values() for run in each])
        return {"flags": list(case.flags), "runs": runs}

    def measure_ops(self, options):
        folder = options.ops_bin or options.bin
        program = folder / "spillway_cheap_ops"
        if not program.exists():
            raise training.Failure(f"{program} does not exist: configure with "
                                   "-DSPILLWAY_BUILD_BENCHMARKS=ON and build it")
        runs = {PLAIN: [], SPILLWAY: []}
        for _, variant in spread.take_turns(list(runs), options.op_rounds):
            # Not a trainer's log, so there are no steps in it.
            run = training.train(self.command(options, variant, [program, "100"]))
            found = {kind: float(value) for kind, value in PER_OP.findall(run.output)}
            if run.status != 0 or not found:
                raise training.Failure(f"{program}: {run.ending()}\n{run.output}")
            runs[variant].append(found)
        return runs

    def report(self, results, folder):
        self.plot(results, folder)
        return (self.steps_table(results) + "\nMicroseconds per operator, one thread:\n\n"
                + self.ops_table(results["cheap_ops"]) + "\n![Steps with room](plot.svg)\n")

    def steps_table(self, results):
        skipped, rows = results["skipped"], []
        for name, case in results["cases"].items():
            seconds = {variant: [run["step_seconds"] for run in runs]
                       for variant, runs in case["runs"].items()}
            cost = spread.ratio(seconds[SPILLWAY], seconds[PLAIN], skipped)
            rows.append([f"{name}: `{' '.join(case['flags'])}`",
                         *(spread.Spread(spread.pooled(seconds[variant], skipped)).shown(3)
                           for variant in VARIANTS),
                         cost.shown(3), report.against_goal(cost.median, STEP_GOAL),
                         spread.ratio(seconds[SPILLWAY], seconds[HUGE], skipped).shown(3)])
        return report.table(["trainer", "plain, s", "plain with huge pages, s", "Spillway, s",
                             "Spillway / plain", "goal", "Spillway / plain with huge pages"], rows)

    def ops_table(self, runs):
        rows = []
        for kind in runs[PLAIN][0]:
            plain, ours = ([run[kind] / 1000 for run in runs[variant]]
                           for variant in (PLAIN, SPILLWAY))
            added = spread.Spread(b - a for a, b in zip(plain, ours))
            rows.append([kind, spread.Spread(plain).shown(3), spread.Spread(ours).shown(3),
                         added.shown(3), report.against_goal(added.median, OP_GOAL_US)])
        return report.table(["operator", "plain", "Spillway", "added", "goal"], rows)

    def plot(self, results, folder):
        figure, axes = report.drawing(7, 3)
        axis, width = axes[0][0], 0.26
        for index, variant in enumerate(VARIANTS):
            ratios = [spread.ratio([run["step_seconds"] for run in case["runs"][variant]],
                                   [run["step_seconds"] for run in case["runs"][PLAIN]],
                                   results["skipped"]) for case in results["cases"].values()]
            axis.bar([place + (index - 1) * width for place in range(len(ratios))],
                     [each.median for each in ratios], width, label=variant,
                     yerr=[[each.median - each.lowest for each in ratios],
                           [each.highest - each.median for each in ratios]], capsize=3)
        axis.axhline(STEP_GOAL, color="black", linestyle=":", label=f"goal {STEP_GOAL}")
        axis.set_xticks(range(len(results["cases"])), list(results["cases"]))
        axis.set_ylabel("step / step of plain LibTorch")
        axis.legend(fontsize=8)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    InterceptionCost().run()
