#!/usr/bin/env python3
"""How much memory does each rank hold? The example trainers on one process, two and four MPI ranks."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, training  # noqa: E402  pylint: disable=wrong-import-position

RANKS = (2, 4)
BY_PLAN = "1f1b, by a plan"
# By time, layers would move to ranks that have more of it.
WAYS = {"1f1b": ("--rebalance", "off", "--schedule", "1f1b"),
        "1f1b, window 1": ("--rebalance", "off", "--schedule", "1f1b", "--window", "1"),
        "gems-mast": ("--rebalance", "off", "--schedule", "gems-mast"), BY_PLAN: ()}
# Needs 45 GiB; on four ranks with 2.5 GiB each, most of it is swapped.
LARGEST, BUDGET_OF_LARGEST, STEPS_OF_LARGEST = cases.Case("brain_unet", "brain_unet", ("--preset", "fine")), "2.5GiB", 2
SHARE = 1.1  # Of what each of P ranks would keep of the parameters if they could be divided evenly.
NEAR = 0.1  # What a rank holds may differ so much from its plan.


class Memory(report.RanksBenchmark):
    """The most that any rank holds, with room for everything, against one process."""

    rounds, steps, skipped = 1, 4, 0
    quick_rounds, quick_steps = 1, 2

    def __init__(self):
        super().__init__(__file__, __doc__)

    def train(self, options, case, launcher, way, budget, steps=None, micro_batches=8):
        """The statistics of each rank; losses are compared by the caller."""
        for old in options.work.glob("stats-*.json"):
            old.unlink()
        losses = options.work / "losses.txt"
        stats = options.work / ("stats-%r.json" if launcher else "stats-0.json")
        command = [*launcher, options.bin / "spillway", "run", "--quiet", "--budget", budget, "--stats", stats,
                   "--nvme", options.disk, *way, "--", *case.command(options.bin, steps or options.steps, 1),
                   "--micro-batches", micro_batches, "--losses", losses]
        training.train(command, environment={"OMP_NUM_THREADS": "1"}, time_limit=7200).require_success(case.name)
        files = sorted(options.work.glob("stats-*.json"))
        return losses.read_text(encoding="ascii"), [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def plan(self, options, case, ranks):
        """Its options, and the most bytes that it says for each rank."""
        profile, plan = options.work / "step.json", options.work / "plan.json"
        for command in ([options.bin / "spillway", "profile", "--out", profile, "--",
                         *case.command(options.bin, 6, 1), "--micro-batches", 1],
                        [options.bin / "spillway", "plan-job", profile, "--ranks", ranks, "--schedule", "1f1b",
                         "--replicas", 1, "--micro-batches", 8, "--out", plan]):
            run = subprocess.run([str(word) for word in command], env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=3600, check=False)
            if run.returncode != 0:
                raise training.Failure(f"{case.name}: {run.stderr}")
        return ("--plan", plan), json.loads(plan.read_text(encoding="utf-8"))["figures"]["peak_bytes"]

    def measure(self, options):
        models = {}
        for whole, smaller in cases.SMALLER.items():
            case = self.sized(options, whole if options.tiny else smaller)
            alone, stats = self.train(options, case, [], (), cases.NO_PRESSURE)
            rows = []
            for ranks in RANKS:
                for name, way in WAYS.items():
                    launcher, planned = [options.mpiexec, "-n", ranks], None
                    if name == BY_PLAN:
                        way, planned = self.plan(options, case, ranks)
                    losses, of_ranks = self.train(options, case, launcher, ("--split", *way), "4GiB")
                    if losses != alone:
                        raise training.Failure(f"{case.name}, {ranks} ranks, {name}: other losses than one process")
                    rows.append({"ranks": ranks, "way": name, "planned": planned,
                                 "parameters": [row["parameter_bytes"] for row in of_ranks[0]["ranks"]],
                                 "peak": [one["peak_bytes"] for one in of_ranks],
                                 "resident": [one["peak_rss_bytes"] for one in of_ranks]})
                    print(f"{case.name}: {rows[-1]}", file=sys.stderr, flush=True)
            models[case.name] = {"needed": stats[0]["needed_bytes"], "resident": stats[0]["peak_rss_bytes"],
                                 "split": rows}
        return {"models": models, "largest": None if options.tiny or options.quick else self.largest(options)}

    def largest(self, options):
        alone, stats = self.train(options, LARGEST, [], (), "10GiB", STEPS_OF_LARGEST, 1)
        losses, of_ranks = self.train(options, LARGEST, [options.mpiexec, "-n", 4], ("--split",), BUDGET_OF_LARGEST,
                                      STEPS_OF_LARGEST, 1)
        if losses != alone:
            raise training.Failure(f"{LARGEST.name}: other losses on four ranks than in one process")
        return {"needed": stats[0]["needed_bytes"], "alone": stats[0]["peak_rss_bytes"],
                "peak": [one["peak_bytes"] for one in of_ranks],
                "resident": [one["peak_rss_bytes"] for one in of_ranks],
                "spilled": [one["spilled_bytes"] for one in of_ranks]}

    def extent(self, results):
        return f"Steps per run: {results['steps']}, of 8 micro-batches; one thread a rank."

    def report(self, results, folder):
        rows = []
        for name, model in results["models"].items():
            for run in model["split"]:
                ranks, parameters = run["ranks"], run["parameters"]
                share = max(parameters) * ranks / max(sum(parameters), 1)
                rows.append([name, ranks, run["way"], f"{share:.2f} ({report.against_goal(share, SHARE)})",
                             f"{max(run['peak']) / 2**20:.0f} MiB",
                             f"{model['needed'] / 2**20:.0f} MiB", f"{max(run['peak']) / model['needed']:.2f}",
                             f"{max(run['resident']) / 2**20:.0f} of {model['resident'] / 2**20:.0f} MiB",
                             self.against_plan(run)])
        self.plot(results, folder)
        text = ""
        if results["largest"] is not None:
            largest = results["largest"]
            gibs = {key: ", ".join(f"{value / 2**30:.2f}" for value in largest[key])
                    for key in ("peak", "resident", "spilled")}
            text = (f"\n`brain_unet --preset fine` needs {largest['needed'] / 2**30:.1f} GiB in one process. On four "
                    f"ranks with `--budget {BUDGET_OF_LARGEST}` each it trains {STEPS_OF_LARGEST} steps with the same "
                    f"losses; the ranks hold {gibs['peak']} GiB of tensors at most, {gibs['resident']} GiB are "
                    f"resident, and {gibs['spilled']} GiB are written to disk.\n")
        return (report.table(["model", "ranks", "schedule", "most parameters x ranks / all", "most of any rank",
                              "one process", "of one process", "resident, of one process",
                              "furthest from the plan"], rows)
                + text + "\n![Tensor bytes of each rank](plot.svg)\n")

    def against_plan(self, run):
        if run["planned"] is None:
            return ""
        off = max((peak / planned - 1 for peak, planned in zip(run["peak"], run["planned"])), key=abs)
        return f"{off:+.0%} ({report.against_goal(abs(off), NEAR)})"

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
