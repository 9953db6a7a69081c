"""What a user has done wrong is one sentence from one rank, and ends all ranks with the same code."""
import pathlib
import re
import shutil
import tempfile
import unittest

import golden
from mpi_launchers import mpi_launcher
from ranks_case import COMMAND, TRAINER, RanksCase

RUN = (COMMAND, "run", "--split", "--budget", "1GiB")
TRAIN = ("--", *TRAINER, "--steps", "2")


class Refusals(RanksCase):
    def refused(self, run):
        """The one sentence of it."""
        said = [line for line in run.stderr.splitlines() if line.startswith("[spillway")]
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(len(said), 1, run.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        return golden.without(said[0].replace(TRAINER[0], "TRAINER"), (r"^\[spillway( \d)?\]", "[spillway]"))

    def launch_two(self, first, second):
        return self.start(mpi_launcher(self, "MPICH"), "-n", "1", *first, ":", "-n", "1", *second)

    def test_ranks_that_do_not_divide(self):
        self.check_told(self.refused(self.split(3, "--replicas", "2")), self.refused(self.split(3, "--shards", "2")),
                        self.refused(self.split(2, "--stages", "3")))

    def test_an_unknown_schedule(self):
        self.check_told(self.refused(self.split(2, "--schedule", "nonsense")))

    def test_other_arguments(self):
        self.check_told(self.refused(self.launch_two((*RUN, *TRAIN), (*RUN, *TRAIN, "--seed", "3"))))

    def test_another_build_of_the_program(self):
        with tempfile.TemporaryDirectory() as room:
            other = pathlib.Path(room, "trainer")
            shutil.copy(TRAINER[0], other)
            with other.open("ab") as file:
                file.write(b"another")
            told = self.refused(self.launch_two((*RUN, *TRAIN), (*RUN, "--", other, *TRAIN[2:])))
            self.check_told(told.replace(str(other), "OTHER"))

    def test_a_program_that_one_rank_lacks(self):
        """Which then never comes to MPI, where the other one waits for it."""
        run = self.launch_two((*RUN, *TRAIN), (*RUN, "--", "/no/trainer", *TRAIN[2:]))
        said = [line for line in run.stderr.splitlines() if line.startswith("[spillway")]
        self.assertNotEqual(run.returncode, 0)
        self.assertEqual(len(said), 1, run.stderr)
        self.check_told(*said)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_another_environment(self):
        self.check_told(self.refused(self.launch_two((*RUN, *TRAIN), ("env", "OMP_NUM_THREADS=2", *RUN, *TRAIN))))

    def test_a_budget_that_is_too_small_on_one_rank(self):
        small = (COMMAND, "run", "--split", "--budget", "3MiB")
        self.check_told(*(self.refused(self.launch_two((*first, *TRAIN), (*second, *TRAIN)))
                          for first, second in ((RUN, small), (small, RUN))))


class OneRank(RanksCase):
    def losses(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        return re.findall(r"step \d+  loss [\d.]+", run.stdout)

    def test_without_a_launcher_trains_alone_and_says_so(self):
        run = self.start(*RUN, *TRAIN)
        self.check_told(golden.own_lines(run.stderr).splitlines()[0])
        self.assertEqual(self.losses(run), self.losses(self.start(*TRAIN[1:])))

    def test_without_a_launcher_is_refused_a_plan(self):
        run = self.start(*RUN, "--plan", "job.json", *TRAIN)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.check_told(golden.own_lines(run.stderr))

    def test_of_a_launcher_trains_alone(self):
        run = self.split(1)
        told, = (line for line in run.stderr.splitlines() if " ranks " in line)
        self.check_told(told)
        self.assertEqual(self.losses(run), self.losses(self.start(*TRAIN[1:])))


if __name__ == "__main__":
    unittest.main()
