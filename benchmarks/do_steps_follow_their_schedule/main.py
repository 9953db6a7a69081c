#!/usr/bin/env python3
"""Do steps on many ranks take what their schedule takes? Layers that sleep, on four MPI ranks."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

RANKS = 4
SECONDS = re.compile(r"seconds ([0-9.]+)")
FORWARD, BACKWARD = 1, 2  # Products of a layer.


def one_after_the_other(micro_batches):
    return micro_batches * RANKS * (FORWARD + BACKWARD)


def one_forward_one_backward(micro_batches):
    return (micro_batches + RANKS - 1) * (FORWARD + BACKWARD)


def inverted(micro_batches):
    return RANKS * FORWARD + micro_batches * RANKS * BACKWARD + (micro_batches - 1) * FORWARD


def pipelines(count):
    stages = RANKS // count

    def units(micro_batches):
        # A stage is so many layers.
        return (micro_batches // count + stages - 1) * (FORWARD + BACKWARD) * count
    return units


# Options of the run, and the closed form of the step in products.
SCHEDULES = {
    "1f1b, window 1": (["--schedule", "1f1b", "--window", "1"], one_after_the_other),
    "1f1b": (["--schedule", "1f1b"], one_forward_one_backward),
    "gpipe": (["--schedule", "gpipe"], one_forward_one_backward),
    "gems-mast": (["--schedule", "gems-mast"], inverted),
    "gems-master": (["--schedule", "gems-master"], inverted),
    "2 replicas": (["--replicas", "2"], pipelines(2)),
    "4 replicas": (["--replicas", "4"], pipelines(4)),
}


class Schedules(report.Benchmark):
    """Each schedule, with losses read once a step and after every micro-batch."""

    rounds, steps, skipped = 3, 4, 1
    quick_rounds, quick_steps = 1, 3

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--unit", type=int, default=50,
                                 help="milliseconds that a product of matrices sleeps")
        self.parser.add_argument("--mpiexec", default="mpiexec.hydra")

    def run_once(self, options, prefix, micro_batches, reads):
        program = self.program(options, "spillway_sleeping_layers")
        unit = 0 if not prefix else 2 if options.tiny else options.unit
        command = [*prefix, program, RANKS, micro_batches, options.steps, unit,
                   *(["item"] if reads else [])]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise training.Failure(f"{command}: exit code {done.returncode}\n{done.stderr}")
        units = [1000 * float(one) / max(unit, 1) for one in SECONDS.findall(done.stderr)]
        return done.stdout, units[options.skipped:]

    def measure(self, options):
        rows = {}
        sizes = [4] if options.tiny else [4, 8] if options.quick else [4, 8, 16]
        for micro_batches in sizes:
            for reads in (False, True):
                plain, _units = self.run_once(options, [], micro_batches, reads)
                for name, number in ((name, number) for number in range(options.rounds)
                                     for name in SCHEDULES):
                    prefix = [options.mpiexec, "-n", RANKS, options.bin / "spillway", "run",
                              "--split", "--budget", "1GiB", "--quiet", *SCHEDULES[name][0], "--"]
                    losses, units = self.run_once(options, prefix, micro_batches, reads)
                    if losses != plain:
                        raise training.Failure(f"{name}: other losses than one process")
                    key = f"{name}|{micro_batches}|{'each' if reads else 'step'}"
                    rows.setdefault(key, []).extend(units)
                    print(f"{key}, round {number + 1}: {units}", file=sys.stderr, flush=True)
        return {"units": rows}

    def report(self, results, folder):
        rows = []
        for name, (_words, closed) in SCHEDULES.items():
            for key, units in results["units"].items():
                schedule, micro_batches, reads = key.split("|")
                if schedule != name or reads != "step":
                    continue
                form = closed(int(micro_batches))
                each = results["units"][f"{name}|{micro_batches}|each"]
                measured = spread.Spread(units)
                rows.append([name, micro_batches, form, measured.shown(1),
                             f"{measured.median / form:.2f}", spread.Spread(each).shown(1)])
        self.plot(results, folder)
        return report.table(["schedule", "micro-batches", "closed form", "measured",
                             "measured / closed form", "measured, a loss read each micro-batch"],
                            rows) + "\n![Measured steps and closed forms](plot.svg)\n"

    def plot(self, results, folder):
        figure, axes = report.drawing(7, 3.5)
        axis = axes[0][0]
        sizes = sorted({int(key.split("|")[1]) for key in results["units"]})
        for number, (name, (_words, closed)) in enumerate(SCHEDULES.items()):
            axis.plot(sizes, [spread.Spread(results["units"][f"{name}|{size}|step"]).median
                              for size in sizes], marker="o", label=name, color=f"C{number}")
            axis.plot(sizes, [closed(size) for size in sizes], color=f"C{number}", ls=":")
        axis.set_xlabel("micro-batches a step")
        axis.set_ylabel("products; dotted: closed form")
        axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Schedules().run()
