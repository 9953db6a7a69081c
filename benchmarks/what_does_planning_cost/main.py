#!/usr/bin/env python3
"""What does planning cost? Steps while the search for a better plan runs, and while it stands still."""
import contextlib
import ctypes
import errno
import math
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, side_by_side, spread, training  # noqa: E402  pylint: disable=wrong-import-position

CASES = (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS, cases.TEXT_PARAMETERS)
PERCENT = 50
GOAL = 1.01
NORMAL_95 = 1.96
ENDLESS = 1_000_000
SEARCH = "spillway-plan"  # Name of the thread that plans.
PATIENCE_SECONDS = 60
ATTEMPTS_PER_PAIR = 4  # A search may end within a turn.
WAIT_FOR_ALL_KINDS = 0x40000000  # __WALL: threads, too.
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # Of ptrace; only the traced thread stops.
TICKS = os.sysconf("SC_CLK_TCK")


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None) != 0:
        error = ctypes.get_errno()
        if error == errno.ESRCH:
            raise ProcessLookupError(error, f"thread {thread} is gone")
        raise training.Failure(f"ptrace of thread {thread} is refused: {os.strerror(error)}; see "
                               "/proc/sys/kernel/yama/ptrace_scope, and filters of containers")


def searches(process):
    """Threads of the process that look for plans."""
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8").strip() == SEARCH:
                found.append(int(task.name))
    return found


def processor_seconds(process, thread):
    """User and system time of a thread so far; None when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{process}/task/{thread}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def standing_still(threads):
    """These threads stop, and nothing else of their process."""
    held = []
    try:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                ptrace(SEIZE, thread)
                ptrace(INTERRUPT, thread)
                os.waitpid(thread, WAIT_FOR_ALL_KINDS)
                held.append(thread)
        yield
    finally:
        for thread in held:
            with contextlib.suppress(ProcessLookupError):
                ptrace(DETACH, thread)


class PlanningCost(report.Benchmark):
    """One run of each case; the search stops and goes on again every few steps."""

    rounds, steps = 40, 2
    quick_rounds, quick_steps = 6, 2
    skipped = 1

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return (f"Pairs: up to {results['rounds']}, steps per turn: {results['steps']}, behind "
                f"{results['skipped']} that does not count.")

    def measure(self, options):
        results = {}
        for case in CASES[:1] if options.tiny else CASES:
            sized = self.sized(options, case)
            budget = self.needed_bytes(options, sized) * PERCENT // 100
            results[case.name] = self.measure_case(options, sized, budget)
        return {"cases": results}

    def measure_case(self, options, case, budget):
        command = [*cases.under_spillway(options.bin, budget, options.work / "run.json",
                                         options.disk), *case.command(options.bin, ENDLESS, 2)]
        turns, shares, attempts = [], [], 0
        with side_by_side.Live(case.name, command) as live:
            process = live.process.pid
            while len(turns) < options.rounds and attempts < ATTEMPTS_PER_PAIR * options.rounds:
                attempts += 1
                threads = self.awaited(live, process)
                if not threads:
                    break
                # Each comes first in every other pair: a run may grow faster or slower by itself.
                still_first = len(turns) % 2 == 1
                still = self.still_seconds(options, live, threads) if still_first else None
                before = [processor_seconds(process, thread) for thread in threads]
                start = time.monotonic()
                running = self.step_seconds(options, live)
                passed = time.monotonic() - start
                after = [processor_seconds(process, thread) for thread in threads]
                if set(searches(process)) != set(threads) or None in before + after:
                    continue  # It has ended, or another one has begun.
                if not still_first:
                    still = self.still_seconds(options, live, threads)
                turns.append({"seconds": running, "reference": still})
                shares.append((sum(after) - sum(before)) / passed)
                print(f"{live.name}: {turns[-1]}, {shares[-1]:.2f} of a core", file=sys.stderr,
                      flush=True)
        if not turns:
            raise training.Failure(f"{case.name}: no search went on for {2 * options.steps} steps")
        return {"turns": turns, "processor_shares": shares}

    @staticmethod
    def awaited(live, process):
        """The next search, or none where none begins for a while: plans are made anew for a reason."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and not live.is_over:
            threads = searches(process)
            if threads and live.run.step_seconds:
                return threads
            time.sleep(0.01)
        return []

    def still_seconds(self, options, live, threads):
        with standing_still(threads):
            return self.step_seconds(options, live)

    @staticmethod
    def step_seconds(options, live):
        """Mean of the next steps of a trainer that runs on; the one that is under way is left out."""
        first = len(live.run.step_seconds) + options.skipped
        end = first + options.steps
        while len(live.run.step_seconds) < end:
            live.await_event()
            if live.is_over:
                live.run.require_success(live.name)
        return statistics.fmean(live.run.step_seconds[first:end])

    def report(self, results, folder):
        rows = []
        for name, figures in results["cases"].items():
            over = side_by_side.over_reference(figures)
            mean = statistics.fmean(over.values)
            rows.append([name, f"{statistics.median(turn['reference'] for turn in figures['turns']):.3f}",
                         over.shown(3), f"{mean:.3f} ± {self.error_of_mean(over.values):.3f}",
                         spread.Spread(figures["processor_shares"]).shown(2),
                         len(figures["turns"]), report.against_goal(mean, GOAL)])
        self.plot(results, folder)
        return report.table(["trainer", "step while it stands still, s", "searching / standing still",
                             "mean", "of a core for the search", "pairs", "goal"],
                            rows) + "\n![Searching over standing still](plot.svg)\n"

    @staticmethod
    def error_of_mean(values):
        """Half of its 95 % interval, for many pairs that know nothing of each other."""
        if len(values) < 2:
            return math.nan
        return NORMAL_95 * statistics.stdev(values) / math.sqrt(len(values))

    @staticmethod
    def plot(results, folder):
        figure, axes = report.drawing(7, 3.2)
        for name, figures in results["cases"].items():
            values = side_by_side.over_reference(figures).values
            axes[0][0].plot(range(1, len(values) + 1), values, marker="o", label=name)
        axes[0][0].axhline(GOAL, color="black", linewidth=1, linestyle="--")
        axes[0][0].set_xlabel("pair of turns")
        axes[0][0].set_ylabel("step while searching / standing still")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    PlanningCost().run()
