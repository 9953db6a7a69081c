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


# Options of the run, and of the simulated one: schedule, ranks of a pipeline, and layers of a stage. Each
# rank has one stage, or two that are half as large.
LISTED = ("1f1b", "gpipe", "interleaved", "breadth-first", "gems-basic", "gems-mast", "gems-master", "chimera",
          "zb-h1", "zb-h2", "zb-v", "v-half", "v-min")
SCHEDULES = {name: (["--schedule", name], (name, RANKS, 1)) for name in LISTED}
SCHEDULES["2 replicas"] = (["--replicas", "2"], ("1f1b", RANKS // 2, 2))
SCHEDULES["4 replicas"] = (["--replicas", "4"], ("1f1b", 1, 4))


class Schedules(report.RanksBenchmark):
    """Each schedule, with losses read once a step and after every micro-batch."""

    rounds, steps, skipped = 3, 4, 1
    quick_rounds, quick_steps = 1, 3

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--unit", type=int, default=50,
                                 help="milliseconds that a product of matrices sleeps")

    def simulated(self, options, name, micro_batches):
        """Layers of the model, and products of a step."""
        schedule, ranks, layers = SCHEDULES[name][1]
        words = [self.program(options, "spillway_simulated_step"), schedule, ranks, micro_batches * ranks // RANKS,
                 layers]
        told = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout.split()
        return int(told[0]) * layers, float(told[1])

    def run_once(self, options, prefix, layers, micro_batches, reads):
        program = self.program(options, "spillway_sleeping_layers")
        unit = 0 if not prefix else 2 if options.tiny else options.unit
        command = [*prefix, program, layers, micro_batches, options.steps, unit,
                   *(["item"] if reads else [])]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise training.Failure(f"{command}: exit code {done.returncode}\n{done.stderr}")
        units = [1000 * float(one) / max(unit, 1) for one in SECONDS.findall(done.stderr)]
        return done.stdout, units[options.skipped:]

    def measure(self, options):
        rows, forms = {}, {}
        sizes = [4] if options.tiny else [4, 8] if options.quick else [4, 8, 16]
        for micro_batches in sizes:
            for reads in (False, True):
                plain = {}
                for name, number in ((name, number) for number in range(options.rounds)
                                     for name in SCHEDULES):
                    layers, form = self.simulated(options, name, micro_batches)
                    if layers not in plain:
                        plain[layers], _units = self.run_once(options, [], layers, micro_batches, reads)
                    prefix = self.split(options, RANKS, "1GiB", "--rebalance", "off", "--quiet", *SCHEDULES[name][0])
                    losses, units = self.run_once(options, prefix, layers, micro_batches, reads)
                    if losses != plain[layers]:
                        raise training.Failure(f"{name}: other losses than one process")
                    forms[f"{name}|{micro_batches}"] = form
                    key = f"{name}|{micro_batches}|{'each' if reads else 'step'}"
                    rows.setdefault(key, []).extend(units)
                    print(f"{key}, round {number + 1}: {units}, simulated {form}", file=sys.stderr, flush=True)
        return {"units": rows, "simulated": forms}

    def report(self, results, folder):
        rows = []
        names = list(SCHEDULES)
        for key, form in sorted(results["simulated"].items(), key=lambda item: names.index(item[0].split("|")[0])):
            name, micro_batches = key.split("|")
            measured = spread.Spread(results["units"][f"{key}|step"])
            each = spread.Spread(results["units"][f"{key}|each"])
            rows.append([name, micro_batches, f"{form:g}", measured.shown(1), f"{measured.median / form:.2f}",
                         each.shown(1)])
        self.plot(results, folder)
        return report.table(["schedule", "micro-batches", "simulated", "measured", "measured / simulated",
                             "measured, a loss read each micro-batch"],
                            rows) + "\n![Measured and simulated steps](plot.svg)\n"

    def plot(self, results, folder):
        figure, axes = report.drawing(7, 3.5)
        axis = axes[0][0]
        sizes = sorted({int(key.split("|")[1]) for key in results["simulated"]})
        for number, name in enumerate(SCHEDULES):
            axis.plot(sizes, [spread.Spread(results["units"][f"{name}|{size}|step"]).median
                              for size in sizes], marker="o", label=name, color=f"C{number % 10}")
            axis.plot(sizes, [results["simulated"][f"{name}|{size}"] for size in sizes], color=f"C{number % 10}",
                      ls=":")
        axis.set_xlabel("micro-batches a step")
        axis.set_ylabel("products; dotted: simulated")
        axis.legend(fontsize=6, ncol=2)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Schedules().run()
