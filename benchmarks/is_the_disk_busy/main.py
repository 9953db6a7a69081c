#!/usr/bin/env python3
"""Is the disk busy? The spill store and fio in turn on one directory."""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, spread, training  # noqa: E402  pylint: disable=wrong-import-position

GOAL = 0.95


class DiskBusy(report.Benchmark):
    """Runs spillway_is_the_disk_busy, which does the measuring."""

    rounds, quick_rounds = 9, 5
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--file-size", help="default: 1GiB, --tiny: 64MiB")
        self.parser.add_argument("--block", action="append", default=[], help="default: 2MiB")

    def measure(self, options):
        program = self.program(options, "spillway_is_the_disk_busy")
        figures = options.work / "figures.json"
        file_size = options.file_size or ("64MiB" if options.tiny else "1GiB")
        command = [program, options.disk, "--file-size", file_size,
                   "--rounds", str(options.rounds), "--json", figures]
        for block in options.block or ["2MiB"]:
            command += ["--block", block]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            raise training.Failure(f"{program}: exit status {status}")
        return json.loads(figures.read_text(encoding="utf-8"))

    def report(self, results, folder):
        rows = []
        for load in results["loads"]:
            for series in load["series"]:
                share = self.share(series)
                reached = "yes" if share.median >= GOAL else "**no**"
                rows.append([load["what"], series["name"],
                             spread.Spread(series["store"]).shown(),
                             spread.Spread(series["fio"]).shown(), share.shown(),
                             f">= {GOAL}: {reached}"])
        self.plot(results, folder)
        return report.table(["load", "", "store, GB/s", "fio, GB/s", "store / fio", "goal"],
                            rows) + "\n![Store and fio](plot.svg)\n"

    def share(self, series):
        # By round: neighbours on the machine change both sides of a round.
        return spread.Spread(ours / theirs for ours, theirs in zip(series["store"], series["fio"]))

    def plot(self, results, folder):
        loads = results["loads"]
        figure, axes = report.drawing(5 * len(loads), 3, len(loads))
        for axis, load in zip(axes[0], loads):
            for offset, who in ((-0.2, "store"), (0.2, "fio")):
                rates = [spread.Spread(series[who]) for series in load["series"]]
                axis.bar([place + offset for place in range(len(rates))],
                         [rate.median for rate in rates], 0.38, label=who,
                         yerr=[[rate.median - rate.lowest for rate in rates],
                               [rate.highest - rate.median for rate in rates]], capsize=3)
            axis.set_xticks(range(len(rates)), [series["name"] for series in load["series"]])
            axis.set_ylabel("GB/s")
            axis.set_title(load["what"], fontsize=8)
            axis.legend(fontsize=8)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    DiskBusy().run()
