#!/usr/bin/env python3
"""How long do plans of many ranks take? Published profiles on 8 to 4,096 ranks."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import commands, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

# Name, source, file below --reference-data, and what devices may hold where their links are given.
WORKLOADS = (("VGG-16", "pipedream", "pipedream/vgg16.graph.txt", "4GiB"),
             ("ResNet-50", "pipedream", "pipedream/resnet50.graph.txt", "4GiB"),
             ("GNMT", "pipedream", "pipedream/gnmt.graph.txt", "4GiB"),
             ("BERT-32", "piper", "piper/bert32a100.json", "40GB"))
RANKS, QUICK_RANKS, TINY_RANKS = (8, 64, 512, 4096), (8, 512), (4,)
MICRO_BATCHES_PER_RANK = 2
MACHINE = "dgx_h200"
LINKS = ["--link", "12", "--link-out", "12", "--link-in", "12"]
SETTINGS = {"links": "full devices, 12 GB/s each way", "machine": f"on `{MACHINE}`"}


class ManyRanks(report.Benchmark):
    """Runs `spillway plan-job` with everything left open: schedule and its options, data-parallel replicas,
    cuts, order."""

    rounds, quick_rounds = 3, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--reference-data", type=pathlib.Path,
                                 help="folder with pipedream/ and piper/, of which all profiles are")

    def extent(self, results):
        return f"Rounds: {results['rounds']}; median [lowest–highest]. No command may take more than {commands.LIMITS}."

    def measure(self, options):
        if options.reference_data is None:
            raise training.Failure("there is nothing to plan: name the folder with pipedream/ and piper/ by "
                                   "--reference-data")
        spillway = self.program(options, "spillway")
        workloads = WORKLOADS[:1] if options.tiny else WORKLOADS
        sizes = TINY_RANKS if options.tiny else QUICK_RANKS if options.quick else RANKS
        cells = []
        for name, source, file, memory in workloads:
            profile = options.work / f"{source}.profile.json"
            training.output_of([spillway, "profile", "--import", source, options.reference_data / file,
                                "--out", profile])
            settings = {"links": [*LINKS, "--device-memory", memory], "machine": ["--cluster", MACHINE]}
            for ranks in sizes:
                for setting, words in settings.items():
                    command = [spillway, "plan-job", profile, "--ranks", ranks, "--micro-batches",
                               MICRO_BATCHES_PER_RANK * ranks, "--json", *words]
                    cells.append({"workload": name, "memory": memory, "ranks": ranks, "setting": setting,
                                  **self.planned(command, f"{name}, {ranks} ranks, {setting}", options.rounds)})
        return {"cells": cells}

    @staticmethod
    def planned(command, what, rounds):
        cell = {"processor": [], "memory": []}
        for _ in range(rounds):
            child = commands.Child.run(command)
            over = child.over(what)
            if over:
                return {"over": over}
            plan = json.loads(child.output)
            cell["processor"].append(child.processor_seconds)
            cell["memory"].append(child.memory_bytes)
            cell.update({key: plan[key] for key in ("schedule", "variant", "data_parallel", "step_seconds", "gap")})
            print(f"{what}: {child.processor_seconds:.2f} s", file=sys.stderr, flush=True)
        return cell

    def report(self, results, folder):
        text = ""
        cells = results["cells"]
        for setting, words in SETTINGS.items():
            rows = [self.row(cell) for cell in cells if cell["setting"] == setting]
            text += f"{words[0].upper()}{words[1:]}:\n\n"
            text += report.table(["profile", "ranks", "whole command", "memory", "plan", "over the bound"], rows) + "\n"
        self.plot(cells, folder)
        return text + "![Time by ranks](plot.svg)\n"

    @staticmethod
    def row(cell):
        head = [cell["workload"], f"{cell['ranks']:,}"]
        if "over" in cell:
            return [*head, cell["over"], "–", "–", "–"]
        variant = f":{cell['variant']}" if cell["variant"] else ""
        return [*head, spread.Spread(cell["processor"]).shown() + " s", f"{max(cell['memory']) / 2**20:.0f} MiB",
                f"`{cell['schedule']}{variant}`, {cell['data_parallel']:,} × {cell['ranks'] // cell['data_parallel']}",
                f"{cell['gap'] * 100:.1f} %"]

    @staticmethod
    def plot(cells, folder):
        figure, axes = report.drawing(9, 4, len(SETTINGS))
        for axis, (setting, words) in zip(axes[0], SETTINGS.items()):
            for name, *_ in WORKLOADS:
                points = [(cell["ranks"], spread.Spread(cell["processor"]).median) for cell in cells
                          if cell["workload"] == name and cell["setting"] == setting and "over" not in cell]
                if points:
                    axis.plot(*zip(*points), marker="o", label=name)
            axis.set_title(words.replace("`", ""), fontsize=9)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("ranks")
            axis.set_ylabel("seconds")
            axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    ManyRanks().run()
