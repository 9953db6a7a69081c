#!/usr/bin/env python3
"""What does a page cost? Each verb of each frame mapper, by Google Benchmark."""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

MAPPERS = ("userfaultfd", "userfaultfd-user", "signal", "copy")
ONE_PAGE = ("map to write", "map to read", "unmap", "forbid", "allow", "fault on empty",
            "fault on closed")
BESIDE = ("forbid 128 pages", "make", "reserve 1 TiB")
FRAMES = {"huge": "frames of one huge page", "small": "frames of small pages"}


class PageCost(report.Benchmark):
    """Runs spillway_what_does_a_page_cost, which does the measuring."""

    rounds, quick_rounds = 5, 3
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return (f"Rounds: {results['rounds']}, in random order; each figure is the mean of 1000 "
                "pages, the table gives median and spread of the rounds.")

    def measure(self, options):
        program = self.program(options, "spillway_what_does_a_page_cost")
        command = [program, "--benchmark_format=json",
                   f"--benchmark_repetitions={1 if options.tiny else options.rounds}",
                   "--benchmark_enable_random_interleaving=true"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise training.Failure(f"{program}: exit status {done.returncode}")
        figures = {}
        for run in json.loads(done.stdout)["benchmarks"]:
            if run["run_type"] == "iteration":
                name = run["name"].partition("/")[0]
                figures.setdefault(name, []).append(run["real_time"])
        return {"microseconds": figures}

    def report(self, results, folder):
        figures = {name: spread.Spread(values) for name, values in results["microseconds"].items()}
        # The order in which they were measured was random.
        mappers = sorted({name.partition("|")[0] for name in figures}, key=MAPPERS.index)
        text = ""
        for frames, title in FRAMES.items():
            text += report.table(
                [f"µs of a page, {title}", *ONE_PAGE],
                [[mapper, *(figures[f"{mapper}|{verb}|{frames}"].shown(1) for verb in ONE_PAGE)]
                 for mapper in mappers]) + "\n"
        text += report.table(
            ["µs", *BESIDE],
            [[mapper, *(figures[f"{mapper}|{what}|huge"].shown(0) for what in BESIDE)]
             for mapper in mappers])
        self.plot(mappers, figures, folder)
        return text + "\n![Microseconds of a page](plot.svg)\n"

    def plot(self, mappers, figures, folder):
        figure, axes = report.drawing(9, 3.6)
        axis = axes[0][0]
        width = 0.8 / len(mappers)
        for number, mapper in enumerate(mappers):
            axis.bar([place + (number + 0.5) * width - 0.4 for place in range(len(ONE_PAGE))],
                     [figures[f"{mapper}|{verb}|huge"].median for verb in ONE_PAGE], width, label=mapper)
        axis.set_xticks(range(len(ONE_PAGE)), ONE_PAGE)
        axis.set_ylabel("µs, huge frames")
        axis.set_yscale("log")
        axis.legend(fontsize=8)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    PageCost().run()
