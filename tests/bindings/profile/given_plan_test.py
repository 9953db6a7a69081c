"""A plan that was made from an in-core profile is followed under a budget, by a real trainer."""
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
OTHER_TRAINER = os.environ["SPILLWAY_TEST_OTHER_TRAINER"]
WORK = os.environ["SPILLWAY_TEST_WORK"]
# The crops of the volume, which has 27 MiB, lie elsewhere in each step.
FLAGS = ("--patch", "48x48x48", "--width", "8", "--depth", "2", "--convs", "2", "--threads", "1",
         "--seed", "1")


class GivenPlan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=WORK)
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        profile, cls.plan = cls.folder / "profile", cls.folder / "plan"
        cls.profile = profile
        cls.command(COMMAND, "profile", "--out", profile, "--steps", "3", "--", TRAINER, *FLAGS,
                    "--steps", "100")
        # A slow disk: then it is worth while to recompute.
        cls.command(COMMAND, "plan", profile, "--budget", "90MiB", "--strategy", "karma",
                    "--link-out", "0.05", "--link-in", "0.05", "--out", cls.plan)

    @staticmethod
    def command(*words):
        run = subprocess.run(words, env=clean_environment(), text=True, timeout=300,
                             stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if run.returncode != 0:
            raise AssertionError(f"{words}: {run.returncode}\n{run.stderr}")
        return run

    def run_with_plan(self, budget, trainer, plan=None, places=None):
        statistics = self.folder / "stats"
        run = self.command(COMMAND, "run", "--plan", plan or self.plan, "--budget", budget, "--nvme",
                           places or self.folder, "--stats", statistics, "--", *trainer)
        return json.loads(statistics.read_text(encoding="utf-8")), run

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        golden.check_told(self, texts, (str(self.folder), "FOLDER"))

    @staticmethod
    def losses(run):
        return re.findall(r"loss (\S+)", run.stdout)

    def test_is_followed_with_as_many_replays_in_each_step(self):
        per_step = len(json.loads(self.plan.read_text(encoding="utf-8"))["replays"]["op"])
        self.assertGreater(per_step, 0)
        plain = self.losses(self.command(TRAINER, *FLAGS, "--steps", "9"))
        replays, followed, refused = [], [], 0
        for steps in (6, 9):
            trainer = (TRAINER, *FLAGS, "--steps", str(steps))
            statistics, run = self.run_with_plan("90MiB", trainer)
            given = statistics["given_plan"]
            self.assertEqual(statistics["strategy"], "karma", run.stderr)
            self.assertEqual(given["misfit"], "")
            self.assertGreaterEqual(given["followed_steps"], steps - 4)
            self.assertNotIn("warning", run.stderr)
            self.assertEqual(re.findall(r"plan +(\S+) was followed in (\d+) of ", run.stderr),
                             [(str(self.plan), str(given["followed_steps"]))], run.stderr)
            # Without those that no plan had foreseen: how many there are depends on the moment.
            replays.append(statistics["replays"] - statistics["unplanned_replays"])
            followed.append(given["followed_steps"])
            refused += statistics["refused_drops"]
            self.assertNotIn("it was made for 90.0 MiB and swaps", run.stderr)
            self.assertEqual(self.losses(run), plain[:steps])
        self.assertEqual(len(plain), 9)
        # Before the first step that it is for, other plans may have been followed.
        self.assertEqual(followed[1] - followed[0], 3)
        # What was still being written when it was to be dropped stays, and is not recomputed.
        if refused == 0:
            self.assertEqual(replays[1] - replays[0], 3 * per_step)
        else:
            self.assertGreater(replays[1], replays[0])

    @slow
    def test_for_less_memory_is_named_as_the_cause_of_swaps(self):
        statistics, run = self.run_with_plan("4GiB", (TRAINER, *FLAGS, "--steps", "6"))
        self.assertGreater(statistics["given_plan"]["followed_steps"], 0)
        self.assertGreater(statistics["spilled_bytes"] + statistics["dropped_bytes"], 0)
        self.check_told(*(line for line in run.stderr.splitlines()
                          if re.search(r"it was made for 90.0 MiB| leave out --plan", line)))

    def test_with_two_tiers_keeps_some_in_host_memory_and_sends_some_past_it(self):
        plan = self.folder / "tiers"
        # Without replays, whose worth depends on how fast the machine was: what does not fit is swapped.
        self.command(COMMAND, "plan", self.profile, "--budget", "90MiB", "--strategy", "offload-only",
                     "--link-out", "4", "--link-in", "4", "--host-memory", "16MiB",
                     "--disk-out", "1", "--disk-in", "1", "--out", plan)
        swaps = json.loads(plan.read_text(encoding="utf-8"))["swaps"]
        self.assertGreater(sum(swaps["far_pages"]), 0)
        self.assertGreater(sum(swaps["pages"]), sum(swaps["far_pages"]))
        plain = self.losses(self.command(TRAINER, *FLAGS, "--steps", "8"))
        statistics, run = self.run_with_plan("90MiB", (TRAINER, *FLAGS, "--steps", "8"), plan,
                                             f"ram:16MiB,{self.folder}")
        self.assertEqual(self.losses(run), plain)
        self.assertEqual(statistics["given_plan"]["misfit"], "")
        self.assertGreaterEqual(statistics["given_plan"]["followed_steps"], 3, run.stderr)
        self.assertEqual(statistics["host_tier_bytes"], 16 << 20)
        self.assertLessEqual(statistics["host_tier_peak_bytes"], 16 << 20)
        for key in ("host_written_bytes", "host_read_bytes", "disk_written_bytes"):
            self.assertGreater(statistics[key], 0, key)
        to, = (line for line in run.stderr.splitlines() if line.startswith("[spillway] to "))
        # Behind that are rates, where the run was long enough to learn them.
        told = [golden.without(to.replace(", 16.0 MiB,", ", TIER,"), (r"before .*?; ", "before DISKS; "),
                               (r"(?<= on to the disks).*", ""), golden.SIZES, golden.TIMES)]
        for places in (self.folder, "ram:8MiB"):
            run = subprocess.run([COMMAND, "run", "--plan", plan, "--budget", "90MiB", "--nvme", places,
                                  "--", "true"], env=clean_environment(), text=True, timeout=60,
                                 check=False, capture_output=True)
            self.assertEqual(run.returncode, 2, run.stderr)
            told.append(run.stderr)
        self.check_told(*told)

    def test_for_another_program_says_so_once_and_the_run_goes_on(self):
        statistics, run = self.run_with_plan("100MiB", (OTHER_TRAINER, "--preset", "tiny",
                                                        "--batch", "1", "--context", "64",
                                                        "--width", "576", "--threads", "2",
                                                        "--steps", "9"))
        self.assertEqual(run.stderr.count("another program or other shapes"), 2, run.stderr)
        self.assertRegex(run.stderr, r"warning: \S+: the plan is for another program .* in the plan "
                                     r"and .* here; none of 6 steps was the plan's")
        self.assertIn("leaves the rest of these 100 MiB alone", run.stderr)
        self.assertEqual(statistics["given_plan"]["followed_steps"], 0)
        self.assertEqual(statistics["strategy"], "spillway")

    def test_is_refused_before_the_start_where_it_cannot_be_followed(self):
        mark = self.folder / "started"
        told = []
        for options in (("--budget", "70MiB"), ("--strategy", "karma")):
            run = subprocess.run([COMMAND, "run", "--plan", self.plan, *options, "--", "touch", mark],
                                 env=clean_environment(), text=True, timeout=60, check=False,
                                 capture_output=True)
            self.assertEqual(run.returncode, 2, run.stderr)
            told.append(run.stderr)
        self.check_told(*told)
        self.assertFalse(mark.exists())


if __name__ == "__main__":
    unittest.main()
