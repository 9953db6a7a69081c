"""A plan that was made from an in-core profile is followed under a budget, by a real trainer."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_TRAINER"]
OTHER_TRAINER = os.environ["SPILLWAY_TEST_OTHER_TRAINER"]
WORK = os.environ["SPILLWAY_TEST_WORK"]
# The crops of the volume, which has 27 MiB, lie elsewhere in each step.
FLAGS = ("--patch", "48x48x48", "--width", "8", "--depth", "2", "--convs", "2", "--threads", "1",
         "--seed", "1")


class GivenPlan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self, *words, code=0):
        run = subprocess.run(words, env=clean_environment(), text=True, timeout=300,
                             stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def planned(self, budget, strategy):
        profile, plan = self.folder / "profile", self.folder / "plan"
        self.command(COMMAND, "profile", "--out", profile, "--steps", "4", "--", TRAINER, *FLAGS,
                     "--steps", "100")
        # A slow disk: then it is worth while to compute again.
        self.command(COMMAND, "plan", profile, "--budget", budget, "--strategy", strategy,
                     "--link-out", "0.3", "--link-in", "0.3", "--out", plan)
        return plan

    def run_with(self, plan, budget, trainer):
        statistics = self.folder / "stats"
        run = self.command(COMMAND, "run", "--plan", plan, "--budget", budget, "--nvme", self.folder,
                           "--stats", statistics, "--", *trainer)
        return json.loads(statistics.read_text(encoding="utf-8")), run

    @staticmethod
    def losses(run):
        return re.findall(r"loss (\S+)", run.stdout)

    def test_is_followed_with_as_many_replays_in_each_step(self):
        plan = self.planned("90MiB", "karma")
        per_step = len(json.loads(plan.read_text(encoding="utf-8"))["replays"]["op"])
        self.assertGreater(per_step, 0)
        replays, followed = [], []
        for steps in (6, 10):
            trainer = (TRAINER, *FLAGS, "--steps", str(steps))
            statistics, run = self.run_with(plan, "90MiB", trainer)
            given = statistics["given_plan"]
            self.assertEqual(statistics["strategy"], "karma", run.stderr)
            self.assertEqual(given["misfit"], "")
            self.assertGreaterEqual(given["followed_steps"], steps - 4)
            self.assertNotIn("warning", run.stderr)
            self.assertIn(f"plan     {plan} was followed in {given['followed_steps']} of ",
                          run.stderr)
            replays.append(statistics["replays"])
            followed.append(given["followed_steps"])
            plain = self.command(*trainer)
            self.assertEqual(len(self.losses(run)), steps)
            self.assertEqual(self.losses(run), self.losses(plain))
        # Before the first step that it is for, other plans may have been followed.
        self.assertEqual(followed[1] - followed[0], 4)
        self.assertEqual(replays[1] - replays[0], 4 * per_step)

    def test_for_another_program_says_so_once_and_the_run_goes_on(self):
        plan = self.planned("90MiB", "karma")
        statistics, run = self.run_with(plan, "100MiB", (OTHER_TRAINER, "--preset", "tiny",
                                                         "--batch", "1", "--context", "64",
                                                         "--width", "576", "--threads", "2",
                                                         "--steps", "10"))
        self.assertEqual(run.stderr.count("another program or other shapes"), 2, run.stderr)
        self.assertRegex(run.stderr, r"warning: \S+: the plan is for another program .* in the plan "
                                     r"and .* here; none of 6 steps was the plan's")
        self.assertIn("leaves the rest of these 100 MiB alone", run.stderr)
        self.assertEqual(statistics["given_plan"]["followed_steps"], 0)
        self.assertEqual(statistics["strategy"], "spillway")

    def test_is_refused_before_the_start_where_it_cannot_be_followed(self):
        plan = self.planned("90MiB", "karma")
        mark = self.folder / "started"
        for options, said in ((("--budget", "70MiB"), "was made for 90.0 MiB, more than the 70.0"),
                              (("--strategy", "karma"), "--strategy karma has no place beside --plan")):
            run = subprocess.run([COMMAND, "run", "--plan", plan, *options, "--", "touch", mark],
                                 env=clean_environment(), text=True, timeout=60, check=False,
                                 capture_output=True)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(said, run.stderr)
        self.assertFalse(mark.exists())


if __name__ == "__main__":
    unittest.main()
