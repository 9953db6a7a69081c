#!/usr/bin/env python3
"""How good are the plans? Every strategy beside a proven bound, on recorded steps and on published traces."""
import collections
import dataclasses
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, disk, plans, profiles, report, training  # noqa: E402  pylint: disable=wrong-import-position
from measure.plans import OURS, RECOMPUTE_ONLY, best_of  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import as_option  # noqa: E402  pylint: disable=wrong-import-position

SWAP_ONLY = ("offload-only", "swap-all", "demand", "belady")
BOTH = ("capuchin", "karma")
STRATEGIES = (OURS, "offload-only", "capuchin", "karma", "dtr", "rotor", "checkpoint-sqrt", "swap-all",
              "belady", "demand")
MEDIAN_GOAL, WORST_GOAL = 0.05, 0.15


@dataclasses.dataclass(frozen=True)
class Link:
    """What leads out of memory, and the options that say so."""

    name: str
    options: tuple


def both_ways(rate):
    """A link of so many GB/s out and in, both at once."""
    return Link(f"{rate:g} GB/s", ("--link-out", rate, "--link-in", rate))


LINKS = (both_ways(12), both_ways(25), both_ways(50))
PERCENTS = (80, 60, 40, 20)

# Name, format and file below --reference-data.
TRACES = (("VGG-16", "pipedream", "pipedream/vgg16.graph.txt"),
          ("ResNet-50", "pipedream", "pipedream/resnet50.graph.txt"),
          ("DenseNet-121", "pipedream", "pipedream/densenet121.graph.txt"),
          ("DenseNet-121, DTR", "dtr", "dtr/densenet121-b84.log"),
          ("U-Net, DTR", "dtr", "dtr/unet-b6.log"))
EXAMPLES = {"brain_unet": cases.Case("brain_unet", "brain_unet",
                                     ("--patch", "96x96x96", "--kernel", "factored")),
            "photo_net": cases.Case("photo_net", "photo_net", ("--crop", "512x512", "--blocks", "4")),
            "text_gpt": cases.TEXT_ACTIVATIONS}


@dataclasses.dataclass(frozen=True)
class Published:
    """What DTR's authors measured on a Titan V: the plain step, and its time at budgets in GB."""

    trace: str
    plain_ms: float
    ms: dict


# Tables of the artifact of Kirisame et al., ICLR 2021 (uwsampl/dtr-prototype).
PUBLISHED = (Published("DenseNet-121, DTR", 344, {10: 398, 8: 420, 6: 444, 4: 522}),
             Published("U-Net, DTR", 419, {8: 446, 7: 455, 6: 477, 4: 522}))
# At 12 GB/s equal is enough.
PUBLISHED_LINKS = LINKS[:2]


# A plain chain whose link is so slow that only recomputation helps; long, so that a search has to be quick.
CHAIN_LINK, CHAIN_PERCENTS = both_ways(0.25), (25, 10, 5)
CHAIN_LAYERS, CHAIN_PAGE = (500, 2500), 2 << 20


def plain_chain(layers):
    """A profile: per layer one page, 1 ms of forward, which may run again, and 2 ms of backward."""
    values = [(-1, -1, 0, profiles.INPUT),
              *((layer, 2 * layers - 1 - layer, -1, profiles.ACTIVATION) for layer in range(layers))]
    uses = [[layer] for layer in range(layers)]  # Value 0 is the input, layer i makes value i + 1.
    for layer in reversed(range(layers)):
        slope = [len(values) - 1] if layer < layers - 1 else []
        uses.append([layer, layer + 1, *slope])
        if layer > 0:
            values.append((len(uses) - 1, len(uses), -1, profiles.ACTIVATION))
    births, deaths, becomes, classes = zip(*values)
    backward = [number >= layers for number in range(2 * layers)]
    ops = {"kind": [int(is_back) for is_back in backward],
           "time_ns": [2_000_000 if is_back else 1_000_000 for is_back in backward],
           "inside_peak_pages": [1] * (2 * layers - 1) + [0],
           "replayable": [int(not is_back) for is_back in backward]}
    columns = {"bytes": [CHAIN_PAGE] * len(values), "birth": births, "death": deaths,
               "becomes": becomes, "class": classes}
    return json.dumps(profiles.profile(f"chain of {layers} layers", [("forward", ""), ("backward", "")],
                                       ops, [[(value, False) for value in used] for used in uses],
                                       columns, page_bytes=CHAIN_PAGE))


def over_bound(plan):
    return 1 + plan["gap"]


def name_of(cell):
    return f"{cell['step']} at {cell['percent']} %, {cell['link']}"


class GoodPlans(report.Benchmark):
    """Runs `spillway plan`, which predicts; nothing is trained but what is profiled."""

    rounds, quick_rounds = 1, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        add = self.parser.add_argument
        add("--reference-data", type=pathlib.Path,
            help="folder with pipedream/ and dtr/; without it the published traces are left out")
        add("--profiles", type=pathlib.Path,
            help="folder with the profiles of the examples (NAME.json), instead of recording them now")
        add("--effort", type=float, help="seconds for our own search per plan [2; --quick: 0.5]")

    def extent(self, results):
        return (f"Our own search: at most {results['effort']} s per plan; bounds: {results['bound']}. "
                f"{disk.told(results['rates'])}. Predicted times, nothing was trained.")

    def measure(self, options):
        self.spillway = self.program(options, "spillway")
        self.effort = options.effort or (0.05 if options.tiny else 0.5 if options.quick else 2)
        self.bound = "quick" if options.tiny else "tight"
        steps, skipped = self.profiles(options)
        percents = (60,) if options.tiny else (60, 20) if options.quick else PERCENTS
        rates_file = options.work / "disks.json"
        rates = disk.bench_io(options, rates_file)
        this_disk = Link("this disk", ("--rates", rates_file))
        links = LINKS[:1] if options.tiny else (*(LINKS[:1] if options.quick else LINKS), this_disk)
        cells = []
        for name, profile in steps.items():
            for percent in percents:
                cells += [{"step": name, "percent": percent, "link": link.name,
                           **self.planned(profile, f"{percent}%", link)} for link in links]
            print(name, file=sys.stderr, flush=True)
        return {"effort": self.effort, "rates": rates, "bound": self.bound, "skipped": skipped, "cells": cells,
                "chains": self.chains(options),
                "steps": {name: self.facts(profile) for name, profile in steps.items()},
                "published": [] if options.tiny else self.published_rows(steps)}

    def chains(self, options):
        """Cells of plain chains; their bound is the quick one, for a program of 5,000 operators takes minutes."""
        cells = []
        for layers in CHAIN_LAYERS[:1] if options.tiny or options.quick else CHAIN_LAYERS:
            profile = options.work / f"chain-{layers}.json"
            profile.write_text(plain_chain(layers), encoding="utf-8")
            cells += [{"step": f"chain of {2 * layers:,} operators", "percent": percent, "link": CHAIN_LINK.name,
                       **self.planned(profile, f"{percent}%", CHAIN_LINK, "quick")} for percent in CHAIN_PERCENTS]
        return cells

    def profiles(self, options):
        """Files by name, and what is missing with its reason."""
        files, skipped = {}, {}
        for name, kind, path in TRACES:
            trace = options.reference_data / path if options.reference_data else None
            if trace is None or not trace.exists():
                skipped[name] = (f"{path} is not there" if trace
                                  else "no --reference-data that holds the published traces")
                continue
            files[name] = options.work / f"{len(files)}.json"
            training.output_of([self.spillway, "profile", "--import", kind, trace, "--out", files[name]])
        for name, case in EXAMPLES.items():
            files[name] = options.work / f"{name}.json"
            if options.profiles:
                stored = options.profiles / f"{name}.json"
                if not stored.exists():
                    raise training.Failure(f"{stored} does not exist: record it with `spillway profile`, "
                                           "or leave --profiles out")
                shutil.copy(stored, files[name])
            else:
                case = cases.TINY[cases.TEXT_ACTIVATIONS] if options.tiny else case
                trainer = [self.program(options, case.program), *case.flags, "--steps", 7]
                training.output_of([self.spillway, "profile", "--quiet", "--out", files[name], "--", *trainer])
            if options.tiny:
                files = {name: files[name]}
                break
        return files, skipped

    @staticmethod
    def run_command(command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)

    def facts(self, profile):
        """What the step is, from a plan with all of the memory."""
        text = training.output_of([self.spillway, "plan", profile, "--budget", "100%", "--strategy", "belady",
                                   "--json", *LINKS[0].options])
        plan = json.loads(text)
        return {"operators": plan["profile"]["operators"], "needed_bytes": plan["needed_bytes"],
                "smallest_budget_bytes": plan["smallest_budget_bytes"],
                "incore_seconds": plan["incore_seconds"]}

    def planned(self, profile, budget, link, bound=None):
        """The plans of all strategies that have one, by name, or why there is none at all."""
        done = self.run_command([self.spillway, "plan", profile, "--budget", budget, "--strategy", "all",
                                 "--json", "--effort", self.effort, "--bound", bound or self.bound,
                                 *link.options])
        if done.returncode == 2 and "is too small" in done.stderr:
            return {"plans": {}, "refusal": done.stderr.strip().partition("error: ")[2]}
        if done.returncode != 0:
            raise training.Failure(f"{profile} at {budget}: exit status {done.returncode}\n{done.stderr}")
        told = json.loads(done.stdout)
        possible = [plan for plan in told if plan["is_possible"]]
        return {"incore_seconds": told[0]["incore_seconds"],
                "bound_kind": possible[0]["bound_kind"] if possible else "",
                "bound_seconds": possible[0]["bound_seconds"] if possible else 0,
                "plans": {plan["strategy"]: plans.kept(plan) for plan in possible}}

    def published_rows(self, steps):
        return [{"trace": published.trace, "gb": gb, "dtr": ms / published.plain_ms,
                 "ours": {link.name: self.slowdown(steps[published.trace], gb, link)
                          for link in PUBLISHED_LINKS}}
                for published in PUBLISHED if published.trace in steps
                for gb, ms in published.ms.items()]

    def slowdown(self, profile, gigabytes, link):
        text = training.output_of([self.spillway, "plan", profile, "--budget", as_option(int(gigabytes * 1e9)),
                                   "--json", "--effort", self.effort, *link.options])
        plan = json.loads(text)
        return {"slowdown": plan["step_seconds"] / plan["incore_seconds"], "gap": plan["gap"],
                "swapped_bytes": plan["swapped_bytes"], "recompute_seconds": plan["recompute_seconds"]}

    def report(self, results, folder):
        cells = [cell for cell in results["cells"] if cell["plans"]]
        text = steps_table(results) + "\n" + strategies_table(cells) + "\n" + lost_cells(cells) + "\n"
        if results.get("chains"):
            text += chains_table(results["chains"]) + "\n" + lost_cells(results["chains"]) + "\n"
        text += gaps_text(cells) + "\n" + classes_table(cells) + "\n"
        if results["published"]:
            text += published_table(results["published"]) + "\n"
        (folder / "cells.md").write_text(cells_page(results), encoding="utf-8")
        self.plot(cells, folder)
        return text + "[All cells](cells.md)\n\n![Time over bound by budget](plot.svg)\n"

    def plot(self, cells, folder):
        links = list(dict.fromkeys(cell["link"] for cell in cells))
        percents = sorted({cell["percent"] for cell in cells}, reverse=True)
        figure, axes = report.drawing(4 * len(links), 4, len(links))
        for axis, link in zip(axes[0], links):
            for strategy in STRATEGIES:
                points = []
                for place, percent in enumerate(percents):
                    over = [over_bound(cell["plans"][strategy]) for cell in cells
                            if cell["link"] == link and cell["percent"] == percent
                            and strategy in cell["plans"]]
                    points += [(place, statistics.median(over))] if over else []
                ours = strategy == OURS
                axis.plot(*zip(*points), label=strategy, marker="o", zorder=3 if ours else 2,
                          markersize=5 if ours else 3, linewidth=2.5 if ours else 1,
                          color="black" if ours else None)
            axis.set_yscale("log")
            axis.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"])
            axis.minorticks_off()
            axis.set_xticks(range(len(percents)), [f"{percent} %" for percent in percents])
            axis.set_title(f"{link}: median over the steps", fontsize=9)
        axes[0][0].set_ylabel("predicted step / bound")
        axes[0][0].legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


def steps_table(results):
    rows = [[name, step["operators"], f"{step['needed_bytes'] / 2**30:.2f} GiB",
             f"{step['smallest_budget_bytes'] / step['needed_bytes'] * 100:.0f} %",
             f"{step['incore_seconds']:.3f} s"] for name, step in results["steps"].items()]
    text = report.table(["step", "operators", "needs", "smallest budget", "in-core"], rows)
    for why in dict.fromkeys(results["skipped"].values()):
        names = [name for name, reason in results["skipped"].items() if reason == why]
        text += f"\nLeft out: {', '.join(names)}: {why}.\n"
    impossible = [cell for cell in results["cells"] if not cell["plans"]]
    if impossible:
        names = dict.fromkeys(f"{cell['step']} at {cell['percent']} %" for cell in impossible)
        text += (f"\nNo plan is possible, because one operator needs more at once: {'; '.join(names)}. "
                 f"{len(results['cells']) - len(impossible)} cells remain.\n")
    return text


def strategies_table(cells):
    rows = []
    for strategy in STRATEGIES:
        over = [over_bound(cell["plans"][strategy]) for cell in cells if strategy in cell["plans"]]
        best = sum(cell["plans"][strategy]["step_seconds"] <= best_of(cell, STRATEGIES)[1] * (1 + plans.SAME)
                   for cell in cells if strategy in cell["plans"])
        if over:
            rows.append([strategy, len(over), f"{statistics.median(over):.3f}", f"{max(over):.2f}", best])
    return report.table(["strategy", "cells with a plan", "step / bound, median", "worst",
                         "cells where none is faster"], rows)


def lost_cells(cells):
    lost = [entry for cell in cells for entry in plans.lost_to(cell, STRATEGIES)]
    text = f"Goal, ours best in every cell: {len(cells) - len(lost)} of {len(cells)}.\n"
    if lost:
        rows = [[name_of(cell), winner, f"{share * 100:.2f} %", f"{cell['plans'][OURS]['gap'] * 100:.1f} %"
                 if OURS in cell["plans"] else "no plan"] for cell, winner, share in
                sorted(lost, key=lambda entry: -entry[2])]
        text += "\n" + report.table(["cell where ours is not best", "winner", "ours takes longer by",
                                     "our gap"], rows)
    return text


def chains_table(cells):
    rows = []
    for cell in cells:
        winner, seconds = best_of(cell, [name for name in STRATEGIES if name != OURS])
        rows.append([cell["step"], f"{cell['percent']} %",
                     f"{cell['plans'][OURS]['step_seconds'] / cell['incore_seconds']:.3f}",
                     f"{seconds / cell['incore_seconds']:.3f}, {winner}"])
    return report.table([f"plain chains, {cells[0]['link']}", "budget", "ours / in-core", "best other"], rows)


def gaps_text(cells):
    """Ours over the bound. Whether a bound is attainable is not known, so all cells count."""
    planned = [cell for cell in cells if OURS in cell["plans"]]
    rows = []
    for link in dict.fromkeys(cell["link"] for cell in planned):
        of_link = [cell for cell in planned if cell["link"] == link]
        gaps = [cell["plans"][OURS]["gap"] for cell in of_link]
        worst = max(of_link, key=lambda cell: cell["plans"][OURS]["gap"])
        rows.append([link, f"{statistics.median(gaps) * 100:.2f} %", f"{max(gaps) * 100:.1f} %",
                     f"{worst['step']} at {worst['percent']} %",
                     f"{sum(gap > WORST_GOAL for gap in gaps)} of {len(gaps)}"])
    gaps = [cell["plans"][OURS]["gap"] for cell in planned]
    median = statistics.median(gaps)
    text = report.table(["our gap to the bound", "median", "worst", "where", "above 15 %"], rows)
    text += (f"\nAll cells: median {median * 100:.2f} % (goal {report.against_goal(median, MEDIAN_GOAL)}), "
             f"worst {max(gaps) * 100:.1f} % (goal {report.against_goal(max(gaps), WORST_GOAL)}).")
    wide = [cell for cell in planned if cell["plans"][OURS]["gap"] > WORST_GOAL]
    if wide:
        text += " Above 15 %: " + "; ".join(f"{name_of(cell)} {cell['plans'][OURS]['gap'] * 100:.0f} % "
                                            f"({cell['bound_kind']})" for cell in wide) + "."
    return text + "\n"


def classes_table(cells):
    """How much faster ours is than the best of each class of strategies; geometric means."""
    rows = []
    for link in dict.fromkeys(cell["link"] for cell in cells):
        row = [link]
        of_link = [cell for cell in cells if cell["link"] == link and OURS in cell["plans"]]
        for strategies in (SWAP_ONLY, RECOMPUTE_ONLY, BOTH, SWAP_ONLY + RECOMPUTE_ONLY):
            ratios = [best_of(cell, strategies)[1] / cell["plans"][OURS]["step_seconds"] for cell in of_link]
            ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
            row.append(f"{statistics.geometric_mean(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]")
        counts = collections.Counter(
            best_of(cell, SWAP_ONLY + RECOMPUTE_ONLY)[1] > 1.01 * cell["plans"][OURS]["step_seconds"]
            for cell in of_link)
        rows.append([*row, f"{counts[True]} of {len(of_link)}"])
    return report.table(["best of these / ours", "swap only", "recompute only", "capuchin, karma",
                         "swap only or recompute only", "both together win by > 1 %"], rows)


def published_table(rows):
    names = list(rows[0]["ours"])
    shown = []
    for row in rows:
        marks = []
        for name in names:
            slowdown, beaten = row["ours"][name]["slowdown"], row["ours"][name]["slowdown"] <= row["dtr"]
            marks.append(f"{slowdown:.3f}" if beaten else f"**{slowdown:.3f}**")
        shown.append([row["trace"], f"{row['gb']} GB", f"{row['dtr']:.2f}", *marks])
    reached = sum(row["ours"][name]["slowdown"] <= row["dtr"] for row in rows for name in names)
    return (report.table(["trace", "budget", "DTR, measured by its authors",
                          *(f"ours, simulated, {name}" for name in names)], shown)
            + f"\nNot slower than DTR measured: {reached} of {len(rows) * len(names)}.\n")


def cells_page(results):
    """Time over bound of every strategy in every cell, the best in bold."""
    rows = []
    for cell in results["cells"]:
        row = [cell["step"], f"{cell['percent']} %", cell["link"]]
        if not cell["plans"]:
            rows.append([*row, "impossible", *("–" for _ in STRATEGIES)])
            continue
        best = best_of(cell, STRATEGIES)[1]
        row.append(f"{cell['bound_seconds'] / cell['incore_seconds']:.3f}, {cell['bound_kind']}")
        for strategy in STRATEGIES:
            plan = cell["plans"].get(strategy)
            shown = f"{over_bound(plan):.3f}" if plan else "–"
            is_best = plan and plan["step_seconds"] <= best * (1 + plans.SAME)
            row.append(f"**{shown}**" if is_best else shown)
        rows.append(row)
    return ("# Predicted step over bound, by cell\n\nWritten by main.py; the [README](README.md) says how. "
            "Bold: nobody is faster. –: no plan.\n\n"
            + report.table(["step", "budget", "link", "bound / in-core", *STRATEGIES], rows))


if __name__ == "__main__":
    GoodPlans().run()
