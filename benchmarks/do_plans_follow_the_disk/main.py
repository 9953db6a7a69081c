#!/usr/bin/env python3
"""Do plans follow the disk? A trainer under a budget while another process takes bandwidth."""
import contextlib
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, disk, report, side_by_side, spread  # noqa: E402  pylint: disable=wrong-import-position
from measure import traffic, training  # noqa: E402  pylint: disable=wrong-import-position
import trainer_log  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import as_option  # noqa: E402  pylint: disable=wrong-import-position

CASES = (cases.TEXT_PARAMETERS, cases.BRAIN_UNET)
PERCENT = 35
ENDLESS = 1_000_000
BYTES_PER_SECOND = 1.5e9  # Of the other process, each way.
FOLLOWING, FIXED = "following", "fixed plan"
PHASES = ("alone", "beside fio", "alone again")
# As `--log-level info` says it of every plan.
PLAN = re.compile(r"(?:new|renewed) plan for .*: ([0-9.e+-]+) s predicted, ([^,]+) out and "
                  r"([^,]+) in, (\d+) operators? run again")


class Following(report.Benchmark):
    """Each round is a run of each case and variant: alone, then beside fio, then alone again."""

    rounds, steps, skipped = 3, 40, 20
    quick_rounds, quick_steps = 1, 30

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, steps per phase: {results['steps']}; figures are of "
                f"those behind the first {results['skipped']}.")

    def measure(self, options):
        results = {}
        rates = options.work / "disks.json"
        disk.bench_io(options, rates)
        for case in CASES:
            sized = self.sized(options, case)
            budget = self.needed_bytes(options, sized) * PERCENT // 100
            plan = self.fixed_plan(options, sized, budget, rates)
            variants = {FOLLOWING: [], FIXED: ["--plan", plan]}
            results[case.name] = {name: [] for name in variants}
            for _, name in spread.take_turns(list(variants), options.rounds):
                results[case.name][name].append(
                    self.run_once(options, sized, budget, name, variants[name]))
        return {"cases": results}

    @staticmethod
    def fixed_plan(options, case, budget, rates):
        """A plan for the disk as `bench-io` sees it, made before the run."""
        profile, plan = options.work / "step.profile.json", options.work / "step.plan.json"
        spillway = options.bin / "spillway"
        training.output_of([spillway, "profile", "--quiet", "--out", profile, "--",
                            *case.command(options.bin, 7, 2)])
        training.output_of([spillway, "plan", profile, "--budget", as_option(budget), "--rates", rates,
                            "--out", plan])
        return plan

    def run_once(self, options, case, budget, name, words):
        stats = options.work / "run.json"
        command = [*cases.under_spillway(options.bin, budget, stats, options.disk,
                                         "--log-level", "info", *words, quiet=False),
                   *case.command(options.bin, ENDLESS, 2)]
        load = traffic.Traffic(options.disk, [BYTES_PER_SECOND] * 2)
        moved, phases = [], []
        try:
            with side_by_side.Live(f"{case.name}, {name}", command, stats_file=stats) as live:
                for phase in PHASES:
                    is_loaded = phase == "beside fio"
                    with load.moving(moved) if is_loaded else contextlib.nullcontext():
                        phases.append(self.phase(options, live))
                    print(f"{live.name}, {phase}: {phases[-1]}", file=sys.stderr, flush=True)
                    if name == FOLLOWING and "planned" not in phases[-1]:
                        raise training.Failure(f"{live.name}, {phase}: no plan was told of\n"
                                               f"{live.run.output}")
                run = live.finish()
        finally:
            load.remove()
        if name == FIXED and not (run.stats.get("given_plan") or {}).get("followed_steps"):
            raise training.Failure(f"{case.name}: no step went by the fixed plan\n{run.output}")
        return {"phases": phases, "bytes_per_second": moved}

    @staticmethod
    def phase(options, live):
        before = len(live.run.output)
        first, end = live.turn(options.steps)
        told = live.run.output[before:]
        plans = list(PLAN.finditer(told))
        until_first = told[:plans[0].start()] if plans else ""
        known = PLAN.findall(live.run.output)
        result = {"plans": len(plans),
                  "steps_to_first": sum(bool(trainer_log.STEP.match(line))
                                        for line in until_first.splitlines()) if plans else None,
                  "measured": statistics.median(
                      live.run.step_seconds[first + options.skipped:end])}
        if known:
            seconds, out, into, again = known[-1]
            result |= {"planned": float(seconds), "out": out, "in": into, "again": int(again)}
        return result

    def report(self, results, folder):
        rows = []
        for name, variants in results["cases"].items():
            for place, phase in enumerate(PHASES):
                following, fixed = ([run["phases"][place] for run in variants[kind]]
                                    for kind in (FOLLOWING, FIXED))
                last = following[-1]
                ratio = spread.Spread(each["measured"] / each["planned"] for each in following)
                begun = [each["steps_to_first"] for each in following
                         if each["steps_to_first"] is not None]
                rows.append([name, phase,
                             spread.Spread(each["measured"] for each in following).shown(3),
                             spread.Spread(each["measured"] for each in fixed).shown(3),
                             ratio.shown(3), statistics.median(each["plans"] for each in following),
                             ", ".join(map(str, begun)) or "–",
                             f"{last['out']} out, {last['in']} in, {last['again']} again"])
        self.plot(results, folder)
        return report.table(("case", "phase", "step, s", "with a fixed plan, s",
                             "measured / latest plan", "plans made in it",
                             "steps before the first of them, by round", "the last one of them"),
                            rows) + "\n![Steps and plans](plot.svg)\n"

    @staticmethod
    def plot(results, folder):
        figure, axes = report.drawing(4 * len(results["cases"]), 3.2, len(results["cases"]))
        for axis, (name, variants) in zip(axes[0], results["cases"].items()):
            runs = variants[FOLLOWING]
            for key, label in (("measured", "measured"), ("planned", "latest plan")):
                axis.plot(PHASES, [statistics.median(run["phases"][place][key] for run in runs)
                                   for place in range(len(PHASES))], marker="o", label=label)
            axis.plot(PHASES, [statistics.median(run["phases"][place]["measured"]
                                                 for run in variants[FIXED])
                               for place in range(len(PHASES))], marker="o", label="fixed plan")
            axis.set_title(name, fontsize=9)
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("seconds per step")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Following().run()
