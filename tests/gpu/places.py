"""Where programs, data and LibTorch are: in a build tree, or in a folder that was packed from one."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("src/cmake/setup", "tests/support", "benchmarks")]
from clean_environment import clean_environment  # noqa: E402  pylint: disable=wrong-import-position
from small_gpu import SMALL_GPU  # noqa: E402  pylint: disable=wrong-import-position

LARGEST_FOLDER = 64 << 20
SERVED = "2.11."  # The LibTorch whose CUDA part is served, built for CUDA 13.
EXAMPLES = ("brain_unet", "photo_net", "text_gpt")
GPU_TESTS = ("device_cuda", "memory_cuda", "swap_cuda", "nccl")
PROGRAMS = (*(f"{name}_on_cuda" for name in EXAMPLES), "spillway_gpu_figures_on_cuda",
            "spillway_gpu_store_rates", "spillway", "spillway-planning",
            *(f"spillway_{name}_test" for name in GPU_TESTS))
LIBRARIES = ("libspillway_preload.so", "libspillway_core_2.11.so", "libspillway_core_2.11_cuda.so",
             "libspillway_managed_memory.so")
MOST_DATA = 4 << 20  # Bytes for an example that are taken along, of small files first.
# Of each example: the option, the folder, and what is read of it.
DATA = {"brain_unet": ("--data", "/usr/share/mricron/templates", ("ch2.nii.gz", "aal.nii.gz", "aal.nii.txt")),
        "photo_net": ("--photos", "/usr/share/backgrounds", ("*.jpg",)),
        "text_gpt": ("--text", "/usr/share/common-licenses", ("*",))}
SCRIPTS = ("tests/gpu", "tests/support", "tests/bindings/equality", "tests/bindings/awkward", "src/cmake/setup",
           "benchmarks/measure")
# What every system with LibTorch has, or LibTorch brings along.
ELSEWHERE = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s|gomp)\.so"
                       r"|lib(torch|c10|shm|nv|cu|nccl))")


class Unusable(Exception):
    """Why nothing can be measured here."""


def installed_torch():
    """The folder of the LibTorch that SPILLWAY_LIBTORCH_DIR names, else of the torch of python3."""
    named = os.environ.get("SPILLWAY_LIBTORCH_DIR")
    if not named:
        words = ["python3", "-c", "import importlib.util as u; s = u.find_spec('torch'); "
                 "print(s.submodule_search_locations[0] if s else '')"]
        named = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    cure = (f"name the folder `torch` of LibTorch {SERVED}x for CUDA 13: export SPILLWAY_LIBTORCH_DIR=/path/to/torch; "
            "a machine without a GPU can rehearse: ./test.sh --gpu --emulated")
    if not named:
        raise Unusable(f"no LibTorch: SPILLWAY_LIBTORCH_DIR names none, and python3 has no torch ({cure})")
    torch = pathlib.Path(named)
    if not (torch / "lib/libtorch_cuda.so").exists():
        raise Unusable(f"the LibTorch in {torch} has no CUDA part ({cure})")
    version_file = torch / "version.py"
    if version_file.exists():
        version = re.search(r"__version__ = '([^']*)'", version_file.read_text(encoding="utf-8"))
        if not version or not version[1].startswith(SERVED) or "+cu12" in version[1]:
            raise Unusable(f"{torch} is LibTorch {version[1] if version else '?'}; {SERVED}x for CUDA 13 is served")
    return torch


class Place:
    """`programs` and `libraries`, and what surrounds them."""

    def __init__(self, build, emulated):
        self.emulated = emulated
        self.packed = (ROOT / "packed").exists()
        base = ROOT if self.packed else build
        self.bin, self.lib = base / "bin", base / "lib"
        self.suffix = "_on_emulated_cuda" if emulated else "_on_cuda"
        if emulated:
            self.torch = build / "emulated/torch"
            search = [self.bin.parent / "emulated/nvidia/cu13/lib"]
        else:
            self.torch = installed_torch()
            search = [self.torch / "lib", *sorted((self.torch.parent / "nvidia").glob("*/lib")), self.lib]
        self.variables = {"LD_LIBRARY_PATH": ":".join(map(str, search)), "SPILLWAY_LIBTORCH_DIR": str(self.torch),
                          **(SMALL_GPU if emulated else {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})}

    def require(self, tests):
        """All programs and libraries that parts use, and these test programs; before anything is measured."""
        names = [*(f"{name}{self.suffix}" for name in (*EXAMPLES, "spillway_gpu_figures")), "spillway_gpu_store_rates",
                 "spillway", "spillway-planning", *(f"spillway_{name}_test" for name in tests)]
        files = [*(self.bin / name for name in names), *(self.lib / name for name in LIBRARIES)]
        missing = [f"{file.parent.name}/{file.name}" for file in files if not file.exists()]
        if missing:
            target = "spillway_emulated_programs" if self.emulated else "spillway_gpu_programs"
            raise Unusable(f"{self.bin.parent} lacks {', '.join(missing)} (built by: cmake --preset release && "
                           f"cmake --build --preset release --target {target})")

    def program(self, name):
        return self.bin / name

    def example(self, name):
        return self.program(name + self.suffix)

    def data(self, name):
        """The folder and the words that name it; None where it is not on this machine."""
        option, folder, patterns = DATA[name]
        folder = ROOT / "data" / name if self.packed else pathlib.Path(folder)
        files = files_in(folder, patterns)
        if len(files) < len(patterns):
            return None
        return folder, [option, *(map(str, files) if name == "text_gpt" else [str(folder)])]

    def environment(self, **more):
        return clean_environment(**{**self.variables, **more})


def needed_libraries(files):
    """Libraries beside those that are everywhere, as the loader finds them here."""
    found = {}
    for file in files:
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.MULTILINE):
            if not ELSEWHERE.match(name) and not name.startswith("libspillway"):
                found[name] = pathlib.Path(path).resolve()
    return found


def files_in(folder, patterns):
    return sorted(file for pattern in patterns for file in folder.glob(pattern) if file.is_file())


def copy_data(target):
    for name, (_, folder, patterns) in DATA.items():
        (target / name).mkdir(parents=True)
        files = files_in(pathlib.Path(folder), patterns)
        if not files:
            print(f"not taken along: {folder}, which {name} trains on")
        room = MOST_DATA
        for file in sorted(files, key=lambda each: each.stat().st_size):
            room -= file.stat().st_size
            if room >= 0:
                shutil.copy(file, target / name)


def pack(build, folder):
    """All that a machine with a GPU and without network needs, stripped."""
    if folder.exists():
        shutil.rmtree(folder)
    for part in ("bin", "lib"):
        (folder / part).mkdir(parents=True)
    copied = []
    for source in (*(build / "bin" / name for name in PROGRAMS), *(build / "lib" / name for name in LIBRARIES)):
        target = folder / source.parent.name / source.name
        if not source.exists():
            raise Unusable(f"{source} is missing (built by: cmake --build --preset release --target "
                           "spillway_gpu_programs)")
        subprocess.run(["strip", "-o", str(target), str(source)], check=True)
        copied.append(source)
    for name, path in needed_libraries(copied).items():
        shutil.copy(path, folder / "lib" / name)
    copy_data(folder / "data")
    for part in SCRIPTS:
        shutil.copytree(ROOT / part, folder / part,
                        ignore=shutil.ignore_patterns("__pycache__", "*.cpp", "*.h", "emulated_cuda"))
    shutil.copy(ROOT / "test.sh", folder)
    (folder / "packed").touch()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size >= LARGEST_FOLDER:
        raise Unusable(f"{folder} has {size >> 20} MiB, and {LARGEST_FOLDER >> 20} are the most that is taken along")
    print(f"{folder}: {size >> 20} MiB. On the machine with the GPU: {folder.name}/test.sh --gpu")
