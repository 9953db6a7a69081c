#!/usr/bin/env python3
"""How far do steps scale? Runs the simulation, and draws its curves."""
import csv
import io
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = "spillway_how_far_do_steps_scale"
# What the program prints, and what stands above it.
TITLES = {
    "gems": "GEMS and data parallelism, 4 to 1,024 V100",
    "strong": "The same images on more devices",
    "slides": "Slides: 7 hours to 28 minutes",
    "out-of-core": "Out-of-core data parallelism",
    "simulator": "The simulation itself, on this machine",
}
TINY = ("strong", "out-of-core")
PUBLISHED_EFFICIENCY = 0.9732
MARKS = {"gems-mast": "o", "gems-master": "s", "1f1b": "^"}
PICTURES = ("![Efficiency while every device keeps its work](weak.svg)\n\n"
            "![Seconds of a step that stays the same](strong.svg)\n")


def printed(program, part):
    """What the program says for one part."""
    return subprocess.run([program, report.REPOSITORY / "bindings/clusters", part], stdout=subprocess.PIPE,
                          text=True, check=True).stdout


def curves_of(points, picture):
    """{panel: {curve: ([devices], [values])}} in the order in which they were printed."""
    panels = {}
    for point in points:
        if point["picture"] != picture:
            continue
        devices, values = panels.setdefault(point["panel"], {}).setdefault(point["curve"], ([], []))
        devices.append(int(point["devices"]))
        values.append(float(point["value"]))
    return panels


def look(curve):
    """Alike for the same schedule: dashed with stragglers."""
    schedule, straggling, _ = curve.partition(" with stragglers")
    return {"marker": MARKS.get(schedule, "."), "markersize": 4, "linestyle": "--" if straggling else "-"}


def over_devices(axis, title):
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_xlabel("devices")
    axis.set_title(title, fontsize=10)


def draw_weak(panels, path):
    """Efficiency while every device keeps its work."""
    figure, axes = report.drawing(12, 4, len(panels))
    for axis, (panel, curves) in zip(axes[0], panels.items()):
        for curve, (devices, values) in curves.items():
            axis.plot(devices, [100 * value for value in values], label=curve, **look(curve))
        over_devices(axis, panel)
        place = {}
        if panel.startswith("ResNet"):
            axis.plot([1024], [100 * PUBLISHED_EFFICIENCY], marker="*", markersize=12, linestyle="",
                      color="black", label="GEMS, published")
            place = {"loc": "center right", "bbox_to_anchor": (1, 0.64)}  # Between the lines.
        axis.set_ylabel("efficiency, %")
        axis.legend(fontsize=7, **place)
    report.save(figure, path)


def draw_strong(panels, path):
    """Time of a step that stays the same; dotted: what all devices of the first point would do."""
    figure, axes = report.drawing(12, 4, len(panels))
    for axis, (panel, curves) in zip(axes[0], panels.items()):
        for curve, (devices, values) in curves.items():
            line, = axis.plot(devices, values, label=curve, **look(curve))
            axis.plot(devices, [values[0] * devices[0] / each for each in devices], linestyle=":",
                      color=line.get_color(), linewidth=1)
        over_devices(axis, panel)
        axis.set_yscale("log")
        axis.set_ylabel("seconds of a step")
        axis.legend(fontsize=7)
    report.save(figure, path)


class Scaling(report.Benchmark):
    """Keeps what the program prints; all of it but the last table is the same on every machine."""

    def __init__(self):
        super().__init__(__file__, __doc__)

    def extent(self, results):
        return "All tables but the last are the same on every machine."

    def measure(self, options):
        program = self.program(options, PROGRAM)
        parts = TINY if options.tiny else TITLES
        return {"tables": {part: printed(program, part) for part in parts},
                "curves": printed(program, "curves")}

    def report(self, results, folder):
        points = list(csv.DictReader(io.StringIO(results["curves"])))
        draw_weak(curves_of(points, "weak"), folder / "weak.svg")
        draw_strong(curves_of(points, "strong"), folder / "strong.svg")
        return PICTURES + "".join(f"\n### {TITLES[part]}\n\n{table.strip()}\n"
                                  for part, table in results["tables"].items())


if __name__ == "__main__":
    Scaling().run()
