"""A program that is linked with Spillway, and says itself that it is to be split."""
import os
import shutil
import unittest

from ranks_case import RanksCase
from slow_cases import slow

PROGRAM = os.environ["SPILLWAY_TEST_LINKED"]
CORE = os.environ["SPILLWAY_TEST_CORE"]


class LinkedSplit(RanksCase):
    def check_same(self, *words, mpi="MPICH", ranks=2, shards=1):
        """What the ranks tell of themselves."""
        alone = self.start(PROGRAM, *words)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual((self.folder / "rank.txt").read_text(), "0 of 1, 0 of 1\n")
        split = self.launch(ranks, PROGRAM, *words, mpi=mpi, SPILLWAY_STATS="run.json")
        self.assertEqual(split.returncode, 0, split.stderr)
        self.assertEqual(split.stdout, alone.stdout)
        self.assertEqual((self.folder / "rank.txt").read_text(), f"0 of {ranks}, 0 of {shards}\n")
        self.assertNotIn("already running", split.stderr)
        told, = (line for line in split.stderr.splitlines() if line.startswith("[spillway] ranks "))
        return told

    def test_trains_the_bits_of_one_process(self):
        self.check_told(self.check_same())

    @slow
    def test_trains_under_open_mpi(self):
        self.check_told(self.check_same(mpi="Open MPI"))

    @slow
    def test_marks_its_micro_batches(self):
        self.check_told(self.check_same("marks"))

    def test_marks_its_micro_batches_under_open_mpi(self):
        self.check_told(self.check_same("marks", mpi="Open MPI"))

    def test_trains_shards(self):
        """With parameters and data of their own at the start, of which only the gradients of data differ later."""
        self.check_told(self.check_same("shards", shards=2), self.check_same("shards", ranks=4, shards=2))

    def test_ends_alike_under_the_command(self):
        split = self.split(2, trainer=(PROGRAM,))
        self.assertEqual(split.returncode, 0, split.stderr)
        self.assertEqual(split.stdout, self.start(PROGRAM).stdout)
        self.assertNotIn("already running", split.stderr)

    def test_names_the_command_that_is_missing(self):
        shutil.copy(CORE, self.folder)
        split = self.launch(2, PROGRAM, LD_LIBRARY_PATH=str(self.folder))
        self.assertEqual(split.returncode, 1, split.stderr)
        told = {line for line in split.stderr.splitlines() if "start(): " in line}
        self.check_told(*sorted(told))


if __name__ == "__main__":
    unittest.main()
