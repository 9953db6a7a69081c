"""`spillway profile` with a real trainer: what is written, in-core and under a budget."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from slow_cases import slow

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_TRAINER"]
WORK = os.environ["SPILLWAY_TEST_WORK"]
# Parameters and what Adam keeps of them are large, activations small.
FLAGS = ("--preset", "tiny", "--batch", "1", "--context", "64", "--width", "576",
         "--warmup-steps", "2", "--threads", "2", "--seed", "1")


class Profile:
    def __init__(self, path):
        self.json = json.loads(path.read_text(encoding="utf-8"))
        self.ops = self.json["ops"]
        self.values = self.json["values"]
        self.uses = self.json["uses"]
        self.page = self.json["page_bytes"]

    def shape(self):
        """All but what is measured."""
        ops = {key: self.ops[key] for key in ("kind", "inside_peak_pages", "use_count")}
        return self.json["kinds"], ops, self.uses, self.values

    def bytes_of_class(self, name):
        wanted = self.json["classes"].index(name)
        return sum(size for size, held in zip(self.values["bytes"], self.values["class"])
                   if held == wanted)

    def levels(self, size_of):
        """What is alive before each operator, and inside of it, by `size_of` a value."""
        count = len(self.ops["kind"])
        changes = [0] * (count + 1)
        born = [0] * count
        for value, (birth, death) in enumerate(zip(self.values["birth"], self.values["death"])):
            size = size_of(value)
            changes[max(birth, 0)] += size
            changes[count if death < 0 else death + 1] -= size
            if birth >= 0:
                born[birth] += size
        level = 0
        for op in range(count):
            level += changes[op]
            yield level - born[op], level


class RecordedProfile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def profile(self, name, *options, steps=5, trainer=(), status=0):
        """(profile or None, statistics, what was said)"""
        path, statistics = self.folder / name, self.folder / f"{name}.stats"
        run = subprocess.run([COMMAND, "profile", "--out", path, "--nvme", self.folder,
                              "--stats", statistics, *options, "--", TRAINER, *FLAGS, *trainer,
                              "--steps", str(steps)],
                             env=clean_environment(), stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                             check=False)
        self.assertEqual(run.returncode, status, run.stdout)
        written = Profile(path) if path.exists() else None
        return written, json.loads(statistics.read_text(encoding="utf-8")), run.stdout

    def test_tells_what_a_step_does(self):
        profile, statistics, said = self.profile("whole")
        self.assertEqual((profile.json["format"], profile.json["version"]), ("spillway-profile", 1))
        self.assertEqual(profile.json["origin"]["source"], "recorded")
        self.assertEqual(profile.json["origin"]["program"], TRAINER)
        self.assertEqual(profile.json["origin"]["threads"], 2)
        counted = re.findall(r"\[spillway\] profile +\S+: (\d+) operators, (\d+) values", said)
        self.assertEqual(counted, [(str(len(profile.ops["kind"])), str(len(profile.values["bytes"])))], said)
        names = set(profile.json["kinds"]["name"])
        self.assertTrue({"aten::addmm", "aten::mm", "aten::addcdiv_"} & names, names)
        self.assertTrue([words for words in profile.json["kinds"]["arguments"] if "float[576, " in words])
        self.assertGreater(min(profile.ops["time_ns"]), 0)
        self.assertGreater(sum(profile.json["rates"].values()), 0)

        parameters = profile.bytes_of_class("parameter")
        self.assertGreater(parameters, 10 << 20)
        self.assertEqual(profile.bytes_of_class("gradient"), parameters)
        self.assertEqual(profile.bytes_of_class("optimizer-state"), 2 * parameters)
        self.assertEqual(profile.bytes_of_class("unknown"), 0)

        # The step needs what the runtime has seen alive at once: at least the values, at most
        # with pages filled up, what operators have inside, and all that is small.
        sizes = profile.values["bytes"]
        least = max(level for _, level in profile.levels(lambda value: sizes[value]))
        inside = profile.ops["inside_peak_pages"]
        pages = [-(-size // profile.page) for size in sizes]
        most = max(before + peak for (before, _), peak
                   in zip(profile.levels(lambda value: pages[value]), inside)) * profile.page
        self.assertLessEqual(least, statistics["needed_bytes"])
        self.assertGreaterEqual(most + profile.json["small_bytes"], statistics["needed_bytes"])
        # Biases and weights of norms: some of each width and layer, and no weight matrix.
        small = profile.json["small_parameter_bytes"]
        self.assertGreater(small, 4 * 576)
        self.assertLess(small, profile.json["small_bytes"])

    def test_is_the_same_under_a_budget(self):
        plain, statistics, _ = self.profile("plain")
        needed = statistics["needed_bytes"]
        spilled, statistics, _ = self.profile("spilled", "--budget", f"{needed // 2048}KiB")
        self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertEqual(spilled.shape(), plain.shape())

    def test_ends_the_program_after_enough_steps(self):
        profile, statistics, _ = self.profile("short", "--steps", "3", steps=100_000)
        self.assertEqual(profile.json["origin"]["steps"], 3)
        self.assertLess(statistics["steps"], 10)

    @slow
    def test_says_so_when_no_step_comes_again(self):
        profile, _, said = self.profile("single", steps=1, status=1)
        self.assertIsNone(profile)
        words = ((str(self.folder), "FOLDER"), (TRAINER, "TRAINER"))
        golden.check_told(self, (line for line in said.splitlines() if " error: " in line), *words)

    def test_is_of_the_kind_of_step_that_is_asked_for(self):
        """Every third step is evaluated, which belongs to it: its operators come on top."""
        trainer = ("--evaluate-every", "3")
        second, _, said = self.profile("second", "--kind", "2", steps=8, trainer=trainer)
        (kind, kinds, first_came, second_came), = re.findall(
            r"; kind (\d) of (\d), which came (\d) and (\d) times\n", said)
        self.assertEqual((kind, kinds, second_came), ("2", "2", "2"), said)
        self.assertIn(first_came, ("3", "4"), said)
        self.assertEqual(second.json["origin"]["steps"], 2)

    def test_a_run_that_follows_its_plan_lies_on_top_of_the_prediction(self):
        _, statistics, _ = self.profile("net", steps=5)
        budget = f"{statistics['needed_bytes'] // 2048}KiB"
        plan, run, both = (self.folder / name for name in ("plan", "run", "both"))
        self.command("plan", self.folder / "net", "--budget", budget, "--effort", "0",
                     "--out", plan)
        self.command("run", "--plan", plan, "--budget", budget, "--nvme", self.folder, "--trace",
                     run, "--", TRAINER, *FLAGS, "--steps", "6")
        said = json.loads(self.command("simulate", self.folder / "net", "--plan", plan, "--beside",
                                       run, "--trace", both, "--json"))
        self.assertGreater(said["model_seconds"], 0)
        self.assertEqual(re.sub(r"\d+", "N", said["measured"]["step"]), "step N")
        self.assertGreater(said["measured"]["step_seconds"], 0)
        self.assertEqual(len(said["measured"]["largest_differences"]), 20)

        spans = [event for event in json.loads(both.read_text(encoding="utf-8"))["traceEvents"]
                 if event["ph"] == "X"]
        moved = {process: {(span["tid"], span["name"]) for span in spans
                           if span["pid"] == process and span["tid"] in (2, 3)}
                 for process in (1, 2)}
        planned, measured = moved[1], moved[2]
        self.assertGreater(len(planned), 3)
        # The run moves what was planned, under the same names, and little else.
        self.assertGreater(len(planned & measured), len(planned) * 3 // 4, (planned, measured))
        begins = [min(span["ts"] for span in spans if span["pid"] == process) for process in (1, 2)]
        self.assertEqual(begins[0], 0)
        self.assertLess(begins[1], 1e6 * said["measured"]["step_seconds"] / 2)

    def command(self, *words):
        run = subprocess.run([COMMAND, *words], env=clean_environment(), text=True, timeout=300,
                             stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout


if __name__ == "__main__":
    unittest.main()
