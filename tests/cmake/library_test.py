"""spillway_add_library accepts downward arrows and names both sides of any other."""
import unittest

import probe_project

SOURCE = {"a.cpp": "int a() { return 1; }\n", "b.cpp": "int b() { return 2; }\n"}
LOW = "spillway_add_library(low LAYER 1 SOURCES a.cpp)\n"


class Library(probe_project.ProbeCase):
    def test_arrow_to_a_lower_layer_is_accepted(self):
        self.assert_accepted(self.configure(
            LOW + "spillway_add_library(high LAYER 2 SOURCES b.cpp DEPENDS spillway::low)\n", SOURCE))
        self.assert_accepted(self.build())

    def test_upward_arrow_names_both_sides(self):
        self.assert_refused(self.configure(
            "spillway_add_library(high LAYER 2 SOURCES b.cpp)\n"
            "spillway_add_library(low LAYER 1 SOURCES a.cpp DEPENDS spillway::high)\n", SOURCE),
            "spillway::low (layer 1", "spillway::high (layer 2)", "strictly lower layer")

    def test_arrow_between_siblings_names_both_sides(self):
        self.assert_refused(self.configure(
            LOW + "spillway_add_library(other LAYER 1 SOURCES b.cpp DEPENDS spillway::low)\n", SOURCE),
            "spillway::other (layer 1", "spillway::low (layer 1)", "strictly lower layer")

    def test_private_arrow_is_checked_too(self):
        self.assert_refused(self.configure(
            LOW + "spillway_add_library(other LAYER 1 SOURCES b.cpp PRIVATE_DEPENDS spillway::low)\n",
            SOURCE), "PRIVATE_DEPENDS spillway::low (layer 1)")

    def test_real_target_name_does_not_dodge_the_check(self):
        self.assert_refused(self.configure(
            LOW + "spillway_add_library(other LAYER 1 SOURCES b.cpp DEPENDS spillway_low)\n", SOURCE),
            "spillway_low (layer 1)")

    def test_unknown_dependency_is_named(self):
        self.assert_refused(self.configure(
            "spillway_add_library(low LAYER 1 SOURCES a.cpp DEPENDS spillway::lwo)\n", SOURCE),
            "spillway::low", "DEPENDS spillway::lwo, which is not defined")

    def test_unknown_argument_is_named(self):
        self.assert_refused(self.configure(
            "spillway_add_library(low SHARED LAYER 1 SOURCES a.cpp)\n", SOURCE),
            "spillway_add_library(low) has unknown arguments: SHARED")

    def test_layer_is_required(self):
        self.assert_refused(self.configure("spillway_add_library(low SOURCES a.cpp)\n", SOURCE),
                            "needs LAYER <number>")

    def test_sources_are_required(self):
        self.assert_refused(self.configure("spillway_add_library(low LAYER 1)\n", SOURCE),
                            "needs SOURCES")

    def test_argument_without_value_is_named(self):
        self.assert_refused(self.configure(
            "spillway_add_library(low LAYER 1 SOURCES a.cpp DEPENDS)\n", SOURCE),
            "arguments without a value: DEPENDS")

    def test_public_header_elsewhere_is_refused(self):
        self.assert_refused(self.configure(
            "spillway_add_library(low LAYER 1 SOURCES a.cpp HEADERS a.h)\n",
            {**SOURCE, "a.h": "#pragma once\n"}), "public header a.h outside include/spillway/")

    def test_third_party_target_may_not_be_public(self):
        self.assert_refused(self.configure(
            "add_library(foreign::lib INTERFACE IMPORTED)\n"
            "spillway_add_library(low LAYER 1 SOURCES a.cpp DEPENDS foreign::lib)\n", SOURCE),
            "foreign::lib, which is not a Spillway library", "PRIVATE_DEPENDS")

    def test_third_party_target_may_be_private(self):
        self.assert_accepted(self.configure(
            "add_library(foreign::lib INTERFACE IMPORTED)\n"
            "spillway_add_library(low LAYER 1 SOURCES a.cpp PRIVATE_DEPENDS foreign::lib)\n", SOURCE))


class Headers(probe_project.ProbeCase):
    FILES = {
        "low/CMakeLists.txt":
            "spillway_add_library(low LAYER 1 SOURCES a.cpp HEADERS include/spillway/low/a.h)\n",
        "low/include/spillway/low/a.h": "#pragma once\nint a();\n",
        "low/a.cpp": "#include \"spillway/low/a.h\"\nint a() { return 1; }\n",
        "high/b.cpp": "#include \"spillway/low/a.h\"\nint b() { return a(); }\n",
    }
    FOLDERS = "add_subdirectory(low)\nadd_subdirectory(high)\n"

    def with_high(self, arguments):
        call = f"spillway_add_library(high LAYER 2 SOURCES b.cpp {arguments})\n"
        return {**self.FILES, "high/CMakeLists.txt": call}

    def test_include_with_link_compiles(self):
        self.assert_accepted(self.configure(self.FOLDERS, self.with_high("DEPENDS spillway::low")))
        self.assert_accepted(self.build())

    def test_include_without_link_does_not_compile(self):
        self.assert_accepted(self.configure(self.FOLDERS, self.with_high("")))
        self.assert_refused(self.build(), "spillway/low/a.h: No such file or directory")

    def test_header_that_forgets_an_include_is_caught(self):
        files = {**self.FILES, "low/include/spillway/low/a.h": "#pragma once\nstd::string a();\n",
                 "low/a.cpp": "#include <string>\n#include \"spillway/low/a.h\"\n"}
        self.assert_accepted(self.configure("add_subdirectory(low)\n", files))
        self.assert_accepted(self.build())
        self.assert_refused(self.build("all_verify_interface_header_sets"), "string")


if __name__ == "__main__":
    unittest.main()
