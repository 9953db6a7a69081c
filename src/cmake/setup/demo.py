#!/usr/bin/env python3
"""Trains the brain U-Net three times: in memory, then with half and a quarter of that memory.

Prints one table at the end. Exit status 0 when every run ended and all losses are the same bytes.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SMALLEST_BUDGET = re.compile(r"smallest budget\D{0,40}?([0-9]+(?:\.[0-9]+)?) ?((?:[KMGT]i)?B)\b")


def shown(size):
    """A size for people, for example 1.25 GiB."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.2f} {unit}"
    return f"{size} B"


def as_option(size):
    return f"{size // UNITS['KiB']}KiB"


def smallest_budget_in(text):
    """The budget that a refused run asks for, rounded up to what --budget can say, or None."""
    found = SMALLEST_BUDGET.findall(text)
    if not found:
        return None
    number, unit = found[-1]
    # A printed number is rounded: the last digit may have been one higher.
    digits = len(number.partition(".")[2])
    size = (float(number) + (10 ** -digits if digits else 0)) * UNITS[unit]
    return (int(size) // UNITS["KiB"] + 1) * UNITS["KiB"]


class Run:
    """One training run; `budget` is in bytes, None leaves the choice to Spillway."""

    def __init__(self, name, budget):
        self.name = name
        self.budget = budget
        self.note = ""
        self.stats = {}
        self.losses = None

    def needed(self):
        return self.stats.get("needed_bytes") or self.stats["peak_bytes"]

    def row(self, reference):
        if self.losses is None:
            budget = "auto" if self.budget is None else shown(self.budget)
            return [self.name, budget, "-", "-", "-", "-", self.note or "failed"]
        last = self.losses.decode().split()[-1]
        same = "reference" if self is reference else "yes" if self.losses == reference.losses else "NO"
        return [self.name, shown(self.stats["budget_bytes"]), shown(self.stats["peak_bytes"]),
                f"{self.stats['step_seconds_median']:.3f} s", shown(self.stats["spilled_bytes"]),
                last, same]


def stream(command, log):
    """Runs a command, showing its output as it comes; returns its status and the output."""
    print("$ " + " ".join(shlex.quote(word) for word in command), flush=True)
    output = bytearray()
    with log.open("wb") as copy, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            copy.write(chunk)
            output += chunk
    return process.returncode, output.decode(errors="replace")


def execute(run, options, file_name):
    folder = options.out
    stats, losses = folder / f"{file_name}.json", folder / f"{file_name}.losses"
    for stale in (stats, losses):
        stale.unlink(missing_ok=True)
    budget = "auto" if run.budget is None else as_option(run.budget)
    print(f"\n== {run.name}: budget {budget}", flush=True)
    command = [str(options.bin / "spillway"), "run", "--budget", budget,
               "--stats", str(stats), "--", str(options.bin / "brain_unet"),
               "--steps", str(options.steps), "--seed", str(options.seed), "--losses", str(losses)]
    status, output = stream(command + options.trainer_flags, folder / f"{file_name}.log")
    if status == 0:
        run.stats = json.loads(stats.read_text(encoding="utf-8"))
        run.losses = losses.read_bytes()
        if not run.losses.strip():
            raise SystemExit(f"{losses} is empty: the trainer wrote no loss")
        return None
    run.note = f"exit status {status}"
    return smallest_budget_in(output)


def all_runs(options):
    """The runs in the order in which they are made; stops early when the first one fails."""
    first = Run("in memory", None)
    execute(first, options, "in_memory")
    yield first
    if first.losses is None:
        return
    if first.stats["spilled_bytes"] > 0:
        first.name = "all memory there is"
    for percent in (50, 25):
        run = Run(f"{percent} %", first.needed() * percent // 100)
        smallest = execute(run, options, f"budget_{percent}")
        if run.losses is None and smallest:
            run.note = f"too small for one operator: needs {shown(smallest)}"
            yield run
            run = Run(f"smallest ({100 * smallest / first.needed():.0f} %)", smallest)
            execute(run, options, f"budget_{percent}_smallest")
        yield run


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for what runs write")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("trainer_flags", nargs="*", help="after --: more flags of brain_unet")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    runs = list(all_runs(options))
    reference = runs[0]
    print()
    print_table([["run", "budget", "peak", "step time", "to disk", "last loss", "identical"]]
                + [run.row(reference) for run in runs])
    print(f"\nlosses, statistics and logs: {options.out}")
    refused = [run for run in runs if run.note.startswith("too small")]
    done = [run for run in runs if run.losses is not None]
    if len(done) + len(refused) < len(runs):
        raise SystemExit("A run failed; see its output above.")
    if any(run.losses != reference.losses for run in done):
        raise SystemExit("The losses differ: this is a defect of Spillway.")


if __name__ == "__main__":
    main()
