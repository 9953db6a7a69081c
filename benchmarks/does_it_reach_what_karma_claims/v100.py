"""A recorded step as a V100 would run it at another batch: a profile file for `spillway plan`."""
import dataclasses

import recorded_step
from measure import profiles

PAGE = 2 << 20
SMALL = 1 << 20  # Bytes; what is smaller stays in memory, as where Spillway records with its defaults.
FLOAT = 4

# NVIDIA's data sheet of the V100 SXM2: 15.7 TFLOP/s in fp32, 900 GB/s.
PEAK_FLOPS, PEAK_BYTES_PER_SECOND = 15.7e12, 900e9
STREAMED = 0.8  # Share of the bandwidth that simple kernels reach; assumed.
LAUNCH_SECONDS = 5e-6  # Of one kernel; assumed.
# Of the peak, counted in the multiplications and additions of the direct convolution. Winograd's for 3 x 3, which
# cuDNN has, needs fewer, so it can be above 1. Each is set so that one measured network comes out as measured:
# VGG-16, all 3 x 3, for the first; then ResNet-50 for the other (MEASURED in main.py).
REACH_3X3, REACH_OTHER = 1.30, 0.717

# Operators that read their inputs twice: statistics first.
TWICE = ("aten::native_batch_norm", "aten::native_batch_norm_backward", "aten::_log_softmax")


@dataclasses.dataclass(frozen=True)
class Speed:
    flops_3x3: float = PEAK_FLOPS * REACH_3X3
    flops_other: float = PEAK_FLOPS * REACH_OTHER
    bytes_per_second: float = PEAK_BYTES_PER_SECOND * STREAMED
    launch: float = LAUNCH_SECONDS


def moved_bytes(step, op, batch):
    read = sum(step.bytes_at(value, batch) for value, _ in op.uses)
    written = sum(step.bytes_at(value, batch) for value, writes in op.uses if writes)
    written += sum(step.bytes_at(value, batch) for value in op.births)
    return read * (2 if op.name in TWICE else 1) + written


def flops_by_layer(step, batch):
    """Of the forward pass, by the weight that the convolution uses; layers of equal sizes may differ in their images,
    so this is per operator in the order of forward."""
    flops = []
    for op in step.operators:
        if op.name != "aten::convolution":
            continue
        kind, sizes = op.weight[0], op.weight[1:]
        if kind == "transposed":  # Weight: in, out, rows, columns. As many products as the input has elements.
            image = max(step.bytes_at(value, batch) for value, _ in op.uses if is_of_batch(step, value))
        else:
            image = max(step.bytes_at(value, batch) for value in op.births)
        flops.append(2 * image // FLOAT // sizes[0] * recorded_step.elements(sizes))
    return flops


def is_of_batch(step, value):
    small, large = step.values[value].bytes
    return large > small


def flops_of_operators(step, batch):
    """One number per operator, 0 where memory alone decides. Backward of a convolution are two of its size, one for
    the first layer, whose images need no gradient."""
    forward = flops_by_layer(step, batch)
    begun, ended, flops = 0, len(forward), []
    for op in step.operators:
        if op.name == "aten::convolution":
            flops.append(forward[begun])
            begun += 1
        elif op.name == "aten::convolution_backward":
            ended -= 1
            flops.append(forward[ended] * (2 if ended > 0 else 1))
        elif op.weight:
            flops.append(2 * batch * recorded_step.elements(op.weight[1:]))
        else:
            flops.append(0)
    return flops


def times(step, batch, speed=Speed()):
    """Seconds per operator: by arithmetic or by memory, whichever takes longer, and its launch."""
    def rate(op):
        return speed.flops_3x3 if op.weight[-2:] == (3, 3) else speed.flops_other

    return [
        max(flops / rate(op),
            moved_bytes(step, op, batch) / speed.bytes_per_second) + speed.launch
        for op, flops in zip(step.operators, flops_of_operators(step, batch))
    ]


def pages_of(count):
    return -(-count // PAGE)


def small_peak(step, sizes):
    """Most bytes of small values at one time of a step that repeats."""
    changes = [0] * (len(step.operators) + 1)
    for value, size in zip(step.values, sizes):
        if size < SMALL:
            changes[max(value.birth, 0)] += size
            changes[len(step.operators) if value.death == -1 else value.death + 1] -= size
    alive = most = 0
    for change in changes[:-1]:
        alive += change
        most = max(most, alive)
    return most


def profile(step, batch, speed=Speed()):
    """The columns of a profile file. Values below a MiB are not told apart, and the time of operators that use no
    other ones is added to that of the operator before."""
    sizes = [step.bytes_at(value, batch) for value in range(len(step.values))]
    number = {}
    for value, size in enumerate(sizes):
        if size >= SMALL:
            number[value] = len(number)
    place, kept, kept_times, before = [], [], [], 0.0
    for op, seconds in zip(step.operators, times(step, batch, speed)):
        if any(value in number for value in op.births) or any(value in number for value, _ in op.uses):
            kept.append(op)
            kept_times.append(before)
            before = 0.0
        place.append(max(len(kept) - 1, 0))
        if kept:
            kept_times[-1] += seconds
        else:
            before += seconds
    kinds = sorted({kind_of(op) for op in kept})
    values = [step.values[value] for value in number]
    uses = [[(number[value], int(writes)) for value, writes in op.uses if value in number] for op in kept]
    ops = {
        "kind": [kinds.index(kind_of(op)) for op in kept],
        "signature": [op.signature for op in kept],
        "time_ns": [round(seconds * 1e9) for seconds in kept_times],
        "inside_peak_pages": [
            sum(pages_of(sizes[value]) for value in op.births if value in number) for op in kept
        ],
        "replayable": [int(op.is_replayable) for op in kept],
    }
    columns = {
        "bytes": [sizes[value] for value in number],
        "birth": [value.birth if value.birth == -1 else place[value.birth] for value in values],
        "death": [value.death if value.death == -1 else place[value.death] for value in values],
        "becomes": [-1 if value.becomes == -1 else number[value.becomes] for value in values],
        "class": [value.family for value in values],
    }
    origin = {**step.origin, "program": f"{step.origin['program']}, batch {batch}, as on a V100", "threads": 0}
    return profiles.profile(origin["program"], kinds, ops, uses, columns, page_bytes=PAGE, origin=origin,
                            small_bytes=step.small_bytes + small_peak(step, sizes), classes=step.classes)


def kind_of(op):
    return op.name, " ".join(str(part) for part in op.weight)
