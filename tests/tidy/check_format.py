#!/usr/bin/env python3
"""Requires every C++ file to be formatted as .clang-format says.

  check_format.py [--fix] [folder]

With --fix, formats them. Exit status: 0 all are, 1 some are not, 77 there is no clang-format that
formats as the one in use does.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import tidy

VERSION = 14  # Others break lines elsewhere.
SKIPPED = 77
FAULT = re.compile(r"^(.+?):(\d+):\d+: error: code should be clang-formatted", re.MULTILINE)


def find_program(name, version):
    """The program, or the reason why there is none."""
    reason = f"{name} is not installed"
    for candidate in (f"{name}-{version}", name):
        program = shutil.which(candidate)
        if program is None:
            continue
        said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        found = re.search(r"version (\d+)", said)
        if found and int(found.group(1)) == version:
            return program, None
        reason = f"{program} is not of version {version}: {said.strip()}"
    return None, reason


def faults(program, files):
    """(file, line) of the first places that are formatted otherwise."""
    done = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=1", *files],
                          stderr=subprocess.PIPE, text=True, check=False)
    found = FAULT.findall(done.stderr)
    if done.returncode != 0 and not found:
        raise SystemExit(f"{program}: exit status {done.returncode}\n{done.stderr}")
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    options = parser.parse_args(arguments)
    program, reason = find_program("clang-format", VERSION)
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    files = [str(path) for path in tidy.Tree(options.folder).of(tidy.CPP)]
    if options.fix:
        subprocess.run([program, "-i", *files], check=True)
    found = faults(program, files)
    for file, line in found:
        print(f"{file}:{line}: not formatted; {pathlib.Path(__file__).name} --fix mends all")
    print(f"{len(files)} files, {len(found)} not formatted")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
