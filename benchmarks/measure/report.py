"""Options that all benchmarks have, the file of results, and the report made from it."""
import argparse
import json
import pathlib
import re
import signal
import sys
import tempfile

from measure import cases, machine, training
from measure.training import Failure

BEGIN, END = "<!-- results: written by main.py --report -->", "<!-- end of results -->"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def against_goal(value, goal, digits=2, at_least=False):
    """A figure beside its goal: reached or not."""
    is_reached = value >= goal if at_least else value <= goal
    return f"{'>=' if at_least else '<='} {goal:.{digits}f}: " + ("yes" if is_reached else "**no**")


def replace_between_markers(text, report):
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    block = f"{BEGIN}\n{report.strip()}\n{END}"
    if not pattern.search(text):
        return f"{text.rstrip()}\n\n{block}\n" if text else block + "\n"
    return pattern.sub(lambda _: block, text, count=1)


def drawing(width=9, height=4, columns=1):
    """Matplotlib's figure and axes, for files that change only where the figures do."""
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise Failure(f"{sys.executable} has no matplotlib for the plot: apt-get install "
                      "python3-matplotlib, then start this with /usr/bin/python3") from None
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "spillway", "svg.fonttype": "none",
                                "axes.grid": True, "grid.alpha": 0.3})
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    return pyplot.subplots(1, columns, figsize=(width, height), squeeze=False,
                           layout="constrained")


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    # Trailing blanks of matplotlib would be refused by git's own check.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


class Benchmark:
    """A question. Subclasses measure (a dict) and report (dict to Markdown, drawing plots)."""

    rounds, steps, skipped = 5, 8, 2
    quick_rounds, quick_steps = 2, 5
    has_plot = True

    def __init__(self, script, description):
        self.folder = pathlib.Path(script).resolve().parent
        self.parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        add = self.parser.add_argument
        add("--bin", type=pathlib.Path, default=REPOSITORY / "build/release/bin",
            help="folder of the programs")
        add("--disk", type=pathlib.Path, default=pathlib.Path("/var/tmp"),
            help="folder that is spilled to")
        add("--rounds", type=int, help="every variant runs once per round")
        add("--steps", type=int, help="of each run")
        add("--skipped", type=int, default=self.skipped,
            help="first steps of each run that do not count")
        add("--quick", action="store_true", help="fewer rounds and steps")
        add("--tiny", action="store_true",
            help="sizes of a second, to check the script; the figures mean nothing")
        add("--into", type=pathlib.Path, default=self.folder,
            help="folder of results.json, README.md and plot.svg")
        add("--report", action="store_true", help="measure nothing, report results.json again")

    def measure(self, options):
        raise NotImplementedError

    def report(self, results, folder):
        raise NotImplementedError

    def program(self, options, name):
        path = options.bin / name
        if not path.exists():
            raise Failure(f"{path} does not exist: build it first, or name its folder with --bin")
        return path

    def sized(self, options, case):
        """A case in the size that was asked for; its program exists."""
        self.program(options, case.program)
        return cases.TINY[case] if options.tiny else case

    def needed_bytes(self, options, case):
        """What a sized case takes with room for everything, from three steps of it."""
        stats = options.work / "needs.json"
        run = training.train([*cases.under_spillway(options.bin, cases.NO_PRESSURE, stats,
                                                    options.disk),
                              *case.command(options.bin, 3, 2)], stats_file=stats)
        run.require_success(f"{case.name}, needs")
        return run.stats["needed_bytes"]

    def run(self):
        """The whole program; exits with 1 when a run went wrong."""
        options = self.parser.parse_args()
        options.rounds = options.rounds or (self.quick_rounds if options.quick else self.rounds)
        options.steps = options.steps or (self.quick_steps if options.quick else self.steps)
        self.check(options)
        options.into.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        file = options.into / "results.json"
        try:
            if self.has_plot:
                drawing()  # What is missing for it shall not be found out after the measuring.
            if not options.report:
                self.measure_into(file, options)
            self.write_report(json.loads(file.read_text(encoding="utf-8")), options.into)
        except FileNotFoundError as missing:
            raise SystemExit(f"{missing.filename} does not exist") from None
        except Failure as failure:
            raise SystemExit(f"FAILED: {failure}") from None

    def check(self, options):
        if options.skipped >= options.steps:
            self.parser.error(f"--skipped {options.skipped} leaves none of --steps {options.steps}")

    def extent(self, results):
        """How much was measured, in a sentence."""
        return (f"Rounds: {results['rounds']}, steps per run: {results['steps']}, of which the "
                f"first {results['skipped']} do not count.")

    def measure_into(self, file, options):
        record = machine.describe(options.disk)
        with tempfile.TemporaryDirectory(prefix="spillway-benchmark-") as work:
            options.work = pathlib.Path(work)
            results = self.measure(options)
        record["load_at_end"] = machine.load()
        results = {"machine": record, "rounds": options.rounds, "steps": options.steps,
                   "skipped": options.skipped, **results}
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    def write_report(self, results, folder):
        text = (f"{machine.sentence(results['machine'])} {self.extent(results)}\n\n"
                f"{self.report(results, folder)}")
        readme = folder / "README.md"
        before = readme.read_text(encoding="utf-8") if readme.exists() else ""
        readme.write_text(replace_between_markers(before, text), encoding="utf-8")
        print(text)


class RanksBenchmark(Benchmark):
    """A question of programs that are split over MPI ranks."""

    def __init__(self, script, description):
        super().__init__(script, description)
        self.parser.add_argument("--mpiexec", default="mpiexec.hydra")

    @staticmethod
    def split(options, ranks, budget, *more):
        """The words before a trainer's; `more` are options of `spillway run`."""
        return [options.mpiexec, "-n", ranks, options.bin / "spillway", "run", "--split", "--budget", budget, *more,
                "--"]
