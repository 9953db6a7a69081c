"""The largest model and batch that each partitioner gets into its devices: tables and pictures."""
import math
import statistics

from measure import report

OURS = "spillway"
ALL_REDUCTION, NO_REDUCTION = "swap and recompute", "none"
EARLIER = ("even", "parameters", "pipedream")  # Without memory reduction, known before mCAP.
BATCH_STEPS = 32  # Sizes of batches count in this part of the published micro-batch.
BYTES_PER_PARAMETER = 4
MCAP_CLAIM, DAWNPIPER_CLAIMS = 1.55, {"vpipe": 4, "pipedream": 11}
TITLES = {"vpipe": "vPipe", "pipedream": "PipeDream"}
# Memory reduction and time of the comparison with vPipe and DawnPiper.
KINDS = (("no swaps, any time", "recompute", "any_time"), ("no swaps, in time", "recompute", "in_time"),
         ("with swaps, in time", ALL_REDUCTION, "in_time"))
MARKERS = "osv^<>DpP*Xhd"


def style(name):
    """Ours thick and black, each of the others with a marker of its own."""
    ours = name == OURS
    return {"marker": MARKERS[sum(name.encode()) % len(MARKERS)], "markersize": 5 if ours else 3,
            "linewidth": 2.5 if ours else 1, "color": "black" if ours else None, "zorder": 3 if ours else 2}


class Sizes:
    """Of one family: what a size means, and how far each partitioner comes."""

    def __init__(self, figures, is_batch):
        self.devices = [int(count) for count in figures["devices"]]
        self._rows = figures["devices"]
        self._is_batch = is_batch
        self._first = figures["parameter_bytes_of_one"]
        self._each = figures["parameter_bytes_of_each_more"]

    def amount(self, size):
        """Billions of parameters, or published micro-batches."""
        if self._is_batch:
            return size / BATCH_STEPS
        return (self._first + self._each * (size - 1)) / BYTES_PER_PARAMETER / 1e9 if size else 0

    def names(self):
        return list(dict.fromkeys(row["partitioner"] for row in next(iter(self._rows.values()))))

    def of(self, devices, name, reduction=None, key="any_time"):
        """The amount with this memory reduction; without one, with its own. 0: nothing fits."""
        for row in self._rows[str(devices)]:
            if row["partitioner"] == name and (
                    row["own"] if reduction is None else row["memory_reduction"] == reduction):
                return self.amount(row[key])
        return 0

    def memory_reductions_of(self, name):
        return [row["memory_reduction"] for row in next(iter(self._rows.values())) if row["partitioner"] == name]

    def memory_reduction_of(self, name):
        return next(row["memory_reduction"] for row in next(iter(self._rows.values()))
                    if row["partitioner"] == name and row["own"])


def families(results):
    """Names and sizes of what grows by layers, and of what grows by its batch."""
    return ({name: Sizes(figures, False) for name, figures in results["layers"].items()},
            {name: Sizes(figures, True) for name, figures in results["batch"].items()})


def ratio_text(sizes, name, reduction, key):
    """Ours with all memory reduction over another one: geometric mean and ends over families and devices."""
    found, missing = [], 0
    for family in sizes.values():
        for devices in family.devices:
            ours = family.of(devices, OURS, ALL_REDUCTION, key)
            other = family.of(devices, name, reduction, key)
            if ours and other:
                found.append(ours / other)
            missing += bool(ours) and not other
    text = f"{statistics.geometric_mean(found):.2f} [{min(found):.2f}–{max(found):.2f}]" if found else "–"
    return text + (f", {missing} × nothing" if missing else "")


def ratios_table(sizes, what):
    first = next(iter(sizes.values()))
    kinds = [(reduction, key) for reduction in (None, ALL_REDUCTION) for key in ("any_time", "in_time")]
    rows = [[f"`{name}`", first.memory_reduction_of(name), *(ratio_text(sizes, name, *kind) for kind in kinds)]
            for name in first.names() if name != OURS]
    return report.table([f"{what}: ours / this one", "its own memory reduction", "with its own memory reduction",
                         "the same, in time",
                         "with our memory reduction", "the same, in time"], rows)


def shown(amount):
    return f"{amount:.3g}" if amount else "–"


def claims_of_mcap(without_memory_reduction):
    """Cuts alone: nobody swaps or recomputes."""
    rows = []
    for name, schedules in without_memory_reduction.items():
        for schedule, figures in schedules.items():
            sizes = Sizes(figures, False)
            for devices in sizes.devices:
                def of(partitioner, count=devices, family=sizes):
                    return family.of(count, partitioner, NO_REDUCTION)
                earlier = [of(each) for each in EARLIER]
                others = (max(earlier), statistics.fmean(earlier))
                rows.append([name, schedule, devices,
                             *map(shown, [*earlier, of("mcap"), of("capslog"), of(OURS)]),
                             *(times(of(each), other) for each in ("mcap", OURS) for other in others)])
    return report.table(["10⁹ parameters, no memory reduction", "schedule", "devices", *EARLIER, "mcap", "capslog",
                         "ours",
                         "mcap / best of the first three", "/ their mean", "ours / best", "/ mean"], rows)


def times(one, other):
    return f"{one / other:.2f}" if other else "–"


def claims_of_dawnpiper(batches):
    rows = []
    for name, family in batches.items():
        for devices in family.devices:
            pipedream = family.of(devices, "pipedream")
            row = [name, devices, shown(pipedream)]
            for _, reduction, key in KINDS:
                vpipe, dawnpiper, ours = (family.of(devices, each, reduction, key)
                                          for each in ("vpipe", "dawnpiper", OURS))
                row += [*map(shown, (vpipe, dawnpiper, ours)), times(ours, vpipe), times(ours, pipedream)]
            rows.append(row)
    head = ["vpipe", "dawnpiper", "ours", "ours / vpipe", "ours / pipedream"]
    return report.table(["published micro-batches", "devices", "pipedream, any time",
                         *(f"{word}, {what}" for what, _, _ in KINDS
                           for word in head)], rows)


def highest(sizes, name, reduction, key):
    """Ours over another one at most: vPipe has the same memory reduction and time, PipeDream none and any time."""
    compared = (reduction, key) if name == "vpipe" else (NO_REDUCTION, "any_time")
    pairs = [(family.of(devices, OURS, reduction, key), family.of(devices, name, *compared))
             for family in sizes.values() for devices in family.devices]
    return max((ours / other for ours, other in pairs if other), default=math.nan)


def summary(results):
    layers, batches = families(results)
    text = ratios_table(layers, "BERT, parameters") + "\n" + claims_of_mcap(results["without_memory_reduction"])
    text += f"\nmCAP claims {MCAP_CLAIM} times the parameters of earlier partitioners.\n"
    if batches:
        text += "\n" + ratios_table(batches, "batch") + "\n" + claims_of_dawnpiper(batches)
        told = [f"{claim} times {TITLES[name]}'s batch (ours: "
                + ", ".join(f"{highest(batches, name, reduction, key):.3g} {what}"
                            for what, reduction, key in KINDS) + ")"
                for name, claim in DAWNPIPER_CLAIMS.items()]
        text += f"\nDawnPiper claims up to {' and '.join(told)}.\n"
    return text


def page(results):
    """Every size: with the own memory reduction and with ours, whatever the time and in time."""
    text = ("# The largest models and batches\n\nWritten by main.py; the [README](README.md) says how. Billions of "
            "parameters, or published micro-batches; in brackets those in time. –: nothing fits.\n")
    for sizes in families(results):
        for name, family in sizes.items():
            rows = []
            for partitioner in family.names():
                reductions = family.memory_reductions_of(partitioner)
                rows += [[f"`{partitioner}`", reduction,
                          *(f"{shown(family.of(devices, partitioner, reduction))} "
                            f"[{shown(family.of(devices, partitioner, reduction, 'in_time'))}]"
                            for devices in family.devices)] for reduction in reductions]
            text += "\n" + report.table([name, "memory reduction",
                                         *(f"{devices} devices" for devices in family.devices)], rows)
    return text


def draw(results, left, right):
    """The first family that grows by layers, and the one of batches that is on most devices."""
    layers, batches = families(results)
    pictures = [(left, next(iter(layers.items())), "10⁹ parameters")]
    if batches:
        widest = max(batches.items(), key=lambda entry: len(entry[1].devices))
        pictures.append((right, widest, "published micro-batches"))
    for axis, (name, family), what in pictures:
        for partitioner in family.names():
            points = [(devices, family.of(devices, partitioner)) for devices in family.devices
                      if family.of(devices, partitioner)]
            if points:
                axis.plot(*zip(*points), label=partitioner, **style(partitioner))
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(family.devices, [str(devices) for devices in family.devices])
        axis.minorticks_off()
        axis.set_xlabel("devices of 16 GB")
        axis.set_title(f"{name}: largest, each with its own memory reduction, {what}", fontsize=9)
        axis.legend(fontsize=6)
