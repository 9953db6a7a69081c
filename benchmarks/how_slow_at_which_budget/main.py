#!/usr/bin/env python3
"""How slow at which budget? Steps of the examples at shares of the memory that they need."""
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, report, spread, training  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import smallest_budget_by, smallest_budget_in  # noqa: E402  pylint: disable=wrong-import-position

IN_CORE, SMALLEST = "in-core", "smallest"
PARAMETERS_GOAL = 1.10


@dataclasses.dataclass(frozen=True)
class Question:
    """A case, the shares of its need that are tried, and the step over in-core that is the goal."""

    case: cases.Case
    goals: dict  # percent to ratio, empty when the goal is a ratio to the bound
    percents: tuple = (75, 50, 35, 25)


QUESTIONS = [
    Question(cases.BRAIN_UNET, {75: 1.01, 50: 1.02, 35: 1.03, 25: 1.04}),
    Question(cases.PHOTO_NET, {75: 1.01, 50: 1.02, 35: 1.03, 25: 1.04}),
    Question(cases.TEXT_ACTIVATIONS, {75: 1.01, 50: 1.02, 35: 1.02, 25: 1.03, 20: 1.03},
             (75, 50, 35, 25, 20)),
    Question(cases.TEXT_PARAMETERS, {}),
]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a case. `budget` is None without Spillway, IN_CORE, SMALLEST or a percent."""

    budget: object
    huge_pages: bool = False
    on_demand: bool = False
    cores: int = 0  # 0: all
    rare: bool = False  # --quick measures it in the first round only, cores for one trainer only

    def name(self):
        name = f"{self.budget} %" if isinstance(self.budget, int) else self.budget or "plain"
        return (name + (", huge pages" if self.huge_pages else "")
                + (", on demand" if self.on_demand else "")
                + (f", {self.cores} core" if self.cores else ""))


def variants_of(question):
    """In-core comes first, as the budgets are shares of what it needed."""
    budgets = [*question.percents, SMALLEST]
    return ([Variant(IN_CORE), Variant(None), Variant(None, huge_pages=True)]
            + [Variant(budget) for budget in budgets]
            + [Variant(budget, on_demand=True, rare=True) for budget in budgets]
            + [Variant(IN_CORE, cores=1, rare=True), Variant(None, cores=1, rare=True),
               Variant(None, huge_pages=True, cores=1, rare=True),
               *(Variant(budget, cores=1, rare=True) for budget in (50, 25))])


class CaseRuns:
    """All runs of one case: chooses budgets and keeps the records."""

    def __init__(self, options, case, rates):
        self.options, self.case, self.rates = options, case, rates
        self.records = {}
        self.smallest = 0
        self.in_core = None

    def budget_of(self, variant):
        if variant.budget == IN_CORE:
            return cases.NO_PRESSURE
        if variant.budget == SMALLEST:
            return self.smallest
        return self.in_core["needed_bytes"] * variant.budget // 100

    def run(self, variant):
        options = self.options
        stats = options.work / "stats.json"
        command = self.case.command(options.bin, options.steps, variant.cores or os.cpu_count())
        if variant.budget is not None:
            command = [*cases.under_spillway(options.bin, self.budget_of(variant), stats,
                                             options.disk, "--rates", self.rates, "--prefetch",
                                             "off" if variant.on_demand else "on"), *command]
        if variant.cores:
            command = ["taskset", "-c", f"0-{variant.cores - 1}", *command]
        return training.train(command, environment=training.HUGE_PAGES if variant.huge_pages else None,
                              stats_file=stats)

    def add(self, variant):
        name = f"{self.case.name}, {variant.name()}"
        if isinstance(variant.budget, int) and self.budget_of(variant) < self.smallest:
            return f"{name}: below the smallest budget, {self.smallest / 2**20:.0f} MiB"
        run = self.run(variant)
        refused = smallest_budget_in(run.output) if run.status != 0 else None
        if refused and variant.budget is not None:
            # A refusal near the estimate: what it names is what works.
            self.smallest = max(self.smallest, refused)
            if variant.budget != SMALLEST:
                return f"{name}: refused, the smallest budget is {refused / 2**20:.0f} MiB"
            self.records.pop(variant.name(), None)
            run = self.run(variant)
        run.require_success(name)
        if variant == Variant(IN_CORE):
            self.learn_needs(run.stats)
        self.records.setdefault(variant.name(), []).append(run.record())
        return f"{name}: {statistics.median(run.step_seconds[self.options.skipped:]):.3f} s/step"

    def learn_needs(self, stats):
        if self.in_core is None:
            self.in_core = stats
            self.smallest = smallest_budget_by(stats)

    def require_equal_losses(self):
        for one_core in (False, True):
            training.require_equal_losses(
                self.case.name, [run for name, runs in self.records.items() for run in runs
                                 if name.endswith("1 core") == one_core])


def measured_rates(options, file):
    """Bytes per second of the disk, as `spillway bench-io` writes them."""
    command = [options.bin / "spillway", "bench-io", "--blocks", "2MiB", "--depths", "16",
               "--rates", file, options.disk]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise training.Failure(f"bench-io: exit status {done.returncode}\n{done.stderr}")
    disk = json.loads(file.read_text(encoding="utf-8"))["disks"][0]
    return {key: disk[f"{key}_bytes_per_second"] for key in ("read", "write", "both")}


def bound_seconds(compute, read, written, rates):
    """No step is shorter than its computing, nor than its transfers at the rates of the disk.

    Transfers go one way after the other, or both at once as long as there is something to do both
    ways; the shorter of the two counts."""
    one_way = read / rates["read"] + written / rates["write"]
    at_once = min(read, written)
    both_ways = (2 * at_once / rates["both"] + (read - at_once) / rates["read"]
                 + (written - at_once) / rates["write"])
    return max(compute, min(one_way, both_ways))


class Budgets(report.Benchmark):
    """Cases one after the other; all variants of one take turns."""

    # The order of a step is known, and prefetched by, from the third or fourth step on.
    rounds, steps, skipped = 5, 10, 3
    quick_rounds, quick_steps = 3, 7

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--case", action="append", default=[],
                                 choices=[question.case.name for question in QUESTIONS])

    def measure(self, options):
        rates_file = options.work / "rates.json"
        before = measured_rates(options, rates_file)
        results = {}
        for question in QUESTIONS:
            if not options.case or question.case.name in options.case:
                results[question.case.name] = self.measure_case(options, question, rates_file)
        after = measured_rates(options, options.work / "rates_after.json")
        return {"rates": {key: (before[key] + after[key]) / 2 for key in before},
                "cases": results}

    def measure_case(self, options, question, rates_file):
        runs = CaseRuns(options, self.sized(options, question.case), rates_file)
        for number, variant in spread.take_turns(variants_of(question), options.rounds):
            if options.quick and variant.rare and (number > 0 or (
                    variant.cores and question is not QUESTIONS[0])):
                continue
            print(f"round {number + 1}: {runs.add(variant)}", file=sys.stderr, flush=True)
        runs.require_equal_losses()
        return {"flags": list(runs.case.flags), "needed_bytes": runs.in_core["needed_bytes"],
                "smallest_bytes": runs.smallest, "largest_op": runs.in_core["largest_op"],
                "runs": runs.records}

    def report(self, results, folder):
        text = ("The disk by `bench-io`: "
                + ", ".join(f"{name} {rate / 1e9:.2f} GB/s"
                            for name, rate in results["rates"].items()) + ".\n")
        shown = [question for question in QUESTIONS if question.case.name in results["cases"]]
        for question in shown:
            text += CaseReport(question, results).text()
        self.plot(shown, results, folder)
        return text + "\n![Step over in-core by budget](plot.svg)\n"

    def plot(self, questions, results, folder):
        figure, axes = report.drawing(4 * len(questions), 3.6, len(questions))
        for axis, question in zip(axes[0], questions):
            case = CaseReport(question, results)
            case.draw(axis)
            if axis is axes[0][0]:
                axis.set_ylabel("step / step in core")
                axis.legend(fontsize=7)
        report.save(figure, folder / "plot.svg")


class CaseReport:
    """The tables and the plot of one case."""

    def __init__(self, question, results):
        self.question, self.rates, self.skipped = question, results["rates"], results["skipped"]
        self.case = results["cases"][question.case.name]
        self.budgets = [*question.percents, SMALLEST]

    def share(self, budget):
        if budget == SMALLEST:
            return 100 * self.case["smallest_bytes"] / self.case["needed_bytes"]
        return budget

    def seconds(self, variant):
        return [run["step_seconds"] for run in self.case["runs"].get(variant.name(), [])]

    def over(self, variant, base):
        ours, theirs = self.seconds(variant), self.seconds(base)
        return spread.ratio(ours, theirs, self.skipped) if ours and theirs else None

    def moved(self, variant, key):
        """Median bytes of a step in its direction."""
        return statistics.median(spread.pooled(
            [run[key] for run in self.case["runs"][variant.name()]], self.skipped))

    def bound(self, variant):
        compute = statistics.median(spread.pooled(self.seconds(Variant(IN_CORE)), self.skipped))
        return bound_seconds(compute, self.moved(variant, "read_bytes"),
                             self.moved(variant, "written_bytes"), self.rates)

    def text(self):
        gib = self.case["needed_bytes"] / 2**30
        return (f"\n### {self.question.case.name}\n\n`{' '.join(self.case['flags'])}` needs "
                f"{gib:.2f} GiB; the smallest budget is {self.share(SMALLEST):.0f} % of that, for "
                f"`{self.case['largest_op'].partition('(')[0]}`.\n\n"
                + self.budget_table() + "\n" + self.core_table())

    def goal(self, budget, variant, ratio):
        if not self.question.goals:
            seconds = statistics.median(spread.pooled(self.seconds(variant), self.skipped))
            bound = self.bound(variant)
            return (f"{seconds / bound:.2f} of the bound of {bound:.2f} s, "
                    + report.judged(seconds / bound, PARAMETERS_GOAL))
        if budget == SMALLEST:
            # The floor stands for the first share that is below it.
            below = [percent for percent in self.question.percents
                     if percent < self.share(SMALLEST)]
            if not below:
                return ""
            budget = below[0]
        return report.judged(ratio.median, self.question.goals[budget])

    def budget_table(self):
        rows = []
        for budget in self.budgets:
            variant, on_demand = Variant(budget), Variant(budget, on_demand=True, rare=True)
            label = f"{SMALLEST}, {self.share(budget):.0f} %" if budget == SMALLEST else variant.name()
            ratio = self.over(variant, Variant(IN_CORE))
            if ratio is None:
                rows.append([label, "below the smallest budget", "", "", "", "", "", ""])
                continue
            others = [self.over(variant, Variant(None)),
                      self.over(variant, Variant(None, huge_pages=True)),
                      self.over(on_demand, Variant(IN_CORE))]
            plain = ["–" if other is None else f"{other.median:.3f}"
                     + (" **slower**" if self.question.goals and other.median >= 1 else "")
                     for other in others[:2]]
            moved = [self.moved(variant, key) / 1e9 for key in ("read_bytes", "written_bytes")]
            rows.append([label,
                         spread.Spread(spread.pooled(self.seconds(variant), self.skipped)).shown(),
                         ratio.shown(3), self.goal(budget, variant, ratio),
                         *plain, "–" if others[2] is None else f"{others[2].median:.3f}",
                         f"{moved[0]:.2f} / {moved[1]:.2f}"])
        return report.table(["budget", "step, s", "step / in-core", "goal", "/ plain",
                             "/ plain with huge pages", "on demand: / in-core",
                             "GB per step in / out"], rows)

    def core_table(self):
        rows = []
        for cores, name in ((0, "all"), (1, "1")):
            rare = cores == 1
            row = [name]
            for variant in (Variant(None), Variant(None, huge_pages=True), Variant(IN_CORE),
                            Variant(50), Variant(25)):
                same = dataclasses.replace(variant, cores=cores, rare=rare)
                found = spread.pooled(self.seconds(same), self.skipped)
                row.append(spread.Spread(found).shown() if found else "–")
            rows.append(row)
        return report.table(["cores", "plain, s", "plain with huge pages, s", "in-core, s",
                             "50 %, s", "25 %, s"], rows)

    def draw(self, axis):
        for on_demand, label in ((False, "prefetch"), (True, "on demand")):
            points = [(self.share(budget), self.over(Variant(budget, on_demand=on_demand,
                                                             rare=on_demand), Variant(IN_CORE)))
                      for budget in self.budgets]
            points = sorted((point for point in points if point[1] is not None),
                            key=lambda point: point[0])
            axis.errorbar([share for share, _ in points], [ratio.median for _, ratio in points],
                          yerr=[[ratio.median - ratio.lowest for _, ratio in points],
                                [ratio.highest - ratio.median for _, ratio in points]],
                          marker="o", markersize=3, capsize=2, label=label)
        for variant, style in ((Variant(None), "--"), (Variant(None, huge_pages=True), ":")):
            plain = self.over(variant, Variant(IN_CORE))
            axis.axhline(plain.median, color="grey", linestyle=style, label=variant.name())
        if self.question.goals:
            goals = self.question.goals
            axis.plot(list(goals), list(goals.values()), "k_", markersize=10, label="goal")
        axis.set_title(self.question.case.name, fontsize=9)
        axis.set_xlabel("budget, % of the need")
        axis.invert_xaxis()


if __name__ == "__main__":
    Budgets().run()
