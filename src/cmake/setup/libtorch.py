#!/usr/bin/env python3
"""Unpacks the part of the LibTorch wheels that C++ on the CPU needs, and checks such a folder.

  libtorch.py version [<version>]          the release that is served: of 2.15 or 2.15.0; of all, the newest
  libtorch.py versions                     all of them, oldest first
  libtorch.py wheels <release>             what to download
  libtorch.py unpack <release> <folder of wheels> <target>
  libtorch.py check <release> <target>     exit status 0 when nothing is missing

What is served is in libtorch_versions.txt. The list of files and their sizes comes from the wheels' own RECORD,
which is unpacked too.
"""
import csv
import pathlib
import shutil
import sys
import zipfile

TABLE = pathlib.Path(__file__).resolve().parent.parent / "libtorch_versions.txt"
NAMES = ("torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti")
LIBRARIES = {
    "torch/lib/libc10.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libgomp.so.1",
    # libtorch_cpu names these two; only its profiler uses them.
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
}


def served():
    """Maps each release to the versions of its wheels, oldest first."""
    lines = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    return {line[0]: dict(zip(NAMES, line, strict=True)) for line in lines}


def numbers(version):
    return [int(part) for part in version.split(".")[:2]]


def release_of(version):
    """Returns the release that serves `version`, which may name a minor alone or nothing."""
    releases = list(served())
    if not version:
        return releases[-1]
    for release in releases:
        if version in (release, release.rpartition(".")[0]):
            return release
    minors = [release.rpartition(".")[0] for release in releases]
    try:
        wanted = numbers(version)
    except ValueError:
        raise SystemExit(f"'{version}' is no version of LibTorch; Spillway serves {', '.join(minors)}") from None
    # The newest that is not newer, or else the oldest: as the preloaded library has it.
    nearest = ([minors[0]] + [minor for minor in minors if numbers(minor) <= wanted])[-1]
    raise SystemExit(f"LibTorch {version} is not fetched: Spillway serves {', '.join(releases)}; nearest is {nearest}")


def is_needed(name):
    return (name in LIBRARIES or name == "torch/version.py"
            or name.startswith("torch/include/")
            or (".dist-info/" in name and not name.endswith("/")))


def recorded_sizes(release, target):
    """Maps each needed file to its size, None where the wheel records none."""
    sizes = {}
    for name, version in served()[release].items():
        record = target / f"{name}-{version}.dist-info" / "RECORD"
        if not record.is_file():
            raise FileNotFoundError(f"{record} is missing")
        with record.open(newline="", encoding="utf-8") as lines:
            for path, _digest, size in csv.reader(lines):
                if is_needed(path):
                    sizes[path] = int(size) if size else None
    return sizes


def check(release, target):
    """Returns the first thing wrong with `target`, or None."""
    try:
        sizes = recorded_sizes(release, target)
    except FileNotFoundError as error:
        return str(error)
    missing = LIBRARIES - sizes.keys()
    if missing:
        return f"the wheels do not hold {sorted(missing)[0]}"
    for path, size in sizes.items():
        file = target / path
        if not file.is_file():
            return f"{file} is missing"
        if size is not None and file.stat().st_size != size:
            return f"{file} has {file.stat().st_size} bytes instead of {size}"
    return None


def extract(archive, member, target):
    """Unpacks one file of a wheel and returns its path."""
    path = target / member.filename
    if not path.resolve().is_relative_to(target.resolve()):
        raise SystemExit(f"a wheel names {member.filename}, outside its folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, path.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    return path


def unpack(release, wheels, target):
    for name, version in served()[release].items():
        found = sorted(wheels.glob(f"{name}-{version}-*.whl"))
        if len(found) != 1:
            raise SystemExit(f"expected one wheel {name}-{version} in {wheels}, found {len(found)}")
        print(f"libtorch: unpacking {found[0].name}", flush=True)
        with zipfile.ZipFile(found[0]) as archive:
            for member in archive.infolist():
                if not member.is_dir() and is_needed(member.filename):
                    extract(archive, member, target)


def main(arguments):
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if verb == "version" and len(rest) <= 1:
        print(release_of(rest[0] if rest else ""))
        return
    if verb == "versions" and not rest:
        print(*served(), sep="\n")
        return
    if verb == "wheels" and len(rest) == 1:
        for name, version in served()[release_of(rest[0])].items():
            print(f"{name.replace('_', '-')}=={version}")
        return
    if verb == "unpack" and len(rest) == 3:
        unpack(release_of(rest[0]), pathlib.Path(rest[1]), pathlib.Path(rest[2]))
    elif verb != "check" or len(rest) != 2:
        raise SystemExit(__doc__)
    problem = check(release_of(rest[0]), pathlib.Path(rest[-1]))
    if problem:
        raise SystemExit(f"libtorch: incomplete: {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
