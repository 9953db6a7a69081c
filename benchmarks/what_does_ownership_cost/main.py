#!/usr/bin/env python3
"""What does ownership cost? Operators on small tensors, on one process and on two MPI ranks."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

LINE = re.compile(r"^(here|elsewhere) (in-place|new) ([0-9.]+)$", re.MULTILINE)
GOALS = {"skipped": 1.0, "queued": 3.0}  # Microseconds, LibTorch's own way to the kernel included.
KINDS = {"in-place": "mul_ in place", "new": "mul that makes a tensor"}


class Cost(report.RanksBenchmark):
    """Processor time of the program's thread per operator."""

    rounds, steps, skipped = 7, 20, 2
    quick_rounds, quick_steps = 3, 10

    def __init__(self):
        super().__init__(__file__, __doc__)

    def run_once(self, options, prefix):
        program = self.program(options, "spillway_small_operators")
        command = [*prefix, program, options.steps]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
        if done.returncode != 0:
            raise training.Failure(f"{command}: exit code {done.returncode}\n{done.stderr}")
        times = {}
        for where, kind, microseconds in LINE.findall(done.stderr):
            times.setdefault(f"{where}|{kind}", []).append(float(microseconds))
        return done.stdout, {key: values[options.skipped:] for key, values in times.items()}

    def measure(self, options):
        command = options.bin / "spillway"
        ways = {"alone": [], "paged": [command, "run", "--budget", "1GiB", "--quiet", "--"],
                "split": self.split(options, 2, "1GiB", "--quiet")}
        times = {way: {} for way in ways}
        seen = set()
        for _number, way in spread.take_turns(list(ways), options.rounds):
            output, measured = self.run_once(options, ways[way])
            seen.add(output)
            for key, values in measured.items():
                times[way].setdefault(key, []).extend(values)
        if len(seen) != 1:
            raise training.Failure("the ways have seen other values")
        return {"microseconds": times}

    def report(self, results, folder):
        times = results["microseconds"]
        rows = []
        for kind, name in KINDS.items():
            alone = spread.Spread(times["alone"][f"here|{kind}"])
            queued = spread.Spread(times["split"][f"here|{kind}"])
            skipped = spread.Spread(times["split"][f"elsewhere|{kind}"])
            rows.append([name, alone.shown(), spread.Spread(times["paged"][f"here|{kind}"]).shown(), queued.shown(),
                         skipped.shown(), report.against_goal(queued.median, GOALS["queued"]),
                         report.against_goal(skipped.median, GOALS["skipped"])])
        return report.table(["operator", "alone", "spillway run, one process", "queued on its owner",
                             "skipped by another rank", "queued, goal", "skipped, goal"], rows)


if __name__ == "__main__":
    Cost().run()
