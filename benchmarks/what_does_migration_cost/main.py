#!/usr/bin/env python3
"""What does migration cost? Layers that sleep, on four MPI ranks, of which one becomes slow."""
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

RANKS, LAYERS, MICRO_BATCHES, SLOW_RANK = 4, 16, 8, 1
SECONDS = re.compile(r"seconds ([0-9.]+)")
MOVES = re.compile(r"before step (\d+) (\d+) parameters? moves? between ranks, with (\S+ \S+),")
WAYS = {"stages stay": ["--rebalance", "off"], "layers move": ["--rebalance", "on"]}
NEAR = 1.05  # Of the steps that follow.


def step_of(stages, slow=SLOW_RANK):
    """A step of a pipeline that fills, runs at the pace of its slowest stage, and drains; in layers at full speed."""
    times = [count * (2 if rank == slow else 1) for rank, count in enumerate(stages)]
    return (MICRO_BATCHES - 1) * max(times) + sum(times)


def best_step():
    """Of all ways to deal the layers to the ranks."""
    return min(step_of((a, b, c, LAYERS - a - b - c))
               for a in range(1, LAYERS) for b in range(1, LAYERS - a) for c in range(1, LAYERS - a - b))


class Migration(report.RanksBenchmark):
    """A rank takes twice as long from a step on: with layers that move, and with stages that stay."""

    rounds, steps, skipped = 3, 40, 1
    quick_rounds, quick_steps = 1, 30

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--unit", type=int, default=5,
                                 help="milliseconds that a product of matrices sleeps")

    def run_once(self, options, prefix):
        program = self.program(options, "spillway_sleeping_layers")
        unit = 0 if not prefix else 1 if options.tiny else options.unit
        command = [*prefix, program, LAYERS, MICRO_BATCHES, options.steps, unit, "slow", SLOW_RANK, options.steps // 4]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise training.Failure(f"{command}: exit code {done.returncode}\n{done.stderr}")
        return done

    def measure(self, options):
        plain = self.run_once(options, [])
        runs = {way: [] for way in WAYS}
        for _number, way in spread.take_turns(list(WAYS), options.rounds):
            done = self.run_once(options, self.split(options, RANKS, "1GiB", "--log-level", "info", *WAYS[way]))
            if done.stdout != plain.stdout:
                raise training.Failure(f"{way}: other losses than one process")
            moves = [(int(step), int(count), size) for step, count, size in MOVES.findall(done.stderr)]
            runs[way].append({"seconds": [float(one) for one in SECONDS.findall(done.stderr)], "moves": moves})
            print(f"{way}: {runs[way][-1]}", file=sys.stderr, flush=True)
        return {"slow_from": options.steps // 4, "runs": runs}

    def report(self, results, folder):
        slow_from = results["slow_from"]
        rows = []
        for way, runs in results["runs"].items():
            before, behind, steps_to_rest, moved = [], [], [], []
            for run in runs:
                seconds = run["seconds"]
                rest = statistics.median(seconds[-len(seconds) // 4:])
                before.append(statistics.median(seconds[1:slow_from]))
                behind.append(rest)
                late = [step for step in range(slow_from, len(seconds)) if seconds[step] > NEAR * rest]
                steps_to_rest.append(max(late, default=slow_from - 1) + 1 - slow_from)
                moved.append("; ".join(f"{count} before step {step}, {size}" for step, count, size in run["moves"]))
            base = statistics.median(before)
            rows.append([way, spread.Spread(before).shown(), spread.Spread(behind).shown(),
                         f"{statistics.median(behind) / base:.2f}",
                         spread.Spread(steps_to_rest).shown(0) if way == "layers move" else "–",
                         moved[0] or "none"])
        self.plot(results, folder)
        even = [LAYERS // RANKS] * RANKS
        before = step_of(even, slow=None)
        return (report.table(["way", "s a step before", "s a step at the end", "end / before",
                              "steps until within 5 % of the end", "parameters that moved (first round)"], rows)
                + "\nBy the time that a pipeline of these stages takes, fill and drain included, the best stages of "
                  f"whole layers take {best_step() / before:.2f} times as long as before, and stages that stay "
                  f"{step_of(even) / before:.2f} times.\n"
                  "\n![Seconds of each step](plot.svg)\n")

    def plot(self, results, folder):
        figure, axes = report.drawing(7, 3)
        axis = axes[0][0]
        for number, (way, runs) in enumerate(results["runs"].items()):
            for at, run in enumerate(runs):
                axis.plot(run["seconds"], color=f"C{number}", label=way if at == 0 else None, lw=1)
        axis.axvline(results["slow_from"], color="grey", ls=":")
        axis.set_xlabel(f"step; rank {SLOW_RANK} takes twice as long from the dotted line on")
        axis.set_ylabel("seconds")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Migration().run()
