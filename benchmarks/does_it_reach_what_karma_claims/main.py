#!/usr/bin/env python3
"""Does it reach what KARMA claims? Six networks at batches beyond 16 GB, planned for a V100 behind 12 GB/s."""
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from measure import plans, report, training  # noqa: E402  pylint: disable=wrong-import-position
from measure.plans import OURS, RECOMPUTE_ONLY, best_of  # noqa: E402  pylint: disable=wrong-import-position
import recorded_step  # noqa: E402  pylint: disable=wrong-import-position
import v100  # noqa: E402  pylint: disable=wrong-import-position

SWAP_ONLY = ("swap-all", "belady", "demand")
OTHERS = ("offload-only", "capuchin", "karma")
STRATEGIES = (OURS, *OTHERS, *SWAP_ONLY, *RECOMPUTE_ONLY)
CLAIMED = 1.52

GIB = 1 << 30
# 16160 MiB are what a V100 with 16 GB shows; 800 MiB go to the CUDA context and to cuDNN's workspaces.
BUDGET_MIB = 16160 - 800
LINK = ["--link-out", 12, "--link-in", 12, "--duplex", 1]  # PCIe 3 x16, both directions at once.
TIME_LIMIT_SECONDS = 300

# Name, least bytes of what is recorded (no value may cross it between the two batches), unit of the batch.
NETWORKS = (("resnet-50", "3KiB", 16), ("resnet-200", "3KiB", 8), ("resnet-1001", "4KiB", 32),
            ("wrn-28-10", "1KiB", 32), ("vgg-16", "1KiB", 8), ("u-net", "1KiB", 1))
RECORDED_BATCHES = (1, 2)
RATIOS, QUICK_RATIOS, TINY_RATIOS = (1.5, 2, 3), (1.5, 3), (1.5,)  # What a step needs over the budget.

# Who measured a V100 in fp32: network, batch, images per second, whether the optimizer counts, source.
MEASURED = (("resnet-50", 128, 367, True,
             "NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, DGX-1 16 GB, one GPU, "
             "container 21.03"),
            ("vgg-16", 16, 16 / 0.0835, False,
             "u39kun/deep-learning-benchmark, PyTorch 0.3, CUDA 9, cuDNN 7.0; without optimizer"))


def times_ours(cell, strategies):
    """Mean of the steps of those that have a plan, over ours; None where nobody has one."""
    steps = [cell["plans"][name]["step_seconds"] for name in strategies if name in cell["plans"]]
    return statistics.fmean(steps) / cell["plans"][OURS]["step_seconds"] if steps else None


def of_bound(cell, strategies):
    """The same of a plan that no other one can beat: what `times_ours` could be at most."""
    mean = times_ours(cell, strategies)
    return mean and mean * cell["plans"][OURS]["step_seconds"] / cell["bound_seconds"]


def name_of(cell):
    return f"{cell['network']}, batch {cell['batch']}"


class KarmaNetworks(report.Benchmark):
    """Predicts only; what is trained are single images, once, to record the operators of the networks."""

    rounds, quick_rounds = 1, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        add = self.parser.add_argument
        add("--record",
            action="store_true",
            help="record the networks anew, into recorded/ of this folder; minutes")
        add("--only", help="one network")
        add("--profiles",
            type=pathlib.Path,
            help="folder to leave the profiles in that the plans are made from")

    def extent(self, results):
        return (
            f"Budget {results['budget_bytes'] / GIB:.2f} GiB, 12 GB/s each way. Predicted times on a modelled V100; "
            "the load of this machine matters to planning seconds and to how far our search comes in its 10 s.")

    def measure(self, options):
        self.spillway = self.program(options, "spillway")
        if options.record:
            self.record(options)
        ratios = TINY_RATIOS if options.tiny else QUICK_RATIOS if options.quick else RATIOS
        names = ([options.only]
                 if options.only else ["wrn-28-10"] if options.tiny else [name for name, _, _ in NETWORKS])
        steps = {name: recorded_step.RecordedStep.load(self.recorded(name)) for name in names}
        cells = []
        for name, step in steps.items():
            cells += self.cells_of(name, step, ratios, options.profiles or options.work)
            print(name, file=sys.stderr, flush=True)
        return {
            "budget_bytes": BUDGET_MIB << 20,
            "cells": cells,
            "measured": [checked(steps[entry[0]], entry) for entry in MEASURED if entry[0] in steps]
        }

    @staticmethod
    def recorded(name):
        return pathlib.Path(__file__).resolve().parent / "recorded" / f"{name}.json.gz"

    def record(self, options):
        trainer = self.program(options, "karma_networks")
        self.recorded("").parent.mkdir(exist_ok=True)
        os.environ["OMP_WAIT_POLICY"] = "passive"  # Times of this machine are not used; threads shall not spin.
        for name, least, _ in NETWORKS:
            if options.only not in (None, name):
                continue
            profiles = []
            for batch in RECORDED_BATCHES:
                file = options.work / f"{name}.{batch}.json"
                training.output_of([
                    self.spillway, "profile", "--quiet", "--min-storage", least, "--out", file, "--", trainer,
                    "--model", name, "--batch", batch, "--steps", 4
                ])
                profiles.append(json.loads(file.read_text(encoding="utf-8")))
            lines = training.output_of([trainer, "--model", name, "--weights"]).splitlines()
            weights = [[line.split()[0], *(int(size) for size in line.split()[1:])] for line in lines]
            for profile in profiles:
                profile["origin"]["program"] = f"karma_networks --model {name}"  # No paths of a machine.
            recorded_step.save(self.recorded(name), recorded_step.joined(profiles, RECORDED_BATCHES, weights))
            print(f"recorded {name}", file=sys.stderr, flush=True)

    def cells_of(self, name, step, ratios, folder):
        folder.mkdir(parents=True, exist_ok=True)
        unit = next(unit for network, _, unit in NETWORKS if network == name)
        cells, batches = [], set()
        for ratio in ratios:
            batch, needed = batch_beyond(step, ratio * (BUDGET_MIB << 20), unit)
            if batch in batches:
                continue
            batches.add(batch)
            file = folder / f"{name}-{batch}.profile.json"
            profile = v100.profile(step, batch)
            file.write_text(json.dumps(profile), encoding="utf-8")
            cell = {
                "network": name,
                "ratio": ratio,
                "batch": batch,
                "operators": len(profile["ops"]["kind"]),
                "needed_bytes": needed,
                "plans": {},
                "refused": {}
            }
            for strategy in STRATEGIES:
                self.plan(cell, strategy, file)
                if "impossible" in cell:
                    break
            cells.append(cell)
        return cells

    def plan(self, cell, strategy, file):
        """One strategy on one profile, into the cell."""
        command = [
            self.spillway, "plan", file, "--budget", f"{BUDGET_MIB}MiB", "--strategy", strategy, "--json", *LINK
        ]
        try:
            done = subprocess.run([str(word) for word in command],
                                  capture_output=True,
                                  text=True,
                                  check=False,
                                  timeout=TIME_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            cell["refused"][strategy] = f"no plan within {TIME_LIMIT_SECONDS} s"
            return
        if done.returncode == 2 and "is too small" in done.stderr:
            cell["impossible"] = done.stderr.strip().partition("error: ")[2]
            return
        if done.returncode == 2 and (reason := refusal_in(done.stderr)):
            cell["refused"][strategy] = reason
            return
        if done.returncode != 0:
            raise training.Failure(f"{file}, {strategy}: exit status {done.returncode}\n{done.stderr}")
        plan = json.loads(done.stdout)
        for key in ("needed_bytes", "smallest_budget_bytes", "incore_seconds"):
            cell[key] = plan[key]
        if plan["is_possible"]:
            cell["bound_seconds"], cell["bound_kind"] = plan["bound_seconds"], plan["bound_kind"]
            cell["plans"][strategy] = plans.kept(plan)
        else:
            cell["refused"][strategy] = plan["refusal"]

    def report(self, results, folder):
        cells = [cell for cell in results["cells"] if OURS in cell["plans"]]
        text = checks_table(results["measured"]) + "\n" + cells_table(results["cells"]) + "\n" + refusals(
            results["cells"])
        text += "\n" + claims_table(cells) + "\n" + verdict(cells) + "\n" + causes_table(cells) + "\n"
        self.plot(cells, folder)
        return text + "![Step over in-core by what it needs](plot.svg)\n"

    def plot(self, cells, folder):
        names = list(dict.fromkeys(cell["network"] for cell in cells))
        figure, axes = report.drawing(3 * len(names), 4, len(names))
        for axis, name in zip(axes[0], names):
            of_network = [cell for cell in cells if cell["network"] == name]
            for strategy in STRATEGIES:
                points = [(cell["needed_bytes"] / GIB,
                           cell["plans"][strategy]["step_seconds"] / cell["incore_seconds"])
                          for cell in of_network if strategy in cell["plans"]]
                if points:
                    ours = strategy == OURS
                    axis.plot(*zip(*points),
                              label=strategy,
                              marker="o",
                              zorder=3 if ours else 2,
                              markersize=5 if ours else 3,
                              linewidth=2.5 if ours else 1,
                              color="black" if ours else None)
            axis.set_yscale("log")
            axis.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"])
            axis.minorticks_off()
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("GiB needed")
        axes[0][0].set_ylabel("predicted step / in-core")
        axes[0][0].legend(fontsize=6)
        report.save(figure, folder / "plot.svg")


def refusal_in(errors):
    """Why a strategy has no plan, whether the budget or the step is to blame; nothing for other errors."""
    if "has no plan" not in errors and "cannot plan this step" not in errors:
        return ""
    return errors.partition("error: ")[2].rpartition(" (")[0]


def needed_bytes(step, batch):
    """Most bytes alive at once: what grows with the batch is affine, so one profile tells it."""
    profile = v100.profile(step, batch)
    values, changes = profile["values"], [0] * (len(profile["ops"]["kind"]) + 1)
    for size, birth, death in zip(values["bytes"], values["birth"], values["death"]):
        changes[max(birth, 0)] += size
        changes[len(changes) - 1 if death == -1 else death + 1] -= size
    alive = most = 0
    for change in changes[:-1]:
        alive += change
        most = max(most, alive)
    return most + profile["small_bytes"]


def batch_beyond(step, goal, unit):
    """The smallest multiple of `unit` that needs more than `goal` bytes, and what it needs."""
    low, high = 0, 1
    while needed_bytes(step, high * unit) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed_bytes(step, middle * unit) < goal else (low, middle)
    return high * unit, needed_bytes(step, high * unit)


def checked(step, entry):
    """What the model of the V100 says of a step that somebody has measured."""
    name, batch, images_per_second, with_optimizer, source = entry
    seconds = v100.times(step, batch)
    last = max(number for number, op in enumerate(step.operators) if op.name.endswith("backward"))
    counted = seconds if with_optimizer else seconds[:last + 1]
    return {
        "network": name,
        "batch": batch,
        "measured": images_per_second,
        "modelled": batch / sum(counted),
        "source": source
    }


def checks_table(measured):
    rows = [[
        entry["network"], entry["batch"], f"{entry['measured']:.0f}", f"{entry['modelled']:.0f}",
        entry["source"]
    ] for entry in measured]
    return report.table(
        ["V100, fp32, in-core", "batch", "images/s measured", "images/s modelled", "measured by"], rows)


def cells_table(cells):
    rows = []
    for cell in cells:
        row = [cell["network"], cell["batch"], cell["operators"], f"{cell['needed_bytes'] / GIB:.1f} GiB"]
        if OURS not in cell["plans"]:
            rows.append([*row, *("–" for _ in range(3 + len(STRATEGIES)))])
            continue
        incore, best = cell["incore_seconds"], best_of(cell, STRATEGIES)[1]
        ours = cell["plans"][OURS]
        row += [f"{incore:.3f} s", f"{ours['gap'] * 100:.1f} %", f"{ours['planning_seconds']:.1f} s"]
        for strategy in STRATEGIES:
            seconds = cell["plans"].get(strategy, {}).get("step_seconds")
            shown = f"{seconds / incore:.3f}" if seconds else "–"
            row.append(f"**{shown}**" if seconds and seconds <= best * (1 + plans.SAME) else shown)
        rows.append(row)
    return report.table(
        ["network", "batch", "operators", "needs", "in-core", "our gap", "our planning", *STRATEGIES],
        rows) + "\nSteps over in-core; bold: nobody is faster; –: no plan.\n"


def refusals(cells):
    lines = [
        f"* {name_of(cell)}: impossible for everybody: {cell['impossible']}\n" for cell in cells
        if "impossible" in cell
    ]
    reasons = {}
    for cell in cells:
        for strategy, reason in cell["refused"].items():
            reasons.setdefault((strategy, reason), []).append(name_of(cell))
    return "".join(lines + [
        f"* {strategy} has no plan for {'; '.join(names)}: {reason}\n"
        for (strategy, reason), names in reasons.items()
    ])


def by_network(cells, ratio):
    """Geometric mean over the batches of each network."""
    found = {}
    for cell in cells:
        value = ratio(cell)
        if value is not None and math.isfinite(value):
            found.setdefault(cell["network"], []).append(value)
    return {name: statistics.geometric_mean(values) for name, values in found.items()}


def claims_of(cells):
    """Columns of the table: what is compared, and its ratio to ours by network."""
    def best(strategies):
        return lambda cell: best_of(cell, strategies)[1] / cell["plans"][OURS]["step_seconds"]

    return {
        "mean of swap-only": by_network(cells, lambda cell: times_ours(cell, SWAP_ONLY)),
        "mean of recompute-only": by_network(cells, lambda cell: times_ours(cell, RECOMPUTE_ONLY)),
        "the same, over the bound": by_network(cells, lambda cell: of_bound(cell, RECOMPUTE_ONLY)),
        "mean of all six": by_network(cells, lambda cell: times_ours(cell, SWAP_ONLY + RECOMPUTE_ONLY)),
        "best of all six": by_network(cells, best(SWAP_ONLY + RECOMPUTE_ONLY)),
        **{
            name: by_network(cells, best((name, )))
            for name in OTHERS
        }
    }


def claims_table(cells):
    claims = claims_of(cells)
    names = list(dict.fromkeys(cell["network"] for cell in cells))
    rows = [[name, *(f"{column[name]:.2f}" if name in column else "–" for column in claims.values())]
            for name in names]
    for label, mean in (("arithmetic mean", statistics.fmean), ("geometric mean", statistics.geometric_mean)):
        rows.append([f"**{label}**", *(f"**{mean(column.values()):.2f}**" for column in claims.values())])
    return report.table(["step over ours", *claims], rows)


def verdict(cells):
    claims = claims_of(cells)
    lines = []
    for name in ("mean of swap-only", "mean of recompute-only", "mean of all six"):
        reached = statistics.fmean(claims[name].values())
        lines.append(
            f"* {CLAIMED} times faster than the {name}: {reached:.2f}, {'yes' if reached >= CLAIMED else '**no**'}\n"
        )
    lost = [f"{name_of(cell)}: {winner} by {share * 100:.2f} %"
            for entry in cells for cell, winner, share in plans.lost_to(entry, STRATEGIES)]
    lines.append(f"* never slower than the best of all: {len(cells) - len(lost)} of {len(cells)}" +
                 (f"; {'; '.join(lost)}" if lost else "") + "\n")
    return "".join(lines)


def causes_table(cells):
    """What our plans do, and whether both means together are needed for it."""
    rows = []
    for cell in cells:
        ours = cell["plans"][OURS]
        swap = best_of(cell, (*SWAP_ONLY, "offload-only"))
        recompute = best_of(cell, RECOMPUTE_ONLY)
        alone = min(swap[1], recompute[1]) / ours["step_seconds"]
        rows.append([
            name_of(cell), f"{ours['swapped_bytes'] / GIB:.1f} GiB",
            f"{ours['recompute_seconds'] / cell['incore_seconds'] * 100:.1f} %",
            f"{swap[0]} {swap[1] / ours['step_seconds']:.2f}",
            f"{recompute[0]} {recompute[1] / ours['step_seconds']:.2f}",
            f"yes, {(alone - 1) * 100:.0f} %" if alone > 1.01 else "no"
        ])
    return report.table([
        "our plan", "moves", "recomputes, of in-core", "best swap-only / ours",
        "best recompute-only / ours", "both together win"
    ], rows)


if __name__ == "__main__":
    KarmaNetworks().run()
