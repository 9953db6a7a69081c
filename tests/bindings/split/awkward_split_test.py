"""A case of `awkward` (SPILLWAY_TEST_CASE) split over ranks gives the digests of one process, or ends with a sentence
(SPILLWAY_TEST_REFUSAL, a pattern)."""
import os
import unittest

from split_runs import SplitCase


class Case(SplitCase):
    def test_gives_the_same_digests_or_says_why_not(self):
        words = [os.environ["SPILLWAY_TEST_AWKWARD"], os.environ["SPILLWAY_TEST_CASE"], "--threads", "1"]
        refusal = os.environ["SPILLWAY_TEST_REFUSAL"]
        split = self.run_split(2, *words)
        if not refusal:
            self.check_same(self.run_plain(*words), split)
            return
        self.assertNotEqual(split.code, 0, split.said)
        self.assertRegex(split.errors, r"error: rank \d ends the job: .*" + refusal)


if __name__ == "__main__":
    unittest.main()
