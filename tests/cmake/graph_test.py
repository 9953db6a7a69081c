"""The arrows that CMake draws are those of the layer table."""
import os
import re
import subprocess
import unittest

import probe_project

# What each library may link directly.
TABLE = {
    "base": set(),
    "device": {"base"},
    "transport": {"base", "device"},
    "survey": {"base", "device", "transport"},
    "transport_nccl": {"base", "device", "device_cuda", "transport"},
    "topology": {"base"},
    "profile": {"base"},
    "device_cuda": {"base", "device", "topology"},
    "planner": {"base", "topology", "profile"},
    "profile_import": {"base", "profile"},
    "planner_clp": {"base", "planner"},
    "partition": {"base", "schedule"},
    "schedule": {"base"},
    "planner_schedule": {"base", "schedule"},
    "cluster": {"base", "planner_schedule", "profile", "schedule"},
    "layer_order": {"base", "partition"},
    "job": {"base", "layer_order", "planner", "partition", "planner_schedule", "profile", "schedule"},
    "machine": {"base", "cluster", "job"},
    "memory": {"base", "device"},
    "memory_cuda": {"base", "device", "device_cuda", "memory"},
    "allreduce": {"base", "device", "transport"},
    "recompute_call": {"base"},
    "recompute": {"base", "device", "recompute_call", "torch"},
    "ownership": {"base", "schedule"},
    "agreement": {"base", "device", "ownership", "transport"},
    "tasks": {"base", "ownership", "schedule"},
    "balance": {"base", "ownership", "partition"},
    "swap": {"base", "device", "memory"},
    "phantoms": {"recompute", "torch"},
    "split": {"agreement", "allreduce", "balance", "ownership", "phantoms", "planner_schedule", "preload_headers",
              "device_cuda", "profile", "recompute", "runtime", "schedule", "survey", "tasks", "torch", "transport",
              "transport_nccl"},
    "runtime_recording": {"base", "profile", "swap"},
    "runtime_recomputing": {"base", "memory", "profile", "recompute_call", "swap"},
    "runtime_learning": {"base", "device", "memory", "planner", "profile", "runtime_recording",
                         "swap"},
    "runtime_settings": {"base", "device", "memory", "planner", "planner_schedule", "profile",
                         "runtime_learning", "swap", "topology"},
    "runtime_reporting": {"base", "planner", "profile", "runtime_learning", "swap", "topology"},
    "runtime": {"base", "device", "transport", "topology", "profile", "device_cuda", "planner",
                "schedule", "memory", "allreduce", "recompute", "recompute_call", "swap",
                "runtime_recording", "runtime_recomputing", "runtime_learning",
                "runtime_settings", "runtime_reporting"},
}
# Build-tree helpers and the parts of LibTorch; they are in no layer.
IGNORED = {"warnings", "torch_cpu", "c10", "torch_pch"}
ARROW = re.compile(r"//\s*(\S+)\s*->\s*(\S+)")


def arrows(dot):
    """Pairs (from, to) of Spillway's libraries, without the prefix."""
    found = set()
    for source, target in ARROW.findall(dot):
        names = [re.sub(r"^spillway(?:_|::)", "", name) for name in (source, target)]
        spillway = all(re.match(r"spillway(_|::)", name) for name in (source, target))
        if spillway and not IGNORED & set(names):
            found.add(tuple(names))
    return found


def strangers(found):
    """The arrows that the table does not have."""
    return sorted(f"{source} -> {target}" for source, target in found
                  if source in TABLE and target not in TABLE[source])


class Graph(probe_project.ProbeCase):
    def drawing(self, *flags):
        dot = self.root / "graph.dot"
        self.assert_accepted(probe_project.run(
            ["cmake", "-G", "Ninja", "-S", probe_project.REPOSITORY, "-B", self.root / "build",
             f"--graphviz={dot}", "-DSPILLWAY_BUILD_TESTS=OFF", *flags]))
        return arrows(dot.read_text(encoding="utf-8"))

    def test_arrows_are_those_of_the_table(self):
        with_torch = os.environ["SPILLWAY_TEST_WITH_TORCH"]
        found = self.drawing(f"-DSPILLWAY_WITH_TORCH={with_torch}")
        self.assertEqual(strangers(found), [])

    def test_arrows_without_torch_are_those_of_the_table(self):
        found = self.drawing("-DSPILLWAY_WITH_TORCH=OFF")
        self.assertEqual(strangers(found), [])
        self.assertNotIn("torch", {target for _source, target in found})

    def test_a_build_without_clp_looks_for_nothing_of_coin_or(self):
        for switch, is_linked in (("ON", True), ("OFF", False)):
            self.drawing("-DSPILLWAY_WITH_TORCH=OFF", f"-DSPILLWAY_WITH_CLP={switch}", "--fresh")
            cache = (self.root / "build/CMakeCache.txt").read_text(encoding="utf-8")
            self.assertEqual("coinor" in cache, is_linked, switch)
            drawn = (self.root / "graph.dot").read_text(encoding="utf-8")
            self.assertEqual("coinor::clp" in drawn, is_linked, switch)
            self.assertIn(("planning_parts", "planner_clp"), arrows(drawn))

    def quick_start_edges(self, flags, targets):
        """The commands that build `targets`, and the text of each unit of several sources."""
        folder = self.root / "build"
        self.assert_accepted(probe_project.run(
            ["cmake", *flags, "-S", probe_project.REPOSITORY, "-B", folder]))
        commands = subprocess.run(["ninja", "-C", folder, "-t", "commands", *targets], stdout=subprocess.PIPE,
                                  text=True, check=True).stdout
        units = {path: path.read_text(encoding="utf-8") for path in folder.rglob("unity_*")}
        return set(commands.splitlines()), units

    @unittest.skipUnless(os.environ.get("SPILLWAY_TEST_WITH_TORCH") == "ON", "the demo needs LibTorch")
    def test_the_quick_start_builds_few_targets_and_none_twice(self):
        script = (probe_project.REPOSITORY / "quickstart.sh").read_text(encoding="utf-8")
        flags = re.search(r'cmake (--preset .*) "\$@"', script).group(1).split()
        early = re.search(r"^ +build (bin/.*)$", script, re.MULTILINE).group(1).split()
        programs = re.search(r"^programs=\((.*)\)$", script, re.MULTILINE).group(1)
        others = re.search(r'^build "\$\{programs\[@\]\}" (.*)$', script, re.MULTILINE).group(1)
        without, units = self.quick_start_edges([*flags, "-DSPILLWAY_WITH_TORCH=OFF"], early)
        complete, units_later = self.quick_start_edges(
            [*flags, "-DSPILLWAY_WITH_TORCH=ON"], [*programs.split(), *others.split()])
        self.assertTrue(any("libspillway_swap.a" in command for command in without))
        self.assertTrue(any("brain_unet" in command for command in complete))
        self.assertFalse(any(".gch" in command for command in complete))
        self.assertEqual(without - complete, set())
        self.assertEqual({path for path in units if units[path] != units_later.get(path)}, set())
        self.assertLess(len(complete), 160)

    def test_arrows_are_read_from_a_real_drawing(self):
        dot = self.root / "probe.dot"
        self.assert_accepted(self.configure(
            "spillway_add_library(base LAYER 0 SOURCES a.cpp)\n"
            "spillway_add_library(device LAYER 1 SOURCES a.cpp DEPENDS spillway::base)\n"
            "spillway_add_library(topology LAYER 2 SOURCES a.cpp PRIVATE_DEPENDS spillway::device)\n",
            {"a.cpp": ""}, flags=[f"--graphviz={dot}"]))
        found = arrows(dot.read_text(encoding="utf-8"))
        self.assertEqual(found, {("device", "base"), ("topology", "device")})
        self.assertEqual(strangers(found), ["topology -> device"])

    def test_stranger_is_noticed(self):
        dot = ('"node1" -> "node2"  // spillway_swap -> spillway_memory\n'
               '"node2" -> "node3"  // spillway_memory -> spillway_transport\n'
               '"node2" -> "node4" [ style = dotted ] // spillway_memory -> spillway_torch\n'
               '"node2" -> "node5" [ style = dotted ] // spillway_memory -> spillway_warnings\n')
        self.assertEqual(strangers(arrows(dot)), ["memory -> torch", "memory -> transport"])

    def test_libraries_are_in_the_table(self):
        layered = re.compile(r"spillway_add_library\(\s*(\w+)\s+LAYER\s+\d+\b")
        names = set()
        for folder in ("src", "memory", "swap", "recompute", "pipeline", "allreduce", "bindings"):
            for path in (probe_project.REPOSITORY / folder).rglob("CMakeLists.txt"):
                names |= set(layered.findall(path.read_text(encoding="utf-8")))
        self.assertEqual(names, set(TABLE))


if __name__ == "__main__":
    unittest.main()
