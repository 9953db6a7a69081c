"""Ranks that an MPI (SPILLWAY_TEST_MPI) starts send one another messages, and end as they should."""
import os
import re
import signal
import unittest

from mpi_launchers import MpiJob, mpi_launcher, wait_until_gone

RANKS = os.environ["SPILLWAY_TEST_RANKS"]
SCENARIOS = os.environ["SPILLWAY_TEST_SCENARIOS"]
SHIMS = os.environ["SPILLWAY_TEST_SHIMS"].split(",")
LIBRARIES = {"MPICH": "libmpich.so.12", "Open MPI": "libmpi.so.40"}
SHIM_OF = {"MPICH": "mpich", "Open MPI": "openmpi"}
MULTIPLE, SERIALIZED = "3", "2"  # In the numbers of both MPIs.


class MpiCase(unittest.TestCase):
    MPI = None

    def start(self, *words, ranks=3, **variables):
        if SHIM_OF[self.MPI] not in SHIMS:
            self.skipTest(f"built without the headers of {self.MPI}")
        return MpiJob(self, self.MPI, "-n", str(ranks), *words, **variables)

    def scenario(self, *words, **more):
        return self.start(SCENARIOS, *words, **more).end()

    def check_suites(self, **variables):
        status, output = self.start(RANKS, **variables).end()
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("[  PASSED  ]"), 3, output)

    def check_ring(self):
        status, output = self.scenario("ring")
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(re.findall(rf"rank (\d) of 3 by {self.MPI}", output)), ["0", "1", "2"], output)

    def check_own(self):
        status, output = self.scenario("own", LIBRARIES[self.MPI], MULTIPLE)
        self.assertEqual(status, 0, output)
        for rank in range(3):
            self.assertEqual(output.count(f"rank {rank} of 3 by {self.MPI}"), 2, output)
        self.assertEqual(output.count("finalised by the program"), 3, output)

    def check_own_with_few_threads(self):
        status, output = self.scenario("own", LIBRARIES[self.MPI], SERIALIZED)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("ask for MPI_THREAD_MULTIPLE"), 6, output)
        self.assertEqual(output.count("finalised by the program"), 3, output)

    def check_other_mpi(self, other):
        if SHIM_OF[other] not in SHIMS:
            self.skipTest(f"built without the headers of {other}")
        mpi_launcher(self, other)
        status, output = self.scenario("ring", LIBRARIES[other])
        self.assertNotEqual(status, 0, output)
        self.assertRegex(output, f"has started 3 ranks.*{other}.*knows nothing of it")
        self.assertNotIn("rank 0 of", output)

    def check_kill(self):
        job = self.start(SCENARIOS, "killed")
        descriptors = job.processes(3)
        signal.pidfd_send_signal(descriptors[1], signal.SIGKILL)
        status, output = job.end()
        self.assertNotEqual(status, 0, output)
        self.assertNotIn("woken", output)
        self.assertEqual(wait_until_gone(descriptors), [])

    def check_abort(self):
        status, output = self.scenario("abort")
        self.assertNotEqual(status, 0, output)
        self.assertEqual(re.findall(r"rank \d ends the job: programs differ", output),
                         ["rank 1 ends the job: programs differ"], output)

    def check_late(self):
        status, output = self.scenario("late")
        self.assertNotEqual(status, 0, output)
        told = re.findall(r"rank (\d) ends the job: rank 1 did not come to the end of the job within 0.5 s", output)
        self.assertTrue(told, output)
        self.assertLessEqual(set(told), {"0", "2"})

    def check_unreceived(self):
        status, output = self.scenario("unreceived")
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(re.findall(r"(value \d from rank \d to rank \d) was never received", output)),
                         [f"value {number} from rank 0 to rank 1" for number in (1, 2)])
        self.assertEqual(re.findall(r"(rank \d): (rank \d) has left the job without (value \d from rank 2 to rank 1)",
                                    output), [("rank 1", "rank 2", "value 3 from rank 2 to rank 1")])


class Ranks(MpiCase):
    MPI = os.environ.get("SPILLWAY_TEST_MPI")

    def test_transports_pass_the_suites(self):
        self.check_suites()

    def test_transports_pass_the_suites_with_synchronous_sends(self):
        self.check_suites(SPILLWAY_TEST_SYNCHRONOUS="1")

    def test_the_launcher_says_which_mpi(self):
        self.check_ring()

    def test_programs_that_have_initialised_mpi_keep_it(self):
        self.check_own()

    def test_programs_that_have_initialised_mpi_for_fewer_threads_are_refused(self):
        self.check_own_with_few_threads()

    def test_ranks_of_the_other_mpi_are_refused(self):
        self.check_other_mpi("MPICH" if self.MPI == "Open MPI" else "Open MPI")

    def test_a_killed_rank_ends_the_job(self):
        self.check_kill()

    def test_a_rank_that_ends_the_job_says_why(self):
        self.check_abort()

    def test_a_rank_that_does_not_come_to_the_end_is_named(self):
        self.check_late()

    def test_messages_that_nobody_received_are_named_at_the_end(self):
        self.check_unreceived()


if __name__ == "__main__":
    unittest.main()
