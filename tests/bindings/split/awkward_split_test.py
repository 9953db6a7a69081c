"""A case of `awkward` (SPILLWAY_TEST_CASE) split over ranks gives the digests of one process."""
import os
import unittest

from split_runs import SplitCase


class Case(SplitCase):
    def test_gives_the_same_digests(self):
        words = [os.environ["SPILLWAY_TEST_AWKWARD"], os.environ["SPILLWAY_TEST_CASE"], "--threads", "1"]
        self.check_same(self.run_plain(*words), self.run_split(2, *words))


if __name__ == "__main__":
    unittest.main()
