#!/usr/bin/env python3
"""Against the kernel: too little memory, then swap by the kernel or spilling by Spillway.

Needs root: makes a memory cgroup and a swap file, and removes both."""
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import memory_limits  # noqa: E402  pylint: disable=wrong-import-position
from measure import cases, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

GIB, MIB = 1 << 30, 1 << 20
ROOM, NOTHING, SWAP, SPILLWAY = "no limit", "limit, no swap", "limit, kernel swap", "limit, Spillway"
# What --budget auto leaves for memory that tensors do not count.
RESERVE = 512 * MIB
CASES = [cases.BRAIN_UNET, cases.TEXT_ACTIVATIONS]


class AgainstTheKernel(report.Benchmark):
    """The same trainers under the same limits."""

    rounds, quick_rounds = 3, 2

    def __init__(self):
        super().__init__(__file__, __doc__)
        add = self.parser.add_argument
        add("--percent", type=int, action="append", default=[],
            help="share of the tensors' need that the limit leaves for them (default: 50 and 35)")
        add("--time-limit", type=int, help="seconds for one run (default: 240, --quick: 75)")
        add("--swap-size", type=int, default=6, help="GiB of the swap file, on --disk")

    def measure(self, options):
        results = {}
        options.time_limit = options.time_limit or (75 if options.quick else 240)
        with memory_limits.memory_group() as group:
            for case in CASES[:1] if options.quick else CASES:
                case = self.sized(options, case)
                results[case.name] = self.measure_case(options, group, case)
        return {"time_limit": options.time_limit, "cases": results}

    def measure_case(self, options, group, case):
        program = case.command(options.bin, options.steps, os.cpu_count())
        stats = options.work / "stats.json"
        ample = training.train([*cases.under_spillway(options.bin, cases.NO_PRESSURE, stats,
                                                      options.disk), *program], stats_file=stats)
        ample.require_success(case.name)
        needed = ample.stats["needed_bytes"]
        limits = {percent: needed * percent // 100 + RESERVE
                  for percent in options.percent or [50, 35]}
        free = [training.train(program) for _ in range(options.rounds)]
        for run in free:
            run.require_success(f"{case.name}, {ROOM}")
        limited = {}
        for percent, limit in limits.items():
            limited[percent] = self.measure_limit(options, group, case, limit)
        self.require_equal(case, free, limited)
        return {"flags": list(case.flags), "needed_bytes": needed,
                "peak_rss_bytes": ample.stats["peak_rss_bytes"],
                ROOM: [run.record() for run in free],
                "limits": {str(percent): {"limit_bytes": limits[percent],
                                          **{name: [run.record() for run in runs]
                                             for name, runs in limited[percent].items()}}
                           for percent in limits}}

    def measure_limit(self, options, group, case, limit):
        runs = {NOTHING: [], SWAP: [], SPILLWAY: []}
        for number, name in spread.take_turns(list(runs), options.rounds):
            if name == NOTHING and number > 0:
                continue  # It dies each time.
            run = self.run_limited(options, group, case, limit, name)
            print(f"{case.name}, {limit / MIB:.0f} MiB, round {number + 1}, {name}: "
                  f"{run.ending()}, {len(run.step_seconds)} steps", file=sys.stderr, flush=True)
            if name == SPILLWAY and not run.timed_out:
                run.require_success(f"{case.name}, {name}")
            runs[name].append(run)
        return runs

    def run_limited(self, options, group, case, limit, name):
        stats = options.work / "stats.json"
        program = case.command(options.bin, options.steps, os.cpu_count())
        if name == SPILLWAY:
            program = [*cases.under_spillway(options.bin, "auto", stats, options.disk), *program]
        group.set_limit(limit, swap=name == SWAP)
        command = group.command(program)
        if name != SWAP:
            return training.train(command, stats_file=stats, time_limit=options.time_limit)
        with memory_limits.swap_file(options.disk, options.swap_size * GIB):
            return training.train(command, stats_file=stats, time_limit=options.time_limit)

    def require_equal(self, case, free, limited):
        """A run that was stopped early has the first losses of one that was not."""
        expected = free[0].losses
        for run in [*free, *(run for each in limited.values() for runs in each.values()
                             for run in runs)]:
            if run.losses != expected[:len(run.losses)]:
                raise training.Failure(f"{case.name}: the losses of the variants differ")

    def report(self, results, folder):
        rows, skipped = [], results["skipped"]
        for name, case in results["cases"].items():
            rows.append([f"{name}: `{' '.join(case['flags'])}`", "none",
                         self.seconds(case[ROOM], skipped), "–", "–", "–", "–"])
            for percent, limit in case["limits"].items():
                rows.append([f"{percent} % of {case['needed_bytes'] / GIB:.2f} GiB",
                             f"{limit['limit_bytes'] / GIB:.2f} GiB", "–",
                             f"{limit[NOTHING][0]['ending']}",
                             self.seconds(limit[SWAP], skipped),
                             self.seconds(limit[SPILLWAY], skipped),
                             self.factor(limit, skipped)])
        self.plot(results, folder)
        return report.table(["trainer; room for tensors", "limit of memory", "no limit, s",
                             "no swap", "kernel swap, s", "Spillway, s", "kernel / Spillway"],
                            rows) + "\n![Step under a limit](plot.svg)\n"

    def counted(self, runs, skipped):
        """All steps but the first ones, or the last one where the time limit left no others."""
        return [seconds for run in runs
                for seconds in run["step_seconds"][skipped:] or run["step_seconds"][-1:]]

    def seconds(self, runs, skipped):
        found = self.counted(runs, skipped)
        return spread.Spread(found).shown() if found else f"no step; {runs[0]['ending']}"

    def factor(self, limit, skipped):
        kernel, ours = (self.counted(limit[name], skipped) for name in (SWAP, SPILLWAY))
        if not kernel:
            return "–"
        return f"{statistics.median(kernel) / statistics.median(ours):.1f}"

    def plot(self, results, folder):
        figure, axes = report.drawing(5 * len(results["cases"]), 3.2, len(results["cases"]))
        for axis, (name, case) in zip(axes[0], results["cases"].items()):
            bars = [(ROOM, case[ROOM])]
            for percent, limit in case["limits"].items():
                bars += [(f"{percent} %, kernel", limit[SWAP]),
                         (f"{percent} %, Spillway", limit[SPILLWAY])]
            for label, runs in bars:
                found = self.counted(runs, results["skipped"])
                colour = "tab:red" if "kernel" in label else "tab:blue"
                if found:
                    axis.bar(label, statistics.median(found), color=colour)
                else:
                    axis.bar(f"{label}\n(time limit)", 0)
            axis.set_yscale("log")
            axis.tick_params(axis="x", labelsize=6)
            axis.set_ylabel("s/step")
            axis.set_title(name, fontsize=9)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    AgainstTheKernel().run()
