"""Jobs of ranks that an MPI (SPILLWAY_TEST_MPI) starts agree, or end with a reason that names the rank."""
import os
import re
import signal
import unittest

from mpi_launchers import MpiJob, wait_until_gone

JOBS = os.environ["SPILLWAY_TEST_JOBS"]
SHIMS = os.environ["SPILLWAY_TEST_SHIMS"].split(",")
SHIM_OF = {"MPICH": "mpich", "Open MPI": "openmpi"}
RANKS = 3


class Ranks(unittest.TestCase):
    MPI = os.environ.get("SPILLWAY_TEST_MPI")

    def start(self, *words, last=None):
        """Two ranks by `words`, and one by `last`."""
        if SHIM_OF[self.MPI] not in SHIMS:
            self.skipTest(f"built without the headers of {self.MPI}")
        return MpiJob(self, self.MPI, "-n", "2", *words, ":", "-n", "1", *(last or words))

    def check_end(self, job, reason="", stop=None):
        """The job ends for that reason, after rank 1 was sent the signal `stop`; no process stays."""
        descriptors = job.processes(RANKS)
        if stop:
            signal.pidfd_send_signal(descriptors[1], stop)
        status, output = job.end()
        self.assertNotEqual(status, 0, output)
        self.assertIsNotNone(re.search(reason, output), output)
        self.assertEqual(wait_until_gone(descriptors), [])

    def test_equal_programs_end_together(self):
        status, output = self.start(JOBS, "agree").end()
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("has ended;"), RANKS, output)

    def test_other_arguments_are_refused(self):
        status, output = self.start(JOBS, "agree", last=[JOBS, "agree", "--seed", "2"]).end()
        self.assertNotEqual(status, 0, output)
        reason = (r'error: the list of arguments is "agree" on ranks 0 and 1 \(\S+\) and "agree --seed 2" on rank 2 '
                  r'\(\S+\): a split program needs it to be equal on all ranks;')
        self.assertIsNotNone(re.search(reason, output), output)

    def test_another_environment_is_refused(self):
        status, output = self.start("env", "OMP_NUM_THREADS=1", JOBS, "agree",
                                    last=["env", "OMP_NUM_THREADS=2", JOBS, "agree"]).end()
        self.assertNotEqual(status, 0, output)
        self.assertRegex(output, 'OMP_NUM_THREADS is "1" on ranks 0 and 1 .* and "2" on rank 2')

    def test_programs_that_went_apart_are_told_the_call(self):
        self.check_end(self.start(JOBS, "apart"),
                       r"went apart: argument 0 of call 50, aten::mm, differs between rank \d \(")

    def test_a_program_that_leaves_in_mid_run_is_named(self):
        self.check_end(self.start(JOBS, "exit"),
                       r"rank 1 \(\S+\) has made 50 calls in all, and rank [02] \(\S+\) goes on with call 50, aten::mm")

    def test_a_process_that_vanishes_ends_the_job(self):
        self.check_end(self.start(JOBS, "vanish"))

    def test_a_stopped_rank_is_named(self):
        self.check_end(self.start(JOBS, "for_ever"), r"rank 1 \(\S+\) does not answer rank [02] \(\S+\) for 5 s",
                       stop=signal.SIGSTOP)

    def test_a_killed_rank_ends_the_job(self):
        self.check_end(self.start(JOBS, "for_ever"), stop=signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
