#!/usr/bin/env python3
"""Unpacks a part of the LibTorch wheels, and checks such a folder.

  libtorch.py version [<version>]          the release that is served: of 2.15 or 2.15.0; of all, the newest
  libtorch.py versions                     all of them, oldest first
  libtorch.py tested                       the release whose part `cuda` is served
  libtorch.py wheels <part> <release>      what to download
  libtorch.py unpack <part> <release> <folder of wheels> <target>
  libtorch.py check <part> <release> <target>     exit status 0 when nothing is missing

The part `cpu` is what C++ on the CPU needs. The part `cuda` is what the tests of CUDA need besides: the other
libraries of LibTorch and the headers of CUDA, but no library of NVIDIA's. The part `headers` is those headers,
and those of NVTX, for profilers. What is served is in libtorch_versions.txt. The list of files and their sizes comes
from the wheels' own RECORD, which is unpacked too.
"""
import csv
import pathlib
import shutil
import sys
import typing
import zipfile

TABLE = pathlib.Path(__file__).resolve().parent.parent / "libtorch_versions.txt"
NAMES = ("torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti", "nvidia_cuda_crt", "nvidia_nvtx")
NONE = "-"


class Part(typing.NamedTuple):
    wheels: tuple
    libraries: set  # What has to be there, whatever the wheels hold.
    others: tuple  # Files, or folders with a "/" at the end.

    def holds(self, name):
        return (name in self.libraries or name in self.others
                or name.startswith(tuple(other for other in self.others if other.endswith("/")))
                or (".dist-info/" in name and not name.endswith("/")))


LIBRARIES = {
    "torch/lib/libc10.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libgomp.so.1",
    # libtorch_cpu names these two; only its profiler uses them.
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
}
HEADERS = ("nvidia/cu13/include/",)
PARTS = {
    "cpu": Part(NAMES[:3], LIBRARIES, ("torch/version.py", "torch/include/")),
    "cuda": Part(("torch", "nvidia_cuda_runtime", "nvidia_cuda_crt"),
                 {f"torch/lib/lib{name}.so" for name in ("c10_cuda", "torch", "torch_cuda", "torch_nvshmem")},
                 HEADERS),
    "headers": Part(("nvidia_cuda_runtime", "nvidia_cuda_crt", "nvidia_nvtx"),
                    {HEADERS[0] + name for name in ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h",
                                                    "nvtx3/nvToolsExtCudaRt.h")}, HEADERS),
}


def served():
    """Maps each release to the versions of its wheels, oldest first."""
    lines = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    return {line[0]: dict(zip(NAMES, line, strict=True)) for line in lines}


def wheels_of(part, release):
    """Maps the wheels that a part is made of to their versions."""
    versions = {name: served()[release][name] for name in part.wheels}
    if NONE in versions.values():
        raise SystemExit(f"the CUDA part of LibTorch {release} is not fetched: only that of {tested()} is tested")
    return versions


def tested():
    return next(release for release, versions in served().items() if NONE not in versions.values())


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


def recorded_sizes(part, release, target):
    """Maps each needed file to its size, None where the wheel records none."""
    sizes = {}
    for name, version in wheels_of(part, release).items():
        record = target / f"{name}-{version}.dist-info" / "RECORD"
        if not record.is_file():
            raise FileNotFoundError(f"{record} is missing")
        with record.open(newline="", encoding="utf-8") as lines:
            for path, _digest, size in csv.reader(lines):
                if part.holds(path):
                    sizes[path] = int(size) if size else None
    return sizes


def check(part, release, target):
    """Returns the first thing wrong with `target`, or None."""
    try:
        sizes = recorded_sizes(part, release, target)
    except FileNotFoundError as error:
        return str(error)
    missing = part.libraries - sizes.keys()
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


def unpack(part, release, wheels, target):
    for name, version in wheels_of(part, release).items():
        found = sorted(wheels.glob(f"{name}-{version}-*.whl"))
        if len(found) != 1:
            raise SystemExit(f"expected one wheel {name}-{version} in {wheels}, found {len(found)}")
        print(f"libtorch: unpacking {found[0].name}", flush=True)
        with zipfile.ZipFile(found[0]) as archive:
            for member in archive.infolist():
                if not member.is_dir() and part.holds(member.filename):
                    extract(archive, member, target)


def main(arguments):
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if verb == "version" and len(rest) <= 1:
        print(release_of(rest[0] if rest else ""))
        return
    if verb == "versions" and not rest:
        print(*served(), sep="\n")
        return
    if verb == "tested" and not rest:
        print(tested())
        return
    if len(rest) < 2 or rest[0] not in PARTS:
        raise SystemExit(__doc__)
    part, release, rest = PARTS[rest[0]], release_of(rest[1]), rest[2:]
    if verb == "wheels" and not rest:
        for name, version in wheels_of(part, release).items():
            print(f"{name.replace('_', '-')}=={version}")
        return
    if verb == "unpack" and len(rest) == 2:
        unpack(part, release, pathlib.Path(rest[0]), pathlib.Path(rest[1]))
    elif verb != "check" or len(rest) != 1:
        raise SystemExit(__doc__)
    problem = check(part, release, pathlib.Path(rest[-1]))
    if problem:
        raise SystemExit(f"libtorch: incomplete: {problem}")


if __name__ == "__main__":
    main(sys.argv[1:])
