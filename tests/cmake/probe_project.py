"""A throw-away CMake project around the functions of src/cmake."""
import pathlib
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

PREAMBLE = f"""\
cmake_minimum_required(VERSION 3.25)
set(CMAKE_CXX_COMPILER_WORKS TRUE)
project(Probe LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{REPOSITORY.as_posix()}/src/cmake")
include(GNUInstallDirs)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)
add_library(spillway_warnings INTERFACE)
include(SpillwayLibrary)
"""


def run(command, **keywords):
    """Runs a command; returns its status and its output with all runs of white space made one."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **keywords)
    return done.returncode, " ".join(done.stdout.split())


def search_environment(**variables):
    """One in which nothing steers CMake's search for LibTorch but `variables`."""
    return clean_environment("CMAKE_PREFIX_PATH", **variables)


def write(root, files):
    for name, text in files.items():
        path = pathlib.Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)


class ProbeCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def configure(self, calls, files=None, preamble=PREAMBLE, flags=(), environment=None):
        write(self.root, {"CMakeLists.txt": preamble + calls, **(files or {})})
        return run(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.root / "build", *flags],
                   env=environment or search_environment())

    def build(self, target="all"):
        return run(["cmake", "--build", self.root / "build", "--target", target])

    def assert_refused(self, outcome, *sentences):
        status, output = outcome
        self.assertNotEqual(status, 0, output)
        for sentence in sentences:
            self.assertIn(sentence, output)

    def assert_accepted(self, outcome):
        status, output = outcome
        self.assertEqual(status, 0, output)
