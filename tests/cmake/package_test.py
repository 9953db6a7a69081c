"""What is installed is found by find_package(Spillway), links and runs."""
import os
import re
import unittest

import probe_project

INSTALLED = f"""\
cmake_minimum_required(VERSION 3.25)
set(CMAKE_CXX_COMPILER_WORKS TRUE)
project(Spillway VERSION 0.1.0 LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{probe_project.REPOSITORY.as_posix()}/src/cmake")
set(SPILLWAY_WITH_TORCH OFF)
set(SPILLWAY_WITH_IO_URING OFF)
set(SPILLWAY_WITH_CLP OFF)
set(SPILLWAY_BUILD_TESTS OFF)
include(SpillwayCompiler)
include(SpillwayThirdParty)
include(SpillwayLibrary)
spillway_add_library(base LAYER 0 SOURCES base.cpp PRIVATE_DEPENDS xxhash::xxhash spdlog::spdlog)
spillway_add_library(spillway LAYER 5 SOURCES a.cpp HEADERS include/spillway/a.h
                     PRIVATE_DEPENDS spillway::base)
include(SpillwayInstall)
"""
FILES = {
    "base.cpp": "#include <xxhash.h>\nunsigned long hash() { return XXH3_64bits(\"a\", 1); }\n",
    "a.cpp": "#include \"spillway/a.h\"\nunsigned long hash();\n"
             "int answer() { return hash() ? 42 : 0; }\n",
    "include/spillway/a.h": "#pragma once\nint answer();\n",
}
USER = """\
cmake_minimum_required(VERSION 3.25)
set(CMAKE_CXX_COMPILER_WORKS TRUE)
project(User LANGUAGES C CXX)
get_cmake_property(before VARIABLES)
find_package(Spillway @VERSION@ REQUIRED)
get_cmake_property(after VARIABLES)
list(REMOVE_ITEM after before ${before})
foreach(name IN LISTS after)
  if(NOT DEFINED CACHE{${name}} AND NOT name MATCHES "^Spillway_")
    list(APPEND stray ${name})
  endif()
endforeach()
message(STATUS "stray=${stray};")
add_executable(user main.cpp)
target_link_libraries(user PRIVATE spillway::spillway)
"""
MAIN = "#include <spillway/a.h>\nint main() { return answer() == 42 ? 0 : 1; }\n"


class Package(probe_project.ProbeCase):
    def setUp(self):
        super().setUp()
        self.assert_accepted(self.configure("", FILES, preamble=INSTALLED))
        self.assert_accepted(self.build())
        self.prefix = self.root / "prefix"
        self.assert_accepted(probe_project.run(
            ["cmake", "--install", self.root / "build", "--prefix", self.prefix]))

    def configure_user(self, version):
        probe_project.write(self.root / "user", {
            "CMakeLists.txt": USER.replace("@VERSION@", version), "main.cpp": MAIN})
        return probe_project.run(
            ["cmake", "-G", "Ninja", "-S", self.root / "user", "-B", self.root / "user/build",
             f"-DCMAKE_PREFIX_PATH={self.prefix}"], env=probe_project.search_environment())

    def test_installed_package_links_and_runs(self):
        self.assert_accepted(self.configure_user("0.1"))
        self.assert_accepted(probe_project.run(["cmake", "--build", self.root / "user/build"]))
        self.assert_accepted(probe_project.run([self.root / "user/build/user"]))

    def test_no_stray_variable_is_left_in_the_caller(self):
        outcome = self.configure_user("0.1")
        self.assert_accepted(outcome)
        self.assertEqual(re.search(r"stray=(\S*); ", outcome[1])[1], "")

    def test_other_minor_version_is_refused(self):
        self.assert_refused(self.configure_user("0.2"), "Spillway", "0.1.0")

    def test_moved_package_still_works(self):
        moved = self.root / "moved"
        os.rename(self.prefix, moved)
        self.prefix = moved
        self.assert_accepted(self.configure_user("0.1"))
        self.assert_accepted(probe_project.run(["cmake", "--build", self.root / "user/build"]))

    def test_installed_files_name_no_folder_of_the_build(self):
        for path in (self.prefix / "lib/cmake").rglob("*.cmake"):
            self.assertNotIn(str(self.root / "build"), path.read_text(encoding="utf-8"), path)


if __name__ == "__main__":
    unittest.main()
