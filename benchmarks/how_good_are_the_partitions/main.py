#!/usr/bin/env python3
"""How good are the partitions? Ours beside published partitioners: time, memory, and the largest model that fits."""
import json
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from measure import report, training  # noqa: E402  pylint: disable=wrong-import-position
import largest_models  # noqa: E402  pylint: disable=wrong-import-position

OURS = "spillway"
PROGRAM = "spillway_how_good_are_the_partitions"
SAME = 1e-8  # Relative; the program itself compares more closely.

PIPER = "piper/bert32a100.json"
# Name, source and file below --reference-data.
WORKLOADS = (("AlexNet", "pipedream", "pipedream/alexnet.graph.txt"),
             ("VGG-16", "pipedream", "pipedream/vgg16.graph.txt"),
             ("ResNet-50", "pipedream", "pipedream/resnet50.graph.txt"),
             ("DenseNet-121", "pipedream", "pipedream/densenet121.graph.txt"),
             ("GNMT", "pipedream", "pipedream/gnmt.graph.txt"),
             ("BERT-32", "piper", PIPER),
             ("BERT-48L", "vpipe", None))
# Of which workload, how the names of the layers begin that are repeated, and parts of the published micro-batch.
GROWING = {"BERT": ("BERT-32", "ParallelTransformerLayer", 1), "ResNet": ("ResNet-50", "Conv2d(1024, 256", 16)}
REDUCED = ("BERT",)  # With memory reduction the others grow beyond 100,000 layers before weights alone limit them.
BATCHES = ("VGG-16", "GNMT", "BERT-32")


class GoodPartitions(report.Benchmark):
    """Runs a program that plans; nothing is trained, and all figures come out the same each time."""

    rounds, quick_rounds = 1, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--reference-data", type=pathlib.Path,
                                 help="folder with pipedream/ and piper/; without it the published profiles are "
                                      "left out")

    def extent(self, results):
        return "All figures are planned, none is measured: they do not depend on the machine."

    def measure(self, options):
        self.planner = self.program(options, PROGRAM)
        self.is_quick = options.quick or options.tiny
        files, skipped = {}, {}
        for name, _, path in WORKLOADS:
            file = options.reference_data / path if path and options.reference_data else None
            if path and (file is None or not file.exists()):
                skipped[name] = f"{path} is not there" if file else "no --reference-data that holds it"
            else:
                files[name] = file
        sources = {name: source for name, source, _ in WORKLOADS}
        results = {"skipped": skipped, "plans": self.figures("plans"), "cells": {}, "layers": {},
                   "without_memory_reduction": {},
                   "batch": {}}
        for name, file in files.items():
            results["cells"][name] = self.figures("cells", sources[name], file)
        if "BERT-32" in files:
            results["piper"] = self.figures("piper", sources["BERT-32"], files["BERT-32"])
        for name, (workload, block, parts) in GROWING.items():
            if workload not in files or options.tiny:
                continue
            source = sources[workload], files[workload]
            if name in REDUCED:
                results["layers"][name] = self.figures("layers", *source, block)
            results["without_memory_reduction"][name] = self.figures("without_memory_reduction", *source, block, parts)
        for name in BATCHES:
            if name in files and not options.tiny:
                results["batch"][name] = self.figures("batch", sources[name], files[name])
        return results

    def figures(self, what, *words):
        print(what, *words, file=sys.stderr, flush=True)
        quick = ["--quick"] if self.is_quick else []
        return json.loads(training.output_of([self.planner, *quick, what, *(word or "" for word in words)]))

    def report(self, results, folder):
        cells = [{"workload": name, **cell} for name, all_cells in results["cells"].items() for cell in all_cells]
        (folder / "cells.md").write_text(cells_page(cells), encoding="utf-8")
        text = skipped_text(results) + strategies_table(cells) + "\n" + lost_cells(cells) + "\n" + gaps_text(cells)
        text += "\n[All cells](cells.md)\n\n" + published_table(results["plans"]) + "\n"
        if "piper" in results:
            text += piper_table(results["piper"]) + "\n"
        if results["layers"]:
            (folder / "largest.md").write_text(largest_models.page(results), encoding="utf-8")
            text += largest_models.summary(results) + "\n[All sizes](largest.md)\n\n"
        self.plot(cells, results, folder)
        return text + "![Time by memory, and the largest models](plot.svg)\n"

    def plot(self, cells, results, folder):
        columns = 3 if results["layers"] else 1
        figure, axes = report.drawing(5 * columns, 4.2, columns)
        draw_times([cell for cell in cells if not cell["swaps"]], axes[0][0])
        if results["layers"]:
            largest_models.draw(results, axes[0][1], axes[0][2])
        report.save(figure, folder / "plot.svg")


def strategies_of(cells):
    """Ours first, the others by name."""
    return [OURS, *sorted({name for cell in cells for name in cell["seconds"]} - {OURS})]


def ratios(cells, key, name):
    """Over ours, in the cells where it has a figure and ours is not nothing."""
    return [cell[key][name] / cell[key][OURS] for cell in cells if name in cell[key] and cell[key][OURS]]


def is_best(cell, key, name):
    return name in cell[key] and cell[key][name] <= min(cell[key].values()) * (1 + SAME)


def middle_and_worst(values, digits=3):
    return f"{statistics.median(values):.{digits}f} [{max(values):.2f}]" if values else "–"


def strategies_table(cells):
    rows = []
    swaps = [cell for cell in cells if cell["swaps"]]
    plain = [cell for cell in cells if not cell["swaps"]]
    for name in strategies_of(cells):
        rows.append([f"`{name}`", sum(name in cell["seconds"] for cell in cells),
                     middle_and_worst(ratios(plain, "seconds", name)),
                     middle_and_worst(ratios(swaps, "seconds", name)),
                     sum(is_best(cell, "seconds", name) for cell in cells),
                     sum(name in cell["bytes"] for cell in cells), middle_and_worst(ratios(cells, "bytes", name)),
                     sum(is_best(cell, "bytes", name) for cell in cells)])
    return report.table(["partitioner", f"fits, of {len(cells)} cells", "time / ours, no swaps: median [worst]",
                         "with swaps", "nobody is faster", "keeps our time in", "memory / ours there",
                         "nobody needs less"], rows)


def name_of(cell):
    return (f"{cell['workload']}, {cell['stages']} stages, {'12 GB/s' if cell['swaps'] else 'no swaps'}, "
            f"{cell['memory_bytes'] / 1e9:.3g} GB")


def lost_cells(cells):
    """Where ours is not best, in time and in memory."""
    rows = []
    for key, what in (("seconds", "time"), ("bytes", "memory")):
        for cell in cells:
            if not is_best(cell, key, OURS):
                winner = min(cell[key], key=cell[key].get)
                rows.append([name_of(cell), what, f"`{winner}`",
                             f"{(cell[key][OURS] / cell[key][winner] - 1) * 100:.4f} %"])
    counts = [sum(is_best(cell, key, OURS) for cell in cells) for key in ("seconds", "bytes")]
    text = (f"Goal, ours never worse: {counts[0]} of {len(cells)} cells in time at equal memory, {counts[1]} of "
            f"{len(cells)} in memory at equal time.\n")
    return text + ("\n" + report.table(["cell where ours is not best", "in", "winner", "by"], rows) if rows else "")


def best_other(cell, key):
    return min((value for name, value in cell[key].items() if name != OURS), default=math.inf)


def gaps_text(cells):
    """Ours over what no cuts can beat, and what its first cuts come to alone."""
    rows = []
    for name, chosen in (("no swaps", [cell for cell in cells if not cell["swaps"]]),
                         ("with swaps", [cell for cell in cells if cell["swaps"]])):
        for key, what in (("seconds", "time at equal memory"), ("bytes", "memory at equal time")):
            if not chosen:
                continue
            over = [cell[key][OURS] / cell["bound_" + key] - 1 for cell in chosen if cell["bound_" + key]]
            first = [cell["first_" + key] / cell[key][OURS] - 1 for cell in chosen if cell[key][OURS]]
            behind = sum(cell["first_" + key] > best_other(cell, key) * (1 + SAME) for cell in chosen)
            rows.append([f"{what}, {name}", len(chosen),
                         *(f"{statistics.median(values) * 100:.3f} % [{max(values) * 100:.2f} %]"
                           for values in (over, first)), sum(value > SAME for value in first), behind])
    return report.table(["ours", "cells", "over the bound of fractions: median [worst]", "its first cuts over it",
                         "first cuts bettered in", "first cuts behind another's in"], rows)


def skipped_text(results):
    reasons = [f"{name} ({reason})" for name, reason in results["skipped"].items()]
    return f"Left out: {', '.join(reasons)}.\n\n" if reasons else ""


def published_table(plans):
    rows = []
    for plan in plans:
        before_loss = plan["seconds"][:-1]
        rows.append([plan["plan"], plan["whose"], " ".join(f"{blocks:.0f}" for blocks in plan["blocks"]),
                     " ".join(f"{share:.2f}".lstrip("0") if 0 < share < 1 else f"{share:.0f}"
                              for share in plan["recomputed"]),
                     f"{max(plan['seconds']):.2f}", f"{(max(before_loss) / min(before_loss) - 1) * 100:.1f} %",
                     f"{max(plan['stash']):.1f}", f"{sum(plan['stash']):.0f}"])
    return report.table(["BERT-48L, 8 stages", "whose", "blocks", "recomputed", "slowest stage",
                         "spread without the last stage", "most stash", "all stash"], rows)


def piper_table(rows):
    def shown(value):
        return "fits not" if value is None else f"{value * 1e3:.2f} ms"

    def faster(row):
        return f"{(1 - row['ours'] / row['piper']) * 100:.2f} %" if row["piper"] and row["ours"] else "–"

    lines = [[row["stages"], f"{row['gigabytes']} GB", shown(row["piper"]), shown(row["ours"]), faster(row),
              shown(row["ours_with_swaps"])] for row in rows if row["ours_with_swaps"] is not None]
    return report.table(["BERT-32, stages", "devices", "Piper's optimum", "ours, recomputation alone", "less by",
                         "ours, with swaps at 12 GB/s"], lines)


def over_bound(cell, key, name):
    """Of bytes the bound may be nothing: all is recomputed."""
    if name not in cell[key]:
        return "–"
    bound = cell["bound_" + key]
    return f"{cell[key][name] / bound:.3f}" if bound else f"{cell[key][name]:.0f} B over 0"


def cells_page(cells):
    names = strategies_of(cells)
    text = ("# Time and memory, by cell\n\nWritten by main.py; the [README](README.md) says how. First the time over "
            "the bound at equal memory, then the memory over the bound at the time of ours. Bold: nobody is better. "
            "–: no cuts that fit, or none as quick.\n")
    for key in ("seconds", "bytes"):
        rows = []
        for cell in cells:
            row = [name_of(cell)]
            for name in names:
                shown = over_bound(cell, key, name)
                row.append(f"**{shown}**" if is_best(cell, key, name) else shown)
            rows.append(row)
        text += "\n" + report.table([f"{key} over the bound", *names], rows)
    return text


def draw_times(cells, axis):
    shares = sorted({cell["share"] for cell in cells})
    for name in strategies_of(cells):
        points = []
        for place, share in enumerate(shares):
            over = [cell["seconds"][name] / cell["bound_seconds"] for cell in cells
                    if cell["share"] == share and name in cell["seconds"]]
            points += [(place, statistics.median(over))] if over else []
        axis.plot(*zip(*points), label=name, **largest_models.style(name))
    axis.set_yscale("log")
    axis.set_yticks([1, 1.2, 1.5, 2, 3], ["1", "1.2", "1.5", "2", "3"])
    axis.minorticks_off()
    axis.set_xticks(range(len(shares)), [f"{share * 100:.0f} %" for share in shares])
    axis.set_xlabel("memory, from the smallest devices to more than enough")
    axis.set_title("slowest stage / bound, median, recomputation alone", fontsize=9)
    axis.legend(fontsize=6)


if __name__ == "__main__":
    GoodPartitions().run()
