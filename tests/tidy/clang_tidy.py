#!/usr/bin/env python3
"""Runs clang-tidy, with the checks of .clang-tidy, over the units of a build without LibTorch.

  clang_tidy.py --build FOLDER [--jobs N] [--under FOLDER]...

Units that include LibTorch take minutes each and are left out. Exit status: 0 nothing found,
1 something found, 77 there is no clang-tidy that finds what the one in use does.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import check_format

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
VERSION = 14
LIBTORCH = "/torch/include"
# What GoogleTest and Google Benchmark make of a case is theirs to name.
FOLDERS = ("src", "memory", "swap", "bindings")


def commands_of(build):
    """The build's commands without GCC's precompiled headers, which clang takes for its own."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in commands:
        entry["command"] = re.sub(r" -include \S+/cmake_pch\.hxx(?= )", "", entry["command"])
    return commands


def units_of(commands, folders):
    """Source files below the folders, each once."""
    roots = [REPOSITORY / folder for folder in folders]
    files = {pathlib.Path(entry["file"]) for entry in commands
             if LIBTORCH not in entry["command"]}
    return sorted(file for file in files if any(root in file.parents for root in roots))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--under", action="append", default=[],
                        help=f"folder of the repository (default: {', '.join(FOLDERS)})")
    options = parser.parse_args(arguments)
    program, reason = check_format.find_program("clang-tidy", VERSION)
    if reason:
        print(f"skipped: {reason}")
        return check_format.SKIPPED
    commands = commands_of(options.build)
    units = units_of(commands, options.under or FOLDERS)
    if not units:
        raise SystemExit(f"{options.build} has no unit to look at")

    database = tempfile.TemporaryDirectory()
    pathlib.Path(database.name, "compile_commands.json").write_text(
        json.dumps(commands), encoding="utf-8")

    def look_at(unit):
        return subprocess.run(
            [program, "-p", database.name, "--quiet", "--warnings-as-errors=*", str(unit)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    found = 0
    with database, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for unit, done in zip(units, pool.map(look_at, units)):
            if done.returncode != 0:
                found += 1
                print(f"== {unit.relative_to(REPOSITORY)}\n{done.stdout or done.stderr}", flush=True)
    print(f"{len(units)} units, something found in {found}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
