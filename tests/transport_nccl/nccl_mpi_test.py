"""Ranks that an MPI starts send one another what lies on their (emulated) GPUs."""
import os
import unittest

from mpi_launchers import MpiJob

PROGRAM = os.environ["SPILLWAY_TEST_RANKS"]
SHIMS = os.environ["SPILLWAY_TEST_SHIMS"].split(",")


class Ranks(unittest.TestCase):
    def start(self, ranks, *words, **variables):
        if "mpich" not in SHIMS:
            self.skipTest("built without the headers of MPICH")
        return MpiJob(self, "MPICH", "-n", str(ranks), PROGRAM, *words, **variables).end()

    def check_suites(self, ranks, **variables):
        status, output = self.start(ranks, "--gtest_brief=1", **variables)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("[  PASSED  ]"), ranks, output)

    def test_two_pass_the_suites(self):
        self.check_suites(2, SPILLWAY_TEST_OWN_GPU="1")

    def test_four_pass_the_suites_with_work_that_comes_late(self):
        self.check_suites(4, EMU_CUDA_DELAY_US="300", EMU_CUDA_SEED="3")

    def test_a_rank_that_stops_in_the_middle_of_a_message_is_named(self):
        status, output = self.start(2, "stopped")
        self.assertNotEqual(status, 0, output)
        self.assertIn("rank 0 ends the job: rank 1 does not answer while rank 0 waits for it with value 1 from "
                      "rank 1 to rank 0", output)

    def test_a_rank_that_is_killed_in_the_middle_of_a_message_ends_the_job(self):
        status, output = self.start(2, "killed")
        self.assertNotEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
