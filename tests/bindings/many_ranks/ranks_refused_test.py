"""What a user has done wrong is one sentence from one rank, and ends all ranks with the same code."""
import pathlib
import re
import shutil
import tempfile
import unittest

from mpi_launchers import mpi_launcher
from ranks_case import COMMAND, TRAINER, RanksCase

RUN = (COMMAND, "run", "--split", "--budget", "1GiB")
TRAIN = ("--", *TRAINER, "--steps", "2")


class Refusals(RanksCase):
    def check_refused(self, run, pattern):
        said = [line for line in run.stderr.splitlines() if line.startswith("[spillway")]
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(len(said), 1, run.stderr)
        self.assertRegex(said[0], pattern)
        self.assertEqual(list(self.folder.iterdir()), [])

    def launch_two(self, first, second):
        return self.start(mpi_launcher(self, "MPICH"), "-n", "1", *first, ":", "-n", "1", *second)

    def test_ranks_that_do_not_divide(self):
        self.check_refused(self.split(3, "--replicas", "2"), "--replicas 2: a job of 3 ranks does not divide")
        self.check_refused(self.split(3, "--shards", "2"), "--shards 2: a job of 3 ranks does not divide")
        self.check_refused(self.split(2, "--stages", "3"), "--stages 3: .* 2 ranks compute 2 stages")

    def test_an_unknown_schedule(self):
        self.check_refused(self.split(2, "--schedule", "nonsense"), "unknown schedule 'nonsense'.*1f1b")

    def test_other_arguments(self):
        self.check_refused(self.launch_two((*RUN, *TRAIN), (*RUN, *TRAIN, "--seed", "3")),
                           "arguments .* on rank 0 .* on rank 1")

    def test_another_build_of_the_program(self):
        with tempfile.TemporaryDirectory() as room:
            other = pathlib.Path(room, "trainer")
            shutil.copy(TRAINER[0], other)
            with other.open("ab") as file:
                file.write(b"another")
            self.check_refused(self.launch_two((*RUN, *TRAIN), (*RUN, "--", other, *TRAIN[2:])),
                               "is .* on rank 0 .* on rank 1")

    def test_a_program_that_one_rank_lacks(self):
        """Which then never comes to MPI, where the other one waits for it."""
        run = self.launch_two((*RUN, *TRAIN), (*RUN, "--", "/no/trainer", *TRAIN[2:]))
        said = [line for line in run.stderr.splitlines() if line.startswith("[spillway")]
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(len(said), 1, run.stderr)
        self.assertIn("program not found: /no/trainer", said[0])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_another_environment(self):
        self.check_refused(self.launch_two((*RUN, *TRAIN), ("env", "OMP_NUM_THREADS=2", *RUN, *TRAIN)),
                           'OMP_NUM_THREADS is "1" on rank 0 .* "2" on rank 1')

    def test_a_budget_that_is_too_small_on_one_rank(self):
        small = (COMMAND, "run", "--split", "--budget", "3MiB")
        for first, second, rank in ((RUN, small, 1), (small, RUN, 0)):
            self.check_refused(self.launch_two((*first, *TRAIN), (*second, *TRAIN)),
                               rf"rank {rank} \(.+\): a budget of 3.00 MiB is too small: .*4.00 MiB is the least")


class OneRank(RanksCase):
    def losses(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return re.findall(r"step \d+  loss [\d.]+", run.stdout)

    def test_without_a_launcher_trains_alone_and_says_so(self):
        run = self.start(*RUN, *TRAIN)
        self.assertIn("no launcher of MPI", run.stderr)
        self.assertEqual(self.losses(run), self.losses(self.start(*TRAIN[1:])))

    def test_of_a_launcher_trains_alone(self):
        run = self.split(1)
        self.assertIn("1 rank on 1 host", run.stderr)
        self.assertEqual(self.losses(run), self.losses(self.start(*TRAIN[1:])))


if __name__ == "__main__":
    unittest.main()
