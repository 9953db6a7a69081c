"""Ranks that an MPI (SPILLWAY_TEST_MPI) starts add up arrays, in the order of ranks and fast."""
import os
import unittest

from mpi_launchers import MpiJob

SUMS = os.environ["SPILLWAY_TEST_SUMS"]
SHIMS = os.environ["SPILLWAY_TEST_SHIMS"].split(",")
SHIM_OF = {"MPICH": "mpich", "Open MPI": "openmpi"}


class Sums(unittest.TestCase):
    MPI = os.environ.get("SPILLWAY_TEST_MPI")

    def test_sums_have_the_bits_of_one_rank_after_another(self):
        if SHIM_OF[self.MPI] not in SHIMS:
            self.skipTest(f"built without the headers of {self.MPI}")
        for ranks in (1, 2, 3):
            status, output = MpiJob(self, self.MPI, "-n", str(ranks), SUMS).end()
            self.assertEqual(status, 0, output)
            self.assertEqual(output.count(": 0 of 40 sums are wrong"), ranks, output)


if __name__ == "__main__":
    unittest.main()
