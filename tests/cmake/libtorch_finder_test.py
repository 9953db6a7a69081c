"""find_package(LibTorch) searches where it says, and refuses with a sentence that helps."""
import os
import re
import sys
import unittest

import golden
import probe_project

sys.path.insert(0, str(probe_project.REPOSITORY / "src/cmake/setup"))
import libtorch  # noqa: E402

FIND = """\
cmake_minimum_required(VERSION 3.25)
project(Probe LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "@MODULES@")
# Not the Python of the machine, which may have a torch of its own, unless a case asks for one.
set(SPILLWAY_PYTHON3 "" CACHE FILEPATH "")
get_cmake_property(before VARIABLES)
find_package(LibTorch REQUIRED)
get_cmake_property(after VARIABLES)
list(REMOVE_ITEM after before ${before})
message(STATUS "left=${after};")
message(STATUS "minor=${SPILLWAY_TORCH_MINOR} root=${LibTorch_ROOT_DIR}")
get_target_property(definitions spillway_torch INTERFACE_COMPILE_DEFINITIONS)
message(STATUS "definitions=${definitions}")
""".replace("@MODULES@", (probe_project.REPOSITORY / "src/cmake").as_posix())


def torch_tree(folder, version):
    major, minor, patch = version.split(".")
    return {
        f"{folder}/lib/libtorch_cpu.so": "",
        f"{folder}/lib/libc10.so": "",
        f"{folder}/include/torch/csrc/api/include/torch/torch.h": "",
        f"{folder}/include/torch/headeronly/version.h":
            f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n"
            f"#define TORCH_VERSION_PATCH {patch}\n",
    }


class Finder(probe_project.ProbeCase):
    def find(self, files, *flags, **variables):
        environment = probe_project.search_environment(
            HOME=str(self.root / "home"), XDG_CACHE_HOME="", **variables)
        return self.configure("", files, preamble=FIND, flags=flags, environment=environment)

    def assert_found(self, outcome, folder, minor="2.11"):
        self.assert_accepted(outcome)
        found = re.search(r"minor=(\S*) root=(\S*) .*definitions=(\S*)", outcome[1])
        self.assertEqual(found.groups(), (minor, str(self.root / folder), "NDEBUG"))

    def test_named_folder_is_taken(self):
        self.assert_found(self.find(torch_tree("t", "2.11.0"),
                                    f"-DSPILLWAY_LIBTORCH_DIR={self.root / 't'}"), "t")

    def test_only_the_results_are_left_in_the_caller(self):
        fetched = "home/.cache/spillway/libtorch-2.11.0/torch"
        for folder, *flags in ((fetched,), ("t", f"-DSPILLWAY_LIBTORCH_DIR={self.root / 't'}")):
            outcome = self.find(torch_tree(folder, "2.11.0"), *flags)
            self.assert_found(outcome, folder)
            self.assertEqual(re.search(r"left=(\S*); ", outcome[1])[1].split(";"),
                             ["LibTorch_FOUND", "LibTorch_ROOT_DIR", "LibTorch_VERSION", "SPILLWAY_TORCH_MINOR"])

    def test_folder_above_torch_may_be_named(self):
        self.assert_found(self.find(torch_tree("t/torch", "2.11.3"),
                                    f"-DSPILLWAY_LIBTORCH_DIR={self.root / 't'}"), "t/torch")

    def test_environment_names_a_folder(self):
        self.assert_found(self.find(torch_tree("t", "2.11.0"),
                                    SPILLWAY_LIBTORCH_DIR=str(self.root / "t")), "t")

    def test_prefix_path_of_the_python_package_is_understood(self):
        files = {**torch_tree("site/torch", "2.11.0"), "site/torch/share/cmake/x": ""}
        self.assert_found(
            self.find(files, f"-DCMAKE_PREFIX_PATH={self.root / 'site/torch/share/cmake'}"),
            "site/torch")

    def test_torch_of_the_active_python_comes_before_the_fetched_copy(self):
        fetched = "home/.cache/spillway/libtorch-2.11.0/torch"
        files = {**torch_tree("site/torch", "2.11.0"), **torch_tree(fetched, "2.11.0"),
                 "bin/python3": f"""#!/bin/sh
case "$*" in "-c "*find_spec*torch*) echo {self.root / 'site/torch'} ;; *) exit 3 ;; esac
"""}
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        self.assert_found(self.find(files, "-DSPILLWAY_PYTHON3=NOTFOUND", PATH=path), "site/torch")

    def test_fetched_copy_is_found_last(self):
        folder = "home/.cache/spillway/libtorch-2.11.0/torch"
        self.assert_found(self.find(torch_tree(folder, "2.11.0")), folder)

    def test_other_minor_is_refused_by_name(self):
        named = f"-DSPILLWAY_LIBTORCH_DIR={self.root / 't'}"
        self.assert_refused(self.find(torch_tree("t", "2.6.1"), named),
                            "Spillway needs LibTorch 2.11, 2.12,", f"{self.root / 't'}: LibTorch 2.6.1 Fetch",
                            "fetch_libtorch.sh", "SPILLWAY_WITH_TORCH=OFF")
        self.assert_refused(self.find({}, named, "-DSPILLWAY_LIBTORCH=2.11"),
                            "Spillway needs LibTorch 2.11 (SPILLWAY_LIBTORCH).",
                            f"{self.root / 't'}: LibTorch 2.6.1 Fetch",
                            "fetch_libtorch.sh 2.11")

    def test_every_minor_that_is_served_can_be_asked_for(self):
        for release in libtorch.served():
            minor = release.rpartition(".")[0]
            folder = f"home/.cache/spillway/libtorch-{release}/torch"
            self.assert_found(self.find(torch_tree(folder, release), f"-DSPILLWAY_LIBTORCH={minor}"), folder, minor)

    def test_a_minor_that_is_not_served_cannot_be_asked_for(self):
        self.assert_refused(self.find({}, "-DSPILLWAY_LIBTORCH=2.6"),
                            "SPILLWAY_LIBTORCH=2.6 names no minor release", "serves: 2.11, 2.12")

    def test_other_minor_on_the_way_does_not_hide_a_good_one(self):
        folder = "home/.cache/spillway/libtorch-2.11.0/torch"
        files = {**torch_tree("old", "2.6.0"), **torch_tree(folder, "2.11.0")}
        self.assert_found(self.find(files, f"-DCMAKE_PREFIX_PATH={self.root / 'old'}"), folder)

    def test_named_folder_without_libtorch_is_refused(self):
        folder = "home/.cache/spillway/libtorch-2.11.0/torch"
        self.assert_refused(
            self.find(torch_tree(folder, "2.11.0"), f"-DSPILLWAY_LIBTORCH_DIR={self.root / 'no'}"),
            f"{self.root / 'no'}: no lib/libtorch_cpu.so with headers")

    def test_nothing_anywhere_tells_what_to_do(self):
        self.assert_refused(self.find({}), "Spillway needs LibTorch 2.11", "fetch_libtorch.sh 2.")


class OtherCores(probe_project.ProbeCase):
    """Libraries for other minor releases, in one build."""

    PROJECT = FIND.replace("LANGUAGES NONE", "LANGUAGES CXX") + """
include(SpillwayOtherCores)
spillway_import_other_torches()
add_library(spillway_below STATIC below/below.cpp)
add_library(spillway::below ALIAS spillway_below)
target_include_directories(spillway_below PUBLIC include)
target_link_libraries(spillway_below PUBLIC spillway_torch)
add_library(spillway_above STATIC above.cpp)
target_link_libraries(spillway_above PRIVATE spillway::below)
foreach(minor IN LISTS SPILLWAY_OTHER_MINORS)
  spillway_copy_for_torch(spillway_below ${minor})
  spillway_copy_for_torch(spillway_above ${minor})
endforeach()
"""
    # A function whose name tells which LibTorch it was compiled with.
    FILES = {
        "include/naming.h": "#include <torch/headeronly/version.h>\n"
                            "#define JOINED(name, minor) int name##_of_2_##minor() { return 0; }\n"
                            "#define DEFINE(name, minor) JOINED(name, minor)\n",
        **{file: f"#include <naming.h>\nDEFINE({name}, TORCH_VERSION_MINOR)\n"
           for name, file in (("below", "below/below.cpp"), ("above", "above.cpp"))},
    }

    def configure_with(self, others, *releases):
        files = dict(self.FILES)
        for release in releases:
            files.update(torch_tree(f"home/.cache/spillway/libtorch-{release}/torch", release))
        environment = probe_project.search_environment(HOME=str(self.root / "home"), XDG_CACHE_HOME="")
        return self.configure("", files, preamble=self.PROJECT, environment=environment,
                              flags=["-DSPILLWAY_LIBTORCH=2.11", f"-DSPILLWAY_OTHER_CORES={others}"])

    def test_each_is_compiled_with_its_libtorch_all_the_way_down(self):
        releases = list(libtorch.served())
        self.assert_accepted(self.configure_with("all", *releases))
        self.assert_accepted(self.build())
        for release in releases:
            minor = release.rpartition(".")[0]
            for name in ("below", "above"):
                ending = "" if minor == "2.11" else f"_{minor}"
                library = (self.root / f"build/libspillway_{name}{ending}.a").read_bytes()
                self.assertEqual(set(re.findall(rb"_of_(2_\d+)", library)),
                                 {minor.replace(".", "_").encode()}, (name, minor))

    def test_one_that_was_not_fetched_or_is_not_served_is_named(self):
        for other, releases in (("2.13", ["2.11.0"]), ("2.6", ["2.11.0", "2.6.0"])):
            self.assert_refused(self.configure_with(other, *releases),
                                f"SPILLWAY_OTHER_CORES names LibTorch {other}, which is not served or was not found",
                                "fetch_libtorch.sh VERSION")


class Options(probe_project.ProbeCase):
    """Asked for but impossible is an error that names the option."""

    def configure_spillway(self, *flags):
        return probe_project.run(
            ["cmake", "-G", "Ninja", "-S", probe_project.REPOSITORY, "-B", self.root / "build",
             "-DCMAKE_CXX_COMPILER_WORKS=TRUE", "-DCMAKE_C_COMPILER_WORKS=TRUE",
             "-DSPILLWAY_WITH_TORCH=OFF", "-DSPILLWAY_BUILD_TESTS=OFF", *flags],
            env=probe_project.search_environment())

    def check(self, option, path):
        outcome = self.configure_spillway(f"-D{option}=ON")
        if (probe_project.REPOSITORY / path).exists():
            self.skipTest(f"{path} exists")
        self.assert_refused(outcome, f"{option}=ON, but this version of Spillway has no {path}",
                            f"-D{option}=OFF")

    def test_cuda(self):
        without = f"-DSPILLWAY_CUDA_INCLUDES={self.root}"
        self.assert_refused(self.configure_spillway("-DSPILLWAY_WITH_CUDA=ON", without),
                            "SPILLWAY_WITH_CUDA=ON, but the headers of CUDA 13 were not found",
                            "-DSPILLWAY_WITH_CUDA=OFF")
        outcome = self.configure_spillway("-DSPILLWAY_WITH_CUDA=AUTO", without)
        self.assert_accepted(outcome)
        self.assertIn("No CUDA device: the headers of CUDA 13 were not found", outcome[1])

    def test_python(self):
        self.check("SPILLWAY_BUILD_PYTHON", "bindings/python")


CUDA_PART = """\
cmake_minimum_required(VERSION 3.25)
project(Probe LANGUAGES NONE)
include("@FOLDER@/find_cuda_part.cmake")
set(LibTorch_ROOT_DIR "${CMAKE_CURRENT_SOURCE_DIR}/libtorch-2.11.0/torch")
spillway_find_cuda_part(found reason)
message(STATUS "found=${found} reason=${reason}.")
""".replace("@FOLDER@", (probe_project.REPOSITORY / "tests/support/emulated_cuda").as_posix())


class CudaPart(probe_project.ProbeCase):
    """Where the build looks for what the tests on an emulated CUDA need."""

    FLAGS = ("-DSPILLWAY_WITH_TORCH=ON", "-DSPILLWAY_TORCH_MINOR=2.11", "-DSPILLWAY_SANITIZE=")

    def find(self, folder, *flags):
        files = {f"{folder}/torch/lib/libtorch_cuda.so": "", f"{folder}/nvidia/cu13/include/crt/host_defines.h": ""}
        status, output = self.configure("", files, preamble=CUDA_PART, flags=(*self.FLAGS, *flags))
        self.assertEqual(status, 0, output)
        return re.search(r"found=(\S*) reason=(.*)\. -- Configuring", output).groups()

    def test_beside_what_was_fetched(self):
        self.assertEqual(self.find("libtorch-2.11.0-cuda"), (str(self.root / "libtorch-2.11.0-cuda"), ""))

    def test_in_a_whole_wheel(self):
        self.assertEqual(self.find("libtorch-2.11.0"), (str(self.root / "libtorch-2.11.0"), ""))

    def test_where_it_is_not_the_command_that_fetches_it_is_told(self):
        found, reason = self.find("elsewhere")
        self.assertEqual(found, "")
        golden.check_part(self, golden.masked(reason, (str(self.root), "ROOT")))

    def test_what_stands_against_it_is_told(self):
        for flag, reason in (("SPILLWAY_WITH_TORCH=OFF", "SPILLWAY_WITH_TORCH is OFF"),
                             ("SPILLWAY_SANITIZE=thread", "SPILLWAY_SANITIZE is set"),
                             ("SPILLWAY_TORCH_MINOR=2.15", "it is there for LibTorch 2.11, not 2.15")):
            with self.subTest(flag):
                self.assertEqual(self.find("libtorch-2.11.0-cuda", f"-D{flag}"), ("", reason))


if __name__ == "__main__":
    unittest.main()
