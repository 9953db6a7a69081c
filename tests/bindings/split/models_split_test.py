"""Trainers whose models, parameters or data come and go, split over ranks: the same bits as in one process, and each
rank keeps its part."""
import collections
import json
import pathlib
import re
import unittest

from python_split_test import PYTHON, PythonCase
from slow_cases import slow

TRAINERS = pathlib.Path(__file__).with_name("model_trainers.py")


class ModelsCase(PythonCase):
    def check(self, *trainers, ranks=2, options=(), name=""):
        words = [PYTHON, TRAINERS, *trainers]
        split = self.run_split(ranks, *words, options=options, name=f"split{name}")
        self.check_same(self.run_plain(*words, name=f"plain{name}"), split)
        return split

    def check_work(self, trainer, ranks=2, steps=4):
        """Each rank runs forward of its stage in each of the latest steps."""
        trace = self.room / f"{trainer}.trace"
        split = self.check(trainer, ranks=ranks, name=trainer, options=["--trace", trace, "--trace-steps", steps,
                                                                        "--rebalance", "off"])
        forwards = collections.Counter()
        for event in json.loads(trace.read_text())["traceEvents"]:
            if event["ph"] == "X" and re.fullmatch(r"\dF\d+", event["name"]):
                forwards[int(event["name"][0]), event["pid"]] += 1
        for rank in range(ranks):
            self.assertGreaterEqual(forwards[rank, 2 * rank + 2], steps, forwards)
        return split


class Data(ModelsCase):
    @slow
    def test_that_require_gradients_leave_the_model_divided(self):
        for trainer in ("physics", "penalty", "attacked,5"):
            split = self.check_work(trainer)
            kept = [rank["parameter_bytes"] for rank in split.statistics["ranks"]]
            self.assertLess(max(kept), 3 * min(kept), split.said)

    @slow
    def test_on_more_ranks(self):
        self.check("physics", "penalty", "attacked", ranks=4)
        self.check("physics", "attacked", options=["--schedule", "gems-mast"], name="-gems")


class Parameters(ModelsCase):
    def test_that_replace_others(self):
        split = self.check("replaced_parameters,8,2")
        self.assertEqual([rank["steps"] for rank in split.statistics["ranks"]], [7, 7], split.said)
        self.assertEqual([rank["micro_batches"] for rank in split.statistics["ranks"]], [16, 16], split.said)
        kept = [rank["parameter_bytes"] for rank in split.statistics["ranks"]]
        self.assertLess(max(kept), 2 * min(kept), split.said)
        self.check("replaced_parameters,4,4", ranks=4, options=["--schedule", "interleaved"], name="-4")

    @slow
    def test_that_only_run_forward(self):
        self.check("only_forward,400")


class Rows(ModelsCase):
    @slow
    def test_of_models_that_end_at_other_moments(self):
        split = self.check("models_in_a_row", "models_in_a_row,bare")
        self.assertEqual([rank["steps"] for rank in split.statistics["ranks"]], [40, 40], split.said)
        self.check("models_in_a_row", "models_in_a_row,bare", ranks=4, name="-4")

    def test_are_divided_from_the_first_step_on(self):
        one = self.check("models_in_a_row,initialised,1")
        all_of_them = self.check("models_in_a_row,initialised,4", name="-4")
        def largest(run):
            return max(rank["parameter_bytes"] for rank in run.statistics["ranks"])
        # The last has six layers more than the first one's four; one rank alone would keep twice as much.
        self.assertLess(largest(all_of_them), 2.5 * largest(one), all_of_them.said)


if __name__ == "__main__":
    unittest.main()
