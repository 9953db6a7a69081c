"""What a process without a launcher is told of the site's MPI."""
import ctypes
import subprocess
import unittest

import golden
from mpi_launchers import PATIENCE_SECONDS
from mpi_test import SCENARIOS


class Site(unittest.TestCase):
    def check(self, *words):
        done = subprocess.run([SCENARIOS, "ring", *words], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS, check=False)
        self.assertEqual(done.returncode, 9, done.stdout)
        return "\n".join(line for line in done.stdout.splitlines() if line.startswith("error: "))

    def test_a_library_that_cannot_be_opened_is_named(self):
        golden.check_part(self, self.check("/no/libmpi.so"))

    def test_a_library_that_is_no_mpi_is_refused(self):
        golden.check_part(self, golden.without(self.check("libm.so.6"), (r"\S+/libm.so.6", "LIBRARY")))

    def test_an_mpi_without_a_module_is_told_what_to_install(self):
        try:
            ctypes.CDLL("libmpich.so.12")
        except OSError:
            self.skipTest("MPICH is not installed")
        golden.check_part(self, golden.without(self.check("libmpich.so.12", "/no"), (r"Version: [\w.]+", "VERSION"),
                                               (r"\S+/libmpich.so.12", "LIBRARY")))


if __name__ == "__main__":
    unittest.main()
