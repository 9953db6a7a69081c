#!/usr/bin/env python3
"""Writes C sources of the libraries that LibTorch's CUDA part is linked with and that nobody emulates.

  make_stubs.py <folder for the sources> <LibTorch library>...

Every function that the libraries import from NVIDIA's becomes one that names itself on stderr and ends the process.
For each library of NVIDIA's there is <SONAME>.c and <SONAME>.map, its version script, with no version where the
imports have none. Those of the four libraries that are emulated are weak: what is emulated stands in for most of them.
"""
import collections
import pathlib
import re
import subprocess
import sys

# How the names of a library begin, and the library; the first that fits is taken.
SONAMES = {
    r"__?cuda|cuda[A-Z]": "libcudart.so.13",
    r"cusparseLt": "libcusparseLt.so.0",
    r"cusparse": "libcusparse.so.12",
    r"cublasLt": "libcublasLt.so.13",
    r"cublas": "libcublas.so.13",
    r"cudnn": "libcudnn.so.9",
    r"cufft": "libcufft.so.12",
    r"curand": "libcurand.so.10",
    r"cuFile": "libcufile.so.0",
    r"nccl": "libnccl.so.2",
    r"nvshmem": "libnvshmem_host.so.3",
    r"cupti": "libcupti.so.13",
    r"cu[A-Z]": "libcuda.so.1",
}
EMULATED = {"libcudart.so.13", "libcuda.so.1", "libcufile.so.0", "libnccl.so.2"}
# Asked for their versions before any work: LibTorch compares them with those that it was built with.
ANSWERS = {
    "cudnnGetVersion": "unsigned long cudnnGetVersion(void) { return 91900; }",
    "cudnnGetCudartVersion": "unsigned long cudnnGetCudartVersion(void) { return 13000; }",
    "cudnnGetProperty": "int cudnnGetProperty(int which, int* value) {\n"
                        "  static const int version[] = {9, 19, 0};\n"
                        "  if (which < 0 || which > 2) return 1;\n  *value = version[which];\n  return 0;\n}",
}
HEAD = """// Made by make_stubs.py of what LibTorch imports from {soname}.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noreturn)) static void refuse(const char* name) {{
  fprintf(stderr, "emulated CUDA: %s of {soname} was called, which is not emulated\\n", name);
  abort();
}}
"""


def imports(library):
    """The names that the library imports, each with its version or ""."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True,
                            text=True).stdout
    for line in listed.splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield name, version


def soname_of(name):
    return next((soname for prefix, soname in SONAMES.items() if re.match(prefix, name)), None)


def source(soname, names):
    weak = "__attribute__((weak)) " if soname in EMULATED else ""
    functions = [ANSWERS.get(name) or f"{weak}int {name}(void) {{ refuse(\"{name}\"); }}" for name in sorted(names)]
    return HEAD.format(soname=soname) + "\n".join(functions) + "\n"


def version_script(names):
    versions = collections.defaultdict(list)
    for name, version in sorted(names.items()):
        if version:
            versions[version].append(name)
    if not versions:
        return "{ global: *; };\n"
    return "".join(f"{version} {{ global: {' '.join(name + ';' for name in listed)} }};\n"
                   for version, listed in sorted(versions.items()))


def main(target, *libraries):
    wanted = {soname: {} for soname in SONAMES.values()}
    for library in libraries:
        for name, version in imports(library):
            soname = soname_of(name)
            if soname:
                wanted[soname][name] = version
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    for soname, names in wanted.items():
        (folder / f"{soname}.c").write_text(source(soname, names), encoding="utf-8")
        (folder / f"{soname}.map").write_text(version_script(names), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
