"""Models that are cut by a plan, or cut anew while they train: the same bits as in one process."""
import os
import pathlib
import re
import subprocess
import unittest

from clean_environment import clean_environment
from examples_split_test import ExampleCase
from python_split_test import PYTHON, TRAINERS, PythonCase
from slow_cases import slow
from split_runs import COMMAND

TEXT_GPT = pathlib.Path(os.environ["SPILLWAY_TEST_PROGRAMS"]) / "text_gpt"
WORDS = [TEXT_GPT, "--preset", "tiny", "--steps", "4", "--micro-batches", "4", "--losses", "losses.txt",
         "--checkpoint", "checkpoint.pt"]


class Rebalancing(PythonCase):
    def check_moves(self, kind, ranks=2, options=()):
        words = [PYTHON, TRAINERS, f"work_before_parameters,16,{kind}"]
        split = self.run_split(ranks, *words, options=["--log-level", "info", *options])
        self.check_same(self.run_plain(*words), split)
        moves = split.statistics["layer_moves"]
        self.assertGreater(moves["times"], 0, split.said)
        self.assertGreater(moves["parameters"], 0)
        self.check_times(moves, split)
        self.assertRegex(split.errors, r"before step \d+ \d+ parameters? moves? between ranks, with \S+ \S+, over "
                                       r"links that carried \S+ \S+/s or more at the start: "
                                       r"the slowest stage takes")

    def check_times(self, moves, split):
        """What steps behind the last move took is measured, where there were any; else nothing says so."""
        told = re.findall(r"the slowest stage takes (\S+ \S+) for a micro-batch, and is to take (\S+ \S+?)(?:;|$)",
                          split.errors, re.MULTILINE)
        self.assertEqual(len(told), moves["times"], split.said)
        after = moves["seconds_after"]
        behind = (rf"was to take {told[-1][1]} behind the last move, where" if after is None
                  else r"\S+ \S+ behind the last move$")
        self.assertRegex(split.errors, re.compile(
            rf"layers moved .*; the slowest stage took \S+ \S+ for a micro-batch, and {behind}", re.MULTILINE))
        if after is not None:  # No measure is a forecast to the last bit.
            self.assertNotEqual(after, moves["seconds_forecast"])
            self.assertGreater(after, 0)

    def test_moves_layers_with_their_states(self):
        self.check_moves("adamw")

    @slow
    def test_moves_gradients_that_are_kept(self):
        self.check_moves("foreach")

    @slow
    def test_moves_both_copies_of_inverted_stages(self):
        self.check_moves("sgd", options=["--schedule", "gems-mast"])

    def test_moves_in_all_replicas(self):
        self.check_moves("adamw", ranks=4, options=["--replicas", "2"])

    @slow
    def test_looks_at_models_of_all_kinds(self):
        self.check("adds_in_place", "one_layer", "models_by_turns")
        words = [PYTHON, TRAINERS, "models_by_turns", "adds_in_place"]
        for name, options in (("gems", ["--schedule", "gems-mast"]), ("replicas", ["--replicas", "2"])):
            self.check_same(self.run_plain(*words, name=f"plain-{name}"),
                            self.run_split(2, *words, options=options, name=name))

    def test_stays_where_it_is_not_wanted(self):
        words = [PYTHON, TRAINERS, "work_before_parameters,8"]
        split = self.run_split(2, *words, options=["--rebalance", "off"])
        self.check_same(self.run_plain(*words), split)
        self.assertEqual(split.statistics["layer_moves"]["times"], 0)


class Plans(ExampleCase):
    def command(self, *words):
        done = subprocess.run([COMMAND, *map(str, words)], cwd=self.room, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env=clean_environment(OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def plan(self, *options):
        self.command("profile", "--out", "step.json", "--", TEXT_GPT, "--preset", "tiny", "--steps", "6")
        self.command("plan-job", "step.json", "--ranks", "2", "--micro-batches", "4", "--out", "plan.json", *options)
        return self.room / "plan.json"

    def test_cut_the_model_from_the_first_step_on(self):
        plan = self.plan("--schedule", "1f1b", "--replicas", "1")
        split = self.run_split(2, *WORDS, options=["--plan", plan, "--rebalance", "off"])
        self.check_same(self.run_plain(*WORDS), split, archives=["checkpoint.pt"])
        self.assertEqual([rank["stages"] for rank in split.statistics["ranks"]], [[0], [1]])

    @slow
    def test_place_it_as_their_schedule_does(self):
        plan = self.plan("--schedule", "gems-mast", "--replicas", "1")
        split = self.run_split(2, *WORDS, options=["--plan", plan])
        self.check_same(self.run_plain(*WORDS), split, archives=["checkpoint.pt"])
        self.assertEqual([rank["stages"] for rank in split.statistics["ranks"]], [[0, 1], [0, 1]])
        told = []
        for options, ranks in (((), 3), (("--schedule", "gpipe"), 2), (("--plan", "none.json"), 2)):
            refused = self.run_split(ranks, *WORDS, options=["--plan", plan, *options], name=f"refused-{len(told)}")
            self.assertEqual(refused.code, 2, refused.said)
            error, = (line for line in refused.errors.splitlines() if " error: " in line)
            told.append(error)
        self.check_told(*told)
        other = self.run_split(2, WORDS[0], *WORDS[1:-2], "--layers", "1", options=["--plan", plan], name="other")
        self.assertNotEqual(other.code, 0)
        self.assertRegex(other.errors, "this plan is for another model or another size: stage 1 begins with aten::")


if __name__ == "__main__":
    unittest.main()
