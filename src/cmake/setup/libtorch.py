#!/usr/bin/env python3
"""Unpacks the part of the LibTorch wheels that C++ on the CPU needs, and checks such a folder.

  libtorch.py unpack <folder of wheels> <target>
  libtorch.py check <target>               exit status 0 when nothing is missing

The list of files and their sizes comes from the wheels' own RECORD, which is unpacked too.
"""
import csv
import pathlib
import shutil
import sys
import zipfile

WHEELS = {
    "torch": "2.11.0",
    "nvidia_cuda_runtime": "13.0.96",
    "nvidia_cuda_cupti": "13.0.85",
}
LIBRARIES = {
    "torch/lib/libc10.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libgomp.so.1",
    # libtorch_cpu names these two; only its profiler uses them.
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
}


def is_needed(name):
    return (name in LIBRARIES or name == "torch/version.py"
            or name.startswith("torch/include/")
            or (".dist-info/" in name and not name.endswith("/")))


def recorded_sizes(target):
    """Maps each needed file to its size, None where the wheel records none."""
    sizes = {}
    for name, version in WHEELS.items():
        record = target / f"{name}-{version}.dist-info" / "RECORD"
        if not record.is_file():
            raise FileNotFoundError(f"{record} is missing")
        with record.open(newline="", encoding="utf-8") as lines:
            for path, _digest, size in csv.reader(lines):
                if is_needed(path):
                    sizes[path] = int(size) if size else None
    return sizes


def check(target):
    """Returns the first thing wrong with `target`, or None."""
    try:
        sizes = recorded_sizes(target)
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


def unpack(wheels, target):
    for name, version in WHEELS.items():
        found = sorted(wheels.glob(f"{name}-{version}-*.whl"))
        if len(found) != 1:
            raise SystemExit(f"expected one wheel {name}-{version} in {wheels}, found {len(found)}")
        print(f"libtorch: unpacking {found[0].name}", flush=True)
        with zipfile.ZipFile(found[0]) as archive:
            for member in archive.infolist():
                if not member.is_dir() and is_needed(member.filename):
                    extract(archive, member, target)


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "unpack":
        unpack(pathlib.Path(arguments[1]), pathlib.Path(arguments[2]))
        target = pathlib.Path(arguments[2])
    elif len(arguments) == 2 and arguments[0] == "check":
        target = pathlib.Path(arguments[1])
    else:
        raise SystemExit(__doc__)
    problem = check(target)
    if problem:
        raise SystemExit(f"libtorch: incomplete: {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
