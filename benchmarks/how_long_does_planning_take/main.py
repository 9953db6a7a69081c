#!/usr/bin/env python3
"""How long does planning take? Steps of 1,000 to 100,000 operators of a made-up deep net."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import commands, profiles, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position
from measure.profiles import ACTIVATION, GRADIENT, PARAMETER, STATE  # noqa: E402  pylint: disable=wrong-import-position

PAGE = 2 << 20
OPERATORS_PER_LAYER = 5
KINDS = (("linear", 2_000_000), ("gelu", 200_000), ("gelu backward", 300_000), ("linear backward", 4_000_000),
         ("adam", 400_000))
LINEAR, GELU, GELU_BACKWARD, LINEAR_BACKWARD, ADAM = range(len(KINDS))
SIZES, QUICK_SIZES, TINY_SIZES = (1_000, 10_000, 30_000, 100_000), (1_000, 10_000), (100, 1_000)
NO_SEARCH, UNCUT = 0.001, 1_000  # Seconds.
# A swap of this net needs more than the link gives; a planner has to choose.
LINK = ["--link-out", "12", "--link-in", "12"]
BUDGET = "50%"
ONE_ROUND_FROM = 30_000  # Operators; commands take many seconds.


class DeepNet:
    """A step in the columns of a profile file: forward, backward, and an optimizer of one operator per layer."""

    def __init__(self, layers):
        self.operators, self.uses, self.values = [], [], []
        self.layers = layers

    def value(self, pages, birth, kind):
        self.values.append({"bytes": pages * PAGE, "birth": birth, "death": -1, "becomes": -1, "class": kind})
        return len(self.values) - 1

    def lasting(self, pages, kind):
        made = self.value(pages, -1, kind)
        self.values[made]["becomes"] = made
        return made

    def operator(self, kind, reads, writes=(), makes=()):
        """Appends one; `makes` are (pages, class), and what it makes is returned."""
        number = len(self.operators)
        made = [self.value(pages, number, family) for pages, family in makes]
        # What an operator makes is no use of it.
        uses = [*((value, 0) for value in reads), *((value, 1) for value in writes)]
        self.uses.append(uses)
        self.operators.append((kind, sum(pages for pages, _ in makes)))
        return made

    def free(self, *values):
        for value in values:
            self.values[value]["death"] = len(self.operators) - 1

    def step(self):
        weights = [(self.lasting(2, PARAMETER), self.lasting(4, STATE)) for _ in range(self.layers)]
        first = previous = self.lasting(8, ACTIVATION)
        stored = []
        for weight, _ in weights:
            wide, = self.operator(LINEAR, [previous, weight], makes=[(16, ACTIVATION)])
            narrow, = self.operator(GELU, [wide], makes=[(8, ACTIVATION)])
            stored.append((previous, wide))
            previous = narrow
        slope, gradients = previous, []
        for (weight, _), (entered, wide) in zip(reversed(weights), reversed(stored)):
            inner, = self.operator(GELU_BACKWARD, [slope, wide], makes=[(16, ACTIVATION)])
            self.free(slope, wide)
            slope, gradient = self.operator(LINEAR_BACKWARD, [inner, entered, weight],
                                            makes=[(8, ACTIVATION), (2, GRADIENT)])
            gradients.append(gradient)
            self.free(inner, *(() if entered == first else (entered,)))
        self.free(slope)
        for (weight, state), gradient in zip(weights, reversed(gradients)):
            self.operator(ADAM, [gradient], writes=[weight, state])
            self.free(gradient)
        return self

    def text(self):
        kinds, pages = zip(*self.operators)
        ops = {"kind": kinds, "time_ns": [KINDS[kind][1] for kind in kinds], "inside_peak_pages": pages,
               "replayable": [0 if kind == ADAM else 1 for kind in kinds]}
        column = {key: [value[key] for value in self.values] for key in self.values[0]}
        return json.dumps(profiles.profile(f"deep net of {self.layers} layers", [(name, "") for name, _ in KINDS],
                                           ops, self.uses, column, page_bytes=PAGE))


class PlanningTime(report.Benchmark):
    """Runs `spillway plan` and `spillway simulate` on files that it writes."""

    rounds, quick_rounds = 3, 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--effort", type=float, default=5, help="seconds for the plan with a search")

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, from {ONE_ROUND_FROM:,} operators on 1; median [lowest–highest]. No "
                f"command may take more than {commands.LIMITS}.")

    def measure(self, options):
        spillway = self.program(options, "spillway")
        sizes = TINY_SIZES if options.tiny else QUICK_SIZES if options.quick else SIZES
        return {"effort": options.effort,
                "sizes": [self.sized_step(spillway, size, options) for size in sizes]}

    def sized_step(self, spillway, operators, options):
        profile, plan = options.work / f"{operators}.json", options.work / f"{operators}.plan.json"
        profile.write_text(DeepNet(operators // OPERATORS_PER_LAYER).step().text(), encoding="utf-8")
        base = [spillway, "plan", profile, "--budget", BUDGET, "--json", *LINK]
        commands = {"read": [spillway, "plan", profile, "--budget", "100%", "--json", *LINK,
                             "--strategy", "demand"],
                    "offload-only": [*base, "--strategy", "offload-only", "--effort", UNCUT],
                    "first": [*base, "--effort", NO_SEARCH, "--out", plan],
                    "searched": [*base, "--effort", options.effort],
                    "simulate": [spillway, "simulate", profile, "--plan", plan, "--json", *LINK]}
        commands["model"] = commands["simulate"]
        record = {"operators": operators, "profile_bytes": profile.stat().st_size, "runs": {}}
        for _ in range(options.rounds if operators < ONE_ROUND_FROM else 1):
            for name, command in commands.items():
                if record["runs"].get(name, {}).get("over") or name in ("simulate", "model") and not plan.exists():
                    continue
                self.add_run(record["runs"].setdefault(name, {"processor": [], "planning": [], "memory": []}),
                             commands.Child.run(command), f"{name}, {operators} operators")
        return record

    @staticmethod
    def add_run(run, child, what):
        over = child.over(what)
        if over:
            run["over"] = over
            print(f"{what}: {over}", file=sys.stderr, flush=True)
            return
        plan = json.loads(child.output)
        run["processor"].append(child.processor_seconds)
        run["planning"].append(plan["planning_seconds"])
        run["memory"].append(child.memory_bytes)
        if "model_seconds" in plan:
            run.setdefault("model", []).append(plan["model_seconds"])
        run["over_incore"] = plan["step_seconds"] / plan["incore_seconds"]
        run["gap"] = plan["gap"]
        print(f"{what}: {child.processor_seconds:.3f} s", file=sys.stderr, flush=True)

    def report(self, results, folder):
        sizes = results["sizes"]
        head = ["operators", "profile", *(WORDS[name].format(effort=results["effort"]) for name in WORDS)]
        text = report.table(head, [[f"{size['operators']:,}", f"{size['profile_bytes'] / 1e6:.2f} MB",
                                    *(self.seconds(size, name) for name in WORDS)] for size in sizes])
        text += "\nMost memory of the process, and bytes per operator beyond the smallest step's:\n\n"
        text += report.table(head[:1] + head[2:], [[f"{size['operators']:,}", *(
            self.memory(size, sizes[0], name) for name in WORDS)] for size in sizes])
        text += "\nSo many times as long for so many times the operators (equal is linear):\n\n"
        text += report.table(["from, to", *head[2:]], [[
            f"{small['operators']:,} to {large['operators']:,}: {large['operators'] / small['operators']:.1f}",
            *(self.growth(small, large, name) for name in WORDS)]
            for small, large in zip(sizes, sizes[1:])])
        text += "\nPredicted step over in-core, and gap to the bound:\n\n"
        text += report.table(["operators", *head[3:6]], [[f"{size['operators']:,}", *(
            self.quality(size, name) for name in ("offload-only", "first", "searched"))] for size in sizes])
        self.plot(sizes, results, folder)
        return text + "\n![Time by operators](plot.svg)\n"

    @staticmethod
    def seconds(size, name):
        run = size["runs"].get(name, {})
        if not run.get(KEYS[name]):
            return run.get("over", "–")
        return spread.Spread(run[KEYS[name]]).shown(4 if name == "model" else 3) + " s"

    @staticmethod
    def memory(size, smallest, name):
        most = [max(one["runs"].get(name, {}).get("memory", []), default=0) for one in (size, smallest)]
        if not most[0]:
            return "–"
        text = f"{most[0] / 2**20:.0f} MiB"
        more = size["operators"] - smallest["operators"]
        return text + (f", {(most[0] - most[1]) / more / 1024:.1f} KiB" if more and most[1] else "")

    @staticmethod
    def growth(small, large, name):
        medians = [size["runs"].get(name, {}).get(KEYS[name]) for size in (small, large)]
        if not all(medians):
            return "–"
        return f"{spread.Spread(medians[1]).median / spread.Spread(medians[0]).median:.1f}"

    @staticmethod
    def quality(size, name):
        run = size["runs"].get(name, {})
        return f"{run['over_incore']:.3f}, {run['gap'] * 100:.1f} %" if "gap" in run else "–"

    def plot(self, sizes, results, folder):
        figure, axes = report.drawing(7, 4)
        axis = axes[0][0]
        for name, words in WORDS.items():
            points = [(size["operators"], spread.Spread(size["runs"][name][KEYS[name]]).median)
                      for size in sizes if size["runs"].get(name, {}).get(KEYS[name])]
            if points:
                axis.plot(*zip(*points), marker="o", label=words.format(effort=results["effort"]))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("operators of the step")
        axis.set_ylabel("seconds")
        axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


# What is run, and which of its figures is shown: `planning_seconds` is wall time without reading files and bounds.
WORDS = {"read": "read, bound, demand at 100 % (whole command)", "offload-only": "offload-only (planning)",
         "first": f"ours, --effort {NO_SEARCH} (planning)", "searched": "ours, --effort {effort} (planning)",
         "simulate": "read, bound, simulate --plan (whole command)",
         "model": "one simulation alone"}
KEYS = {"read": "processor", "offload-only": "planning", "first": "planning", "searched": "planning",
        "simulate": "processor", "model": "model"}


if __name__ == "__main__":
    PlanningTime().run()
