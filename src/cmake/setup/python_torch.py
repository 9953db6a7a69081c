#!/usr/bin/env python3
"""Makes a Python with torch out of the LibTorch wheels and a few small ones, for tests.

  python_torch.py <folder of wheels> <target>

<target> is what `libtorch.py unpack` has filled. Afterwards <target>/python/bin/python3 imports
torch and numpy, on the CPU. The wheel's Python module is linked with libraries of CUDA that would
take 3 GB; nothing calls them without a GPU, so stand-ins are made that only have their names.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

PYTHON_VERSION = (3, 11)
LIBRARIES = ("libc10_cuda.so", "libshm.so", "libtorch.so", "libtorch_global_deps.so",
             "libtorch_python.so")
CUDA = "libtorch_cuda.so"
MISSING = (CUDA, "libcudnn.so.9", "libcufile.so.0")
# Asked for while the module is imported: a reference to an empty pointer.
REFERENCES = {"_ZN4c10d15get_gil_checkerEv"}


def is_needed(name):
    if name.startswith("torch/lib/"):
        return name.removeprefix("torch/lib/") in LIBRARIES
    if name.startswith("torch/bin/"):
        return name == "torch/bin/torch_shm_manager"
    return (name.startswith(("torch/", "torchgen/", "functorch/"))
            and not name.startswith(("torch/include/", "torch/share/", "torch/test/")))


def unpack(wheel, target, is_wanted):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = target / member.filename
            if member.is_dir() or path.exists() or not is_wanted(member.filename):
                continue
            if not path.resolve().is_relative_to(target.resolve()):
                raise SystemExit(f"{wheel.name} names {member.filename}, outside its folder")
            archive.extract(member, target)
            if member.external_attr >> 16 & 0o100:
                path.chmod(0o755)


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
            body = "leaq nothing(%rip), %rax\nret" if name in REFERENCES else "ud2"
            functions.append(f'{head}@function\n"{name}": {body}')
    return "\n".join([".text", *functions, ".data", ".balign 16", "nothing: .zero 64", *data,
                      '.section .note.GNU-stack,"",@progbits', ""])


def make_stand_ins(target):
    folder = target / "torch/lib"
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
    raise SystemExit("the wheel is for Python 3.11, which is not installed")


def make_environment(target):
    """An environment whose modules are those beside it, wherever the folder is moved to."""
    home = target / "python"
    subprocess.run([find_python(), "-m", "venv", "--without-pip", home], check=True)
    site = home / "lib/python3.11/site-packages"
    (site / "torch_beside.pth").write_text(os.path.relpath(target, site) + "\n", encoding="utf-8")
    return home / "bin/python3"


def main(wheels, target):
    wheels, target = pathlib.Path(wheels), pathlib.Path(target)
    for wheel in sorted(wheels.glob("*.whl")):
        if wheel.name.startswith("torch-"):
            unpack(wheel, target, is_needed)
        elif not wheel.name.startswith("nvidia_"):
            unpack(wheel, target, lambda name: True)
    make_stand_ins(target)
    python = make_environment(target)
    subprocess.run([python, "-c", "import numpy, torch; torch.from_numpy(numpy.ones(3)).sum()"],
                   check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, subprocess.CalledProcessError) as problem:
        raise SystemExit(f"no Python with torch: {problem}")
