#!/usr/bin/env python3
"""How slow at which budget? Steps of the examples at shares of the memory that they need."""
import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import cases, disk, report, side_by_side  # noqa: E402  pylint: disable=wrong-import-position
from measure import spread, training  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import smallest_budget_in  # noqa: E402  pylint: disable=wrong-import-position

IN_CORE, SMALLEST = "in-core", "smallest"
ENDLESS = 1_000_000
UNPLANNED_SKIPPED = 2
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
    moves_only: bool = False  # without recomputation
    cores: int = 0  # 0: all

    def follows_a_plan(self):
        return self.budget not in (None, IN_CORE) and not self.on_demand

    def name(self):
        name = f"{self.budget} %" if isinstance(self.budget, int) else self.budget or "plain"
        return (name + (", huge pages" if self.huge_pages else "")
                + (", on demand" if self.on_demand else "")
                + (", moves only" if self.moves_only else "")
                + (f", {self.cores} core" if self.cores else ""))


def main_variants(question):
    return [Variant(None), Variant(None, huge_pages=True),
            *(Variant(budget, moves_only=moves_only) for budget in (*question.percents, SMALLEST)
              for moves_only in (False, True))]


def on_demand_variants(question):
    return [Variant(budget, on_demand=True) for budget in (*question.percents, SMALLEST)]


ONE_CORE = [Variant(None, cores=1), Variant(None, huge_pages=True, cores=1),
            *(Variant(budget, cores=1) for budget in (50, 25))]


class CaseRuns:
    """All runs of one case: chooses budgets, gives turns and keeps the records."""

    def __init__(self, options, case, rates):
        self.options, self.case, self.rates = options, case, rates
        self.records = {}
        self.started = 0
        self.in_core = self.learn_needs()
        self.smallest = self.in_core.get("largest_op_needs_bytes", 0)

    def learn_needs(self):
        stats = self.options.work / "needs.json"
        run = training.train(self.command(Variant(IN_CORE), stats, steps=3), stats_file=stats)
        run.require_success(f"{self.case.name}, needs")
        return run.stats

    def budget_of(self, variant):
        if variant.budget == IN_CORE:
            return cases.NO_PRESSURE
        if variant.budget == SMALLEST:
            return self.smallest
        return self.in_core["needed_bytes"] * variant.budget // 100

    def command(self, variant, stats, steps=ENDLESS):
        options = self.options
        command = self.case.command(options.bin, steps, variant.cores or os.cpu_count())
        if variant.budget is not None:
            command = [*cases.under_spillway(options.bin, self.budget_of(variant), stats,
                                             options.disk, "--rates", self.rates, "--prefetch",
                                             "off" if variant.on_demand else "on", "--recompute",
                                             "off" if variant.moves_only else "on"), *command]
        if variant.cores:
            command = ["taskset", "-c", f"0-{variant.cores - 1}", *command]
        return command

    def start(self, variant):
        """A trainer whose first steps are over, or None where the budget is too small for it."""
        self.started += 1
        stats = self.options.work / f"{self.started}.json" if variant.budget is not None else None
        live = side_by_side.Live(f"{self.case.name}, {variant.name()}",
                                 self.command(variant, stats), stats_file=stats,
                                 environment=training.HUGE_PAGES if variant.huge_pages else None)
        with contextlib.ExitStack() as unless_alive:
            unless_alive.enter_context(live)
            live.turn(self.options.skipped if variant.follows_a_plan() else UNPLANNED_SKIPPED)
            if live.is_over:
                refused = smallest_budget_in(live.run.output)
                if refused is None or variant.budget is None:
                    live.run.require_success(live.name)
                self.smallest = max(self.smallest, refused)
                return None
            unless_alive.pop_all()
        return live

    @contextlib.contextmanager
    def alive(self, variant):
        """Yields a `start`ed trainer; when all went well it ends, and its record is kept."""
        if isinstance(variant.budget, int) and self.budget_of(variant) < self.smallest:
            yield None
            return
        live = self.start(variant)
        if live is None and variant.budget == SMALLEST:
            live = self.start(variant)  # A refusal near the estimate: what it names is what works.
        if live is None:
            yield None
            return
        with live:
            self.records[variant.name()] = {"turns": []}
            yield live
            self.records[variant.name()] |= live.finish().record()

    def take_turns(self, reference, variants, rounds):
        """All of them stay alive and get a turn in each round."""
        with contextlib.ExitStack() as together:
            lives = {variant: together.enter_context(self.alive(variant)) for variant in variants}
            lives = {variant: live for variant, live in lives.items() if live}
            reference.turn(1)
            before = None
            for _, variant in spread.take_turns(list(lives), rounds):
                before = self.add_turn(reference, variant, lives[variant], before)

    def visit(self, reference, variants, rounds):
        """One after the other comes into being, gets its turns, and goes."""
        for variant in variants:
            with self.alive(variant) as live:
                before = None
                for _ in range(rounds if live else 0):
                    before = self.add_turn(reference, variant, live, before)

    def add_turn(self, reference, variant, live, before):
        turn, after = side_by_side.pair(reference, live, self.options.steps, before)
        self.records[variant.name()]["turns"].append(turn)
        print(f"{live.name}: {turn['seconds']:.3f} s/step beside {turn['reference']:.3f}",
              file=sys.stderr, flush=True)
        return after

    def require_equal_losses(self):
        for one_core in (False, True):
            training.require_equal_losses(
                self.case.name, [record for name, record in self.records.items()
                                 if name.endswith("1 core") == one_core])


class Budgets(report.Benchmark):
    """Cases one after the other; all variants of one stay alive and take turns."""

    # The plan of a step is made and made again, with better times, in the first ones.
    rounds, steps, skipped = 8, 3, 16
    quick_rounds, quick_steps = 4, 2

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--case", action="append", default=[],
                                 choices=[question.case.name for question in QUESTIONS])

    def check(self, options):
        pass  # Steps that are skipped are those before the first turn.

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, steps per turn: {results['steps']}. Not counted: the "
                f"first {results['skipped']} steps under a plan, {UNPLANNED_SKIPPED} without one, and "
                "the first of each turn.")

    def measure(self, options):
        rates_file = options.work / "rates.json"
        before = disk.bench_io(options, rates_file)
        results = {}
        for question in QUESTIONS:
            if not options.case or question.case.name in options.case:
                results[question.case.name] = self.measure_case(options, question, rates_file)
        after = disk.bench_io(options, options.work / "rates_after.json")
        return {"rates": {key: (before[key] + after[key]) / 2 for key in before},
                "cases": results}

    def measure_case(self, options, question, rates_file):
        runs = CaseRuns(options, self.sized(options, question.case), rates_file)
        seldom = 1 if options.quick else options.rounds // 2
        with runs.alive(Variant(IN_CORE)) as reference:
            runs.take_turns(reference, main_variants(question), options.rounds)
            runs.visit(reference, on_demand_variants(question), seldom)
        if not options.quick or question is QUESTIONS[0]:
            with runs.alive(Variant(IN_CORE, cores=1)) as reference:
                reference.turn(1)
                runs.visit(reference, ONE_CORE, seldom)
        runs.require_equal_losses()
        return {"flags": list(runs.case.flags), "needed_bytes": runs.in_core["needed_bytes"],
                "smallest_bytes": runs.smallest, "largest_op": runs.in_core["largest_op"],
                "runs": runs.records}

    def report(self, results, folder):
        text = disk.told(results["rates"]) + ".\n"
        shown = [question for question in QUESTIONS if question.case.name in results["cases"]]
        text += beside_tensors(results["cases"].values())
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


def waiting(run, step_seconds):
    """Seconds of a step in which operators waited for Spillway, those of the first steps included."""
    seconds = run["stats"]["stall_seconds"] / len(run["step_seconds"])
    # A trainer that was stopped while it waited has counted its pause, too.
    return f"{seconds:.2f}" if seconds < step_seconds else "–"


def beside_tensors(cases_shown):
    """What processes took that their budgets do not count; src/runtime keeps a reserve for it."""
    sizes = [(run["stats"]["peak_rss_bytes"] - run["stats"]["peak_bytes"]) / 2**20
             for case in cases_shown for run in case["runs"].values() if run.get("stats")]
    return (f"\nBeside its tensors a process under Spillway took {min(sizes):.0f} to "
            f"{max(sizes):.0f} MiB of memory.\n")


class CaseReport:
    """The tables and the plot of one case."""

    def __init__(self, question, results):
        self.question = question
        self.case = results["cases"][question.case.name]
        self.budgets = [*question.percents, SMALLEST]

    def share(self, budget):
        if budget == SMALLEST:
            return 100 * self.case["smallest_bytes"] / self.case["needed_bytes"]
        return budget

    def run(self, variant):
        return self.case["runs"].get(variant.name())

    def over(self, variant):
        """Step over that of the reference beside it, by turn."""
        run = self.run(variant)
        return run and side_by_side.over_reference(run)

    def seconds(self, variant):
        run = self.run(variant)
        if not run:
            return "–"
        key = "seconds" if variant.budget != IN_CORE else "reference"
        turns = run["turns"] or [turn for name, other in self.case["runs"].items()
                                 for turn in other["turns"]
                                 if name.endswith("1 core") == bool(variant.cores)]
        return spread.Spread(turn[key] for turn in turns).shown()

    def moved(self, variant):
        """GB of a counted step, in and out."""
        return [size / 1e9 for size in side_by_side.bytes_per_step(self.run(variant))]

    def text(self):
        gib = self.case["needed_bytes"] / 2**30
        return (f"\n### {self.question.case.name}\n\n`{' '.join(self.case['flags'])}` needs "
                f"{gib:.2f} GiB; the smallest budget is {self.share(SMALLEST):.0f} % of that, for "
                f"`{self.case['largest_op'].partition('(')[0]}`. In-core: "
                f"{self.seconds(Variant(IN_CORE))} s a step.\n\n"
                + self.budget_table() + "\n" + self.core_table())

    def goal(self, budget, ratio, over_bound):
        if not self.question.goals:
            return report.against_goal(over_bound, PARAMETERS_GOAL) + " of the bound"
        if budget == SMALLEST:
            # The floor stands for the first share that is below it.
            below = [percent for percent in self.question.percents
                     if percent < self.share(SMALLEST)]
            if not below:
                return ""
            budget = below[0]
        return report.against_goal(ratio.median, self.question.goals[budget])

    def budget_table(self):
        rows = []
        for budget in self.budgets:
            variant = Variant(budget)
            label = f"{SMALLEST}, {self.share(budget):.0f} %" if budget == SMALLEST else variant.name()
            ratio = self.over(variant)
            if not ratio:
                rows.append([label, "below the smallest budget"] + [""] * 11)
                continue
            run = self.run(variant)
            stats = run["stats"]
            seconds = statistics.median(turn["seconds"] for turn in run["turns"])
            over_plan, over_bound = (seconds / stats[f"{name}_step_seconds"]
                                     for name in ("planned", "bound"))
            plain = [f"{ratio.median / other.median:.3f}"
                     + (" **slower**" if self.question.goals and ratio.median >= other.median else "")
                     for other in (self.over(Variant(None)),
                                   self.over(Variant(None, huge_pages=True)))]
            on_demand = self.over(Variant(budget, on_demand=True))
            moves_only = self.over(Variant(budget, moves_only=True))
            moved_in, moved_out = self.moved(variant)
            rows.append([label, self.seconds(variant), ratio.shown(3),
                         self.goal(budget, ratio, over_bound), f"{over_plan:.2f}",
                         f"{over_bound:.2f}", waiting(run, seconds), *plain,
                         f"{on_demand.median:.3f}" if on_demand else "–",
                         f"{ratio.median / moves_only.median:.3f}" if moves_only else "–",
                         f"{moved_in:.2f} / {moved_out:.2f}",
                         f"{stats['replays'] / len(run['step_seconds']):.0f}"])
        return report.table(["budget", "step, s", "step / in-core", "goal", "/ planned", "/ bound",
                             "waited, s", "/ plain", "/ plain with huge pages", "on demand: / in-core",
                             "/ moves only", "GB per step in / out", "replays per step"], rows)

    def core_table(self):
        rows = []
        for cores, name in ((0, "all"), (1, "1")):
            columns = (Variant(None), Variant(None, huge_pages=True), Variant(IN_CORE),
                       Variant(50), Variant(25))
            rows.append([name, *(self.seconds(dataclasses.replace(variant, cores=cores))
                                 for variant in columns)])
        return report.table(["cores", "plain, s", "plain with huge pages, s", "in-core, s",
                             "50 %, s", "25 %, s"], rows)

    def draw(self, axis):
        for label, change in (("moves and recomputes", {}), ("moves only", {"moves_only": True}),
                              ("on demand", {"on_demand": True})):
            points = [(self.share(budget), self.over(Variant(budget, **change)))
                      for budget in self.budgets]
            points = sorted((point for point in points if point[1]), key=lambda point: point[0])
            axis.errorbar([share for share, _ in points], [ratio.median for _, ratio in points],
                          yerr=[[ratio.median - ratio.lowest for _, ratio in points],
                                [ratio.highest - ratio.median for _, ratio in points]],
                          marker="o", markersize=3, capsize=2, label=label)
        for variant, style in ((Variant(None), "--"), (Variant(None, huge_pages=True), ":")):
            plain = self.over(variant)
            axis.axhline(plain.median, color="grey", linestyle=style, label=variant.name())
        if self.question.goals:
            goals = self.question.goals
            axis.plot(list(goals), list(goals.values()), "k_", markersize=10, label="goal")
        axis.set_title(self.question.case.name, fontsize=9)
        axis.set_xlabel("budget, % of the need")
        axis.invert_xaxis()


if __name__ == "__main__":
    Budgets().run()
