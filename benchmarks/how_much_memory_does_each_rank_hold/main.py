#!/usr/bin/env python3
"""How much memory does each rank hold? The example trainers on one process, two and four MPI ranks."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, training  # noqa: E402  pylint: disable=wrong-import-position

RANKS = (2, 4)
WAYS = {"1f1b": ("--schedule", "1f1b"), "1f1b, window 1": ("--schedule", "1f1b", "--window", "1"),
        "gems-mast": ("--schedule", "gems-mast")}
GOAL = 1.1  # Of what each of P ranks would keep of the parameters if they could be divided evenly.


class Memory(report.Benchmark):
    """The most that any rank holds, with room for everything, against one process."""

    rounds, steps, skipped = 1, 6, 0
    quick_rounds, quick_steps = 1, 4

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--mpiexec", default="mpiexec.hydra")

    def train(self, options, case, launcher, way, budget):
        """The statistics of each rank; losses are compared by the caller."""
        for old in options.work.glob("*"):
            old.unlink()
        losses = options.work / "losses.txt"
        stats = options.work / ("stats-%r.json" if launcher else "stats-0.json")
        command = [*launcher, options.bin / "spillway", "run", "--quiet", "--budget", budget, "--stats", stats,
                   "--nvme", options.disk, *way, "--", *case.command(options.bin, options.steps, 1),
                   "--micro-batches", 8, "--losses", losses]
        training.train(command, environment={"OMP_NUM_THREADS": "1"}, time_limit=3600).require_success(case.name)
        files = sorted(options.work.glob("stats-*.json"))
        return losses.read_text(encoding="ascii"), [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def measure(self, options):
        models = {}
        for whole in (cases.BRAIN_UNET, cases.PHOTO_NET, cases.TEXT_ACTIVATIONS, cases.TEXT_PARAMETERS):
            case = self.sized(options, whole)
            alone, stats = self.train(options, case, [], (), cases.NO_PRESSURE)
            rows = []
            for ranks in RANKS:
                for name, way in WAYS.items():
                    launcher = [options.mpiexec, "-n", ranks]
                    losses, of_ranks = self.train(options, case, launcher, ("--split", *way), "16GiB")
                    if losses != alone:
                        raise training.Failure(f"{case.name}, {ranks} ranks, {name}: other losses than one process")
                    rows.append({"ranks": ranks, "way": name,
                                 "parameters": [row["parameter_bytes"] for row in of_ranks[0]["ranks"]],
                                 "peak": [one["peak_bytes"] for one in of_ranks],
                                 "resident": [one["peak_rss_bytes"] for one in of_ranks]})
                    print(f"{case.name}: {rows[-1]}", file=sys.stderr, flush=True)
            models[case.name] = {"needed": stats[0]["needed_bytes"], "resident": stats[0]["peak_rss_bytes"],
                                 "split": rows}
        return {"models": models}

    def extent(self, results):
        return f"Steps per run: {results['steps']}, of 8 micro-batches; one thread a rank."

    def report(self, results, folder):
        rows = []
        for name, model in results["models"].items():
            for run in model["split"]:
                ranks, parameters = run["ranks"], run["parameters"]
                # With replicas or stages in both directions a parameter is kept once, too.
                share = max(parameters) * ranks / max(sum(parameters), 1)
                rows.append([name, ranks, run["way"], f"{share:.2f} ({report.against_goal(share, GOAL)})",
                             f"{max(run['peak']) / 2**20:.0f} MiB",
                             f"{model['needed'] / 2**20:.0f} MiB", f"{max(run['peak']) / model['needed']:.2f}",
                             f"{max(run['resident']) / 2**20:.0f} of {model['resident'] / 2**20:.0f} MiB"])
        self.plot(results, folder)
        return (report.table(["model", "ranks", "schedule", "most parameters x ranks / all", "most of any rank",
                              "one process", "of one process", "resident, of one process"], rows)
                + "\n![Tensor bytes of each rank](plot.svg)\n")

    def plot(self, results, folder):
        models = results["models"]
        figure, axes = report.drawing(12, 3.5, len(models))
        for axis, (name, model) in zip(axes[0], models.items()):
            runs = model["split"]
            for number, run in enumerate(runs):
                width = 0.8 / run["ranks"]
                for rank, peak in enumerate(run["peak"]):
                    axis.bar(number - 0.4 + width * (rank + 0.5), peak / 2**20, width * 0.9, color=f"C{rank}")
            axis.axhline(model["needed"] / 2**20, color="grey", ls=":")
            axis.set_xticks(range(len(runs)), [f"{run['ranks']}: {run['way']}" for run in runs], rotation=60,
                            ha="right", fontsize=6)
            axis.set_title(name, fontsize=8)
        axes[0][0].set_ylabel("MiB of tensors; dotted: one process")
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Memory().run()
