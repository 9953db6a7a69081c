#!/usr/bin/env python3
"""Makes a Python with torch beside LibTorch out of the rest of its wheel and a few small wheels.

  python_torch.py <torch wheel> <folder of small wheels> <LibTorch> <target>

<torch wheel> is a file, or its address, of which only the needed parts are read (exit status 4 when
that cannot be). <LibTorch> is what `libtorch.py unpack` has filled; its libraries are linked to.
Afterwards <target>/python/bin/python3 imports torch and numpy, on the CPU. The wheel's Python module
is linked with libraries of CUDA that would take 3 GB; nothing calls them without a GPU, so stand-ins
are made that only have their names.
"""
import base64
import csv
import hashlib
import http.client
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

import libtorch

PYTHON_VERSION = (3, 11)
LIBRARIES = ("libc10_cuda.so", "libshm.so", "libtorch.so", "libtorch_global_deps.so",
             "libtorch_python.so")
CUDA = "libtorch_cuda.so"
MISSING = (CUDA, "libcudnn.so.9", "libcufile.so.0")
# Asked for while the module is imported: a reference to an empty pointer.
REFERENCES = {"_ZN4c10d15get_gil_checkerEv"}
# Made while the module is imported, as the default of an argument, and destroyed with it: a constructor whose
# object knows its class, by the table of virtual functions that the module has, and is empty.
CONSTRUCTORS = {"_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb": "_ZTVN4c10d16ProcessGroupNCCL7OptionsE"}
CONSTRUCTOR = """pushq %rbx
movq %rdi, %rbx
call malloc_usable_size@PLT
movq %rbx, %rdi
xorl %esi, %esi
movq %rax, %rdx
call memset@PLT
movq {}@GOTPCREL(%rip), %rax
addq $16, %rax
movq %rax, (%rbx)
popq %rbx
ret"""
# From 2.15 on torch puts kernels of its own before those of CUDA while it is imported, and asks a function that
# this variable names which of them.
WITHOUT_CUDA = {
    "without_cuda.py": "def kept(_operator, key, kernels):\n    return [] if key == 'CUDA' else kernels\n",
    "without_cuda.pth": "import os; "
                        "os.environ['TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN'] = 'without_cuda.kept'\n",
}
NO_PARTS = 4


class NoParts(Exception):
    """The server sends no parts of the file."""


class RemoteFile(io.RawIOBase):
    """A file behind an address, read by parts. Wants a buffer before it."""

    def __init__(self, address):
        super().__init__()
        self._address, self._position = address, 0
        self._size = self._get(0, 1)[1]

    def _get(self, begin, count):
        """Returns the bytes and the size of the file."""
        wanted = urllib.request.Request(
            self._address, headers={"Range": f"bytes={begin}-{begin + count - 1}"})
        try:
            with urllib.request.urlopen(wanted, timeout=60) as answer:
                if answer.status != http.client.PARTIAL_CONTENT:
                    raise NoParts(f"{self._address} is only sent as a whole")
                data = answer.read()
                size = int(answer.headers["Content-Range"].rpartition("/")[2])
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as problem:
            raise NoParts(f"{self._address}: {problem}") from problem
        if len(data) != count:
            raise NoParts(f"{self._address} was sent with {len(data)} bytes instead of {count}")
        return data, size

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position,
                                   io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer):
        count = max(0, min(len(buffer), self._size - self._position))
        if count > 0:
            buffer[:count] = self._get(self._position, count)[0]
            self._position += count
        return count


def opened(wheel):
    if "://" in str(wheel):
        return io.BufferedReader(RemoteFile(wheel), 1 << 20)
    return open(wheel, "rb")


def is_needed(name):
    if name.startswith("torch/lib/"):
        return name.removeprefix("torch/lib/") in LIBRARIES
    if name.startswith("torch/bin/"):
        return name == "torch/bin/torch_shm_manager"
    return (name.startswith(("torch/", "torchgen/", "functorch/"))
            and not name.startswith(("torch/include/", "torch/share/", "torch/test/")))


def unpack(wheel, site):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                libtorch.extract(archive, member, site)


def info_of(built):
    """The folder with what the torch wheel says of itself."""
    return next(built.glob("torch-*.dist-info")).name


def unpack_torch(wheel, built, site):
    """Unpacks the Python part, as the RECORD says that came with LibTorch, `built`."""
    with (built / info_of(built) / "RECORD").open(newline="", encoding="utf-8") as lines:
        recorded = {path: digest for path, digest, _size in csv.reader(lines)}
    with opened(wheel) as source, zipfile.ZipFile(source) as archive:
        for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
            if member.is_dir() or not is_needed(member.filename):
                continue
            path = libtorch.extract(archive, member, site)
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
            if recorded.get(member.filename) != "sha256=" + digest.decode().rstrip("="):
                raise SystemExit(f"{member.filename} of {wheel} is not that of {built}")
            if member.external_attr >> 16 & 0o100:
                path.chmod(0o755)


def link_libraries(built, site):
    """Links, so that a process that loads both finds that they are one file."""
    for name in ("nvidia", info_of(built), *libtorch.LIBRARIES):
        link = site / name
        if name.startswith("nvidia/"):
            continue  # In its folder, a link too.
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((built / name).resolve(strict=True))


def symbols(library, *options):
    listed = subprocess.run(["nm", "-D", *options, library], check=True, capture_output=True,
                            text=True).stdout
    return [line.split() for line in listed.splitlines()]


def open_symbols(folder):
    """Maps each missing library to the names that the Python module wants from it."""
    standard = subprocess.run(["cc", "-print-file-name=libstdc++.so.6"], check=True,
                              capture_output=True, text=True).stdout.strip()
    known = set()
    for library in (standard, *(folder / name for name in
                                ("libc10.so", "libtorch_cpu.so", *LIBRARIES[:-1]))):
        known |= {line[-1].split("@")[0] for line in symbols(library, "--defined-only")}
    wanted = {name: [] for name in MISSING}
    for kind, symbol in (line[-2:] for line in symbols(folder / LIBRARIES[-1], "-u")):
        name, _, version = symbol.partition("@")
        if version in wanted:
            wanted[version].append(name)
        elif kind == "U" and not version and name not in known and re.match("_Z|cuFile", name):
            wanted[CUDA].append(name)
    return wanted


def stand_in(names):
    """Assembly of a library that has these names; what is called ends the process."""
    functions, data = [], []
    for name in names:
        head = f'.globl "{name}"\n.type "{name}",'
        if name.startswith("_ZTI"):
            data.append(f'{head}@object\n"{name}": .quad _ZTVN10__cxxabiv117__class_type_infoE+16\n'
                        f'.quad 1f, 0\n1: .asciz "{name[4:]}"\n.balign 16')
        elif name.startswith("_ZTV"):
            data.append(f'{head}@object\n"{name}": .zero 512')
        else:
            body = "ud2"
            if name in REFERENCES:
                body = "leaq nothing(%rip), %rax\nret"
            elif name in CONSTRUCTORS:
                body = CONSTRUCTOR.format(CONSTRUCTORS[name])
            functions.append(f'{head}@function\n"{name}": {body}')
    return "\n".join([".text", *functions, ".data", ".balign 16", "nothing: .zero 64", *data,
                      '.section .note.GNU-stack,"",@progbits', ""])


def make_stand_ins(folder):
    for library, names in open_symbols(folder).items():
        with tempfile.TemporaryDirectory() as work:
            source, versions = pathlib.Path(work, "names.S"), pathlib.Path(work, "versions")
            source.write_text(stand_in(names), encoding="utf-8")
            command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", source,
                       "-l:libstdc++.so.6", "-o", folder / library]
            if library != CUDA:
                versions.write_text(library + " { global: *; };\n", encoding="utf-8")
                command.append(f"-Wl,--version-script={versions}")
            subprocess.run(command, check=True)


def find_python():
    for candidate in (sys.executable, "python3.11", "/usr/bin/python3"):
        asked = subprocess.run([candidate, "-c", "import sys; print(sys.version_info[:2])"],
                               capture_output=True, text=True, check=False)
        if asked.stdout.strip() == str(PYTHON_VERSION):
            return candidate
    raise SystemExit("the torch wheel is for Python 3.11, which is not installed")


def main(wheel, small_wheels, built, target):
    built, home = pathlib.Path(built), pathlib.Path(target, "python")
    subprocess.run([find_python(), "-m", "venv", "--without-pip", home], check=True)
    site = home / "lib/python3.11/site-packages"
    unpack_torch(wheel, built, site)
    for small in sorted(pathlib.Path(small_wheels).glob("*.whl")):
        if not small.name.startswith("torch-"):
            unpack(small, site)
    link_libraries(built, site)
    make_stand_ins(site / "torch/lib")
    for name, text in WITHOUT_CUDA.items():
        (site / name).write_text(text, encoding="utf-8")
    subprocess.run([home / "bin/python3", "-c",
                    "import numpy, torch; torch.from_numpy(numpy.ones(3)).sum()"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    try:
        main(*sys.argv[1:])
    except NoParts as problem:
        print(problem, file=sys.stderr)
        sys.exit(NO_PARTS)
    except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as problem:
        raise SystemExit(str(problem)) from None
