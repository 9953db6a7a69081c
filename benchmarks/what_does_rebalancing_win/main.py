#!/usr/bin/env python3
"""What does re-balancing win? Published profiles on 8 ranks, whose times drift behind the plan."""
import json
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, training  # noqa: E402  pylint: disable=wrong-import-position

# Name, source, file below --reference-data, and what full devices may hold.
WORKLOADS = (("VGG-16", "pipedream", "pipedream/vgg16.graph.txt", "4GiB"),
             ("ResNet-50", "pipedream", "pipedream/resnet50.graph.txt", "3GiB"),
             ("GNMT", "pipedream", "pipedream/gnmt.graph.txt", "600MiB"),
             ("BERT-32", "piper", "piper/bert32a100.json", "40GB"))
RANKS, MICRO_BATCHES = 8, 16
JOB = ["--ranks", RANKS, "--micro-batches", MICRO_BATCHES, "--schedule", "1f1b", "--link", "12"]
HOST = ["--link-out", "12", "--link-in", "12"]
SETTINGS = {"ample": "devices of any size", "full": "full devices"}
SLOWER, DEVIATION, DRAWS = (1.10, 1.25, 1.50), 0.25, 8
ANY_LAYER = "all layers, random"


def slowed(profile, factors):
    """The profile with the times of its layers, forward and backward, times these factors."""
    names = [profile["kinds"]["name"][kind] for kind in profile["ops"]["kind"]]
    layers = len(factors)
    parts, rest = divmod(len(names) - layers, layers)
    times = list(profile["ops"]["time_ns"])
    for layer, factor in enumerate(factors):
        begin = layers + parts * (layers - 1 - layer)  # Backward runs from the last layer on.
        places = [layer, *range(begin, begin + parts)]
        if rest or any(not names[place].startswith(names[layer]) for place in places):
            raise training.Failure(f"{names[layer]} #{layer} has no backward where one is expected")
        for place in places:
            times[place] = round(times[place] * factor)
    return {**profile, "ops": {**profile["ops"], "time_ns": times}}


def drifts(plan, layers):
    """By name: lists of factors, one list per draw."""
    order = plan.get("order") or range(layers)
    stages = [[order[place] for place in range(stage["first"], stage["last"] + 1)] for stage in plan["stages"]]
    of_name = {f"one device, {round((factor - 1) * 100)} % slower":
               [[factor if layer in stage else 1.0 for layer in range(layers)] for stage in stages]
               for factor in SLOWER}
    draws = [random.Random(seed) for seed in range(DRAWS)]
    of_name[ANY_LAYER] = [[draw.lognormvariate(0, DEVIATION) for _ in range(layers)] for draw in draws]
    return of_name


class Rebalancing(report.Benchmark):
    """Plans, lets times drift, and takes the plan up again; beside it, plans made anew."""

    rounds, quick_rounds = 1, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--reference-data", type=pathlib.Path,
                                 help="folder with pipedream/ and piper/, of which all profiles are")

    def extent(self, results):
        return "Nothing is timed: all figures are of plans."

    def measure(self, options):
        if options.reference_data is None:
            raise training.Failure("there is nothing to plan: name the folder with pipedream/ and piper/ by "
                                   "--reference-data")
        spillway = self.program(options, "spillway")
        cells = []
        for name, source, file, memory in WORKLOADS[:1] if options.tiny else WORKLOADS:
            path, stored = options.work / "now.profile.json", options.work / "job.plan.json"
            training.output_of([spillway, "profile", "--import", source, options.reference_data / file, "--out", path])
            profile = json.loads(path.read_text(encoding="utf-8"))
            for setting in ("ample",) if options.tiny else SETTINGS:
                words = [*JOB, *(["--device-memory", memory, *HOST] if setting == "full" else [])]
                told = self.told([spillway, "plan-job", path, *words, "--out", stored])
                plan = json.loads(stored.read_text(encoding="utf-8"))
                for drift, draws in drifts(plan, plan["layers"]).items():
                    print(f"{name}, {setting}, {drift}", file=sys.stderr, flush=True)
                    later = options.work / "later.profile.json"
                    rows = []
                    for factors in draws[:2] if options.quick or options.tiny else draws:
                        later.write_text(json.dumps(slowed(profile, factors)), encoding="utf-8")
                        rows.append(self.drawn(spillway, later, stored, words))
                    cells.append({"workload": name, "memory": memory, "setting": setting, "drift": drift,
                                  "planned": told["step_seconds"], "draws": rows})
        return {"cells": cells}

    @staticmethod
    def told(command):
        return json.loads(training.output_of([*command, "--json"]))

    def drawn(self, spillway, later, stored, words):
        moved = self.told([spillway, "rebalance", stored, later])
        anew = self.told([spillway, "plan-job", later, *words])
        return {"before": moved["step_seconds_before"], "after": moved["step_seconds"],
                "anew": anew["step_seconds"],
                "vpipe": self.step_if_possible([spillway, "plan-job", later, *words, "--partitioner", "vpipe"]),
                **{key: moved[key] for key in ("pays", "moved_bytes", "move_seconds", "rounds", "pays_after_steps")}}

    def step_if_possible(self, command):
        """Nothing where cuts of a search find no way to fit."""
        try:
            return self.told(command)["step_seconds"]
        except training.Failure as failure:
            if "cannot bring it below" not in str(failure):
                raise
            return None

    def report(self, results, folder):
        text = ""
        for setting, words in SETTINGS.items():
            cells = [cell for cell in results["cells"] if cell["setting"] == setting]
            if not cells:
                continue
            text += f"{words[0].upper()}{words[1:]}; steps are means of all draws, as shares of the planned step:\n\n"
            text += report.table(["profile", "drift", "as cut", "re-balanced", "made anew", "anew by vPipe", "moved in",
                                  "bytes", "rounds", "flush", "pays after"], [self.row(cell) for cell in cells]) + "\n"
        self.plot(results["cells"], folder)
        return text + "![Steps by drift](plot.svg)\n"

    @staticmethod
    def row(cell):
        draws = cell["draws"]
        moved = [draw for draw in draws if draw["pays"]]
        steps = [Rebalancing.share_text(cell, key) for key in ("before", "after", "anew", "vpipe")]
        row = [cell["workload"], cell["drift"], *steps, f"{len(moved)} of {len(draws)}"]
        if not moved:
            return [*row, "–", "–", "–", "–"]
        size, flush, rounds, pays = (statistics.median(draw[key] for draw in moved) for key in
                                     ("moved_bytes", "move_seconds", "rounds", "pays_after_steps"))
        return [*row, f"{size / 2**20:.0f} MiB", f"{rounds:g}", f"{flush * 1e3:.3g} ms", f"{pays:g}"]

    @staticmethod
    def share(cell, key):
        """Of the draws that fit; 0 where none does."""
        steps = [draw[key] for draw in cell["draws"] if draw[key] is not None]
        return statistics.mean(steps) / cell["planned"] if steps else 0.0

    @staticmethod
    def share_text(cell, key):
        lost = sum(draw[key] is None for draw in cell["draws"])
        return f"{Rebalancing.share(cell, key):.3f}" if lost == 0 else f"{lost} of {len(cell['draws'])} do not fit"

    @staticmethod
    def plot(cells, folder):
        figure, axes = report.drawing(10, 4, len(SETTINGS))
        labels = {"before": "as cut", "after": "re-balanced", "anew": "made anew", "vpipe": "anew by vPipe"}
        for axis, (setting, words) in zip(axes[0], SETTINGS.items()):
            shown = [cell for cell in cells if cell["setting"] == setting and
                     cell["drift"] in (f"one device, {round((SLOWER[-1] - 1) * 100)} % slower", ANY_LAYER)]
            names = [f"{cell['workload']}\n" + ("random" if cell["drift"] == ANY_LAYER else "slow") for cell in shown]
            for place, (key, label) in enumerate(labels.items()):
                axis.bar([index + 0.2 * place for index in range(len(shown))],
                         [Rebalancing.share(cell, key) for cell in shown], width=0.2, label=label)
            axis.set_xticks([index + 0.3 for index in range(len(shown))], names, fontsize=6)
            axis.set_title(words, fontsize=9)
            axis.set_ylabel("step / planned step")
            axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    Rebalancing().run()
