"""Messages of more bytes than an int counts, which is how MPI counts."""
import re
import unittest

from mpi_test import MpiCase

NEEDED_KIB = 6 << 20


class Large(MpiCase):
    # One after the other: both at once would need twice the memory.
    def test_messages_beyond_2_gib(self):
        with open("/proc/meminfo", encoding="ascii") as file:
            available = int(re.search(r"MemAvailable:\s+(\d+)", file.read()).group(1))
        if available < NEEDED_KIB:
            self.skipTest(f"needs {NEEDED_KIB >> 20} GiB of memory")
        for mpi in ("MPICH", "Open MPI"):
            with self.subTest(mpi):
                self.MPI = mpi
                status, output = self.scenario("large", ranks=2)
                self.assertEqual(status, 0, output)
                self.assertIn("all bytes are right", output)


if __name__ == "__main__":
    unittest.main()
