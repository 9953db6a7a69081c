#!/usr/bin/env python3
"""Trains the brain U-Net four times: without Spillway, with it and room for everything, then with
half and with a quarter of what that run needed.

Prints one table at the end, unless a run failed. Exit status 0 when every run ended and all losses
are the same bytes.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

from budget_text import UNITS, as_option, smallest_budget_in
import trainer_log


def shown(size):
    """A size for people, for example 1.25 GiB."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.2f} {unit}"
    return f"{size} B"


# They allocate for the first time, and teach Spillway what a step looks like.
FIRST_STEPS = 2


class Run:
    """One training run. `budget` is in bytes, or "auto", or None for a run without Spillway."""

    def __init__(self, name, budget):
        self.name = name
        self.budget = budget
        self.note = ""
        self.stats = {}
        self.losses = None
        self.process_bytes = 0
        self.step_seconds = 0.0

    def needed(self):
        return self.stats["needed_bytes"]

    def row(self, reference):
        if self.losses is None:
            budget = self.budget if isinstance(self.budget, str) else shown(self.budget or 0)
            return [self.name, budget, "-", "-", "-", "-", "-", self.note]
        tensors = ["-", "-", "-"]
        if self.stats:
            tensors = [shown(self.stats[key])
                       for key in ("budget_bytes", "peak_bytes", "spilled_bytes")]
        same = "reference" if self is reference else "yes" if self.losses == reference.losses else "NO"
        return [self.name, tensors[0], tensors[1], shown(self.process_bytes),
                f"{self.step_seconds:.2f} s", tensors[2], self.losses.decode().split()[-1], same]


def stream(command, log):
    """Runs a command, showing its output as it comes; returns status, output and peak memory."""
    print("$ " + " ".join(shlex.quote(word) for word in command), flush=True)
    output = bytearray()
    with log.open("wb") as copy, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            copy.write(chunk)
            output += chunk
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, output.decode(errors="replace"), usage.ru_maxrss * UNITS["KiB"]


def execute(run, options, file_name):
    """Makes the run; returns the budget that it asks for when it was refused, or None."""
    folder = options.out
    stats, losses = folder / f"{file_name}.json", folder / f"{file_name}.losses"
    for stale in (stats, losses):
        stale.unlink(missing_ok=True)
    command = [str(options.bin / "brain_unet"), "--steps", str(options.steps),
               "--seed", str(options.seed), "--losses", str(losses), *options.trainer_flags]
    if run.budget is not None:
        budget = run.budget if isinstance(run.budget, str) else as_option(run.budget)
        command = [str(options.bin / "spillway"), "run", "--budget", budget,
                   "--stats", str(stats), "--", *command]
    print(f"\n== {run.name}", flush=True)
    status, output, run.process_bytes = stream(command, folder / f"{file_name}.log")
    if status != 0:
        run.note = f"exit status {status}"
        return smallest_budget_in(output)
    if run.budget is not None:
        run.stats = json.loads(stats.read_text(encoding="utf-8"))
        run.process_bytes = run.stats["peak_rss_bytes"]
    run.losses = losses.read_bytes()
    times = [float(step["seconds"]) for step in trainer_log.STEP.finditer(output)]
    if not run.losses.strip() or not times:
        raise SystemExit(f"{losses} is empty: the trainer wrote no loss")
    run.step_seconds = statistics.median(times[FIRST_STEPS:] or times)
    return None


def all_runs(options):
    """The runs in the order in which they are made; stops early when one with room fails."""
    plain, first = Run("plain LibTorch", None), Run("Spillway", "auto")
    for run, file_name in ((plain, "plain"), (first, "in_memory")):
        execute(run, options, file_name)
        yield run
        if run.losses is None:
            return
    for percent in (50, 25):
        run = Run(f"Spillway, {percent} %", first.needed() * percent // 100)
        smallest = execute(run, options, f"budget_{percent}")
        if run.losses is None and smallest:
            run.note = f"too small for one operator: needs {shown(smallest)}"
            yield run
            run = Run(f"Spillway, {100 * smallest / first.needed():.0f} %", smallest)
            execute(run, options, f"budget_{percent}_smallest")
        yield run


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))


def count(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for what runs write")
    parser.add_argument("--steps", type=count, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("trainer_flags", nargs="*", help="after --: more flags of brain_unet")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    runs = list(all_runs(options))
    reference = runs[0]
    done = [run for run in runs if run.losses is not None]
    for run in runs:
        if run not in done and not run.note.startswith("too small"):
            raise SystemExit(f"The run '{run.name}' failed with {run.note}; its output is above, "
                             f"and in {options.out}.")
    print()
    times, meaning = "all steps", "median time of a step"
    if options.steps > FIRST_STEPS:
        times = "later steps"
        meaning = (f"median time of a step from the {FIRST_STEPS + 1}rd on (in the summaries "
                   "above: of all steps)")
    print_table([["run", "budget", "tensors", "process", times, "to disk", "last loss",
                  "identical"]] + [run.row(reference) for run in runs])
    print("tensors, process: peak bytes of tensors in memory, peak memory of the whole process; "
          f"{times}: {meaning}")
    print(f"\nlosses, statistics and logs: {options.out}")
    if any(run.losses != reference.losses for run in done):
        raise SystemExit("The losses differ: this is a defect of Spillway.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # As the shell says of it; the trainers have had it, too.
