"""The ranks of a launcher are examined together, and one report comes out."""
import json
import os
import re
import socket
import subprocess
import unittest

import golden
from mpi_launchers import mpi_launcher
from ranks_case import COMMAND, TRAINER, RanksCase

PLANNING = os.environ["SPILLWAY_TEST_PLANNING"]
KEYS_PAGE = os.environ["SPILLWAY_TEST_KEYS_PAGE"]
LIBRARY = (r"(MPICH Version: |Open MPI v)[^(]*\([^)]*\)", r"\1VERSION")
LIBRARIES = {"MPICH": "libmpich.so.12", "Open MPI": "libmpi.so.40"}


def keys_within(value):
    """The keys of all objects within, however deep."""
    rows = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set(value if isinstance(value, dict) else ()).union(*map(keys_within, rows))


class DoctorCase(RanksCase):
    MPI = None

    def words(self, *options):
        return (COMMAND, "doctor", "--nvme", self.folder, "--skip-disks", *options, "--", TRAINER[0])

    def other_host(self):
        """Words in front of a rank that give it another host's name."""
        renamed = ["unshare", "--uts", "sh", "-c", 'hostname other && exec "$@"', "sh"]
        if subprocess.run([*renamed, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user may give no process another host name")
        return renamed

    def launch_parts(self, *parts, **variables):
        """Each part: how many ranks, and their words."""
        words = []
        for count, part in parts:
            words += [*([":"] if words else []), "-n", count, *part]
        return self.start(mpi_launcher(self, self.MPI), *words, **variables)

    def report(self, run):
        self.assertEqual(run.stdout.count('"format": "spillway doctor"'), 1, run.stdout + run.stderr)
        report = json.loads(run.stdout[run.stdout.index("{"):run.stdout.rindex("}") + 1])
        return report, {check["subject"]: check for check in report["checks"]}

    def check_one_host(self):
        run = self.launch(3, *self.words("--json"), mpi=self.MPI)
        report, checks = self.report(run)
        self.assertEqual(run.returncode, 0, run.stderr + run.stdout)
        job = report["job"]
        self.assertEqual(job["mpi"]["abi"], self.MPI)
        self.assertTrue(os.path.isfile(job["mpi"]["library"]), job["mpi"])
        names = ((job["mpi"]["version"], "VERSION"), (job["mpi"]["library"], "LIBRARY"))
        self.check_told(golden.masked(checks["MPI"]["value"], *names), checks["ranks"]["value"])
        self.assertEqual(checks["ranks"]["verdict"], "ok", checks["ranks"])
        self.assertEqual([rank["rank"] for rank in job["ranks"]], [0, 1, 2])
        for rank in job["ranks"]:
            self.assertEqual(rank["threads"], 1)
            self.assertTrue(rank["cores"])
            self.assertGreater(rank["budget_bytes"], 0)
        self.assertEqual(checks["working folder"]["value"], str(self.folder))
        self.assertEqual(re.findall(r"for (\d+) ranks", checks["budget"]["value"]), ["3"])
        self.assertEqual(re.findall(r"shared by (\d+) ranks", checks[f"disk {self.folder}"]["value"]), ["3"])
        self.assertEqual([(link["from"], link["to"], link["between"]) for link in job["links"]],
                         [(0, 1, "ranks"), (1, 2, "ranks")])
        for link in job["links"]:
            self.assertGreater(link["latency_seconds"], 0)
            self.assertGreater(link["bytes_per_second"], 0)
        self.check_documented(job)

    def check_documented(self, job):
        with open(KEYS_PAGE, encoding="utf-8") as page:
            documented = set(re.findall(r"`([a-z_]+)`", page.read()))
        self.assertEqual(keys_within({**job, "cluster": None}) - documented, set())

    def check_plannable(self, cluster, ranks):
        """What was measured is a description of the machine as plans take it."""
        (self.folder / "machine.json").write_text(json.dumps(cluster), encoding="utf-8")
        recorded = self.start(COMMAND, "profile", "--out", "profile.json", "--", TRAINER[0], "--preset", "tiny",
                              "--batch", "4", "--context", "128", "--width", "256", "--heads", "2", "--layers", "2",
                              "--steps", "5")
        self.assertEqual(recorded.returncode, 0, recorded.stderr)
        run = self.start(PLANNING, "plan-job", "profile.json", "--ranks", ranks, "--micro-batches", "4",
                         "--cluster", "machine.json", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)

    def check_two_hosts(self):
        run = self.launch_parts((2, self.words("--json")), (2, [*self.other_host(), *self.words("--json")]))
        report, checks = self.report(run)
        here, there = report["job"]["hosts"]
        self.assertEqual((here["ranks"], there["ranks"], there["name"]), ([0, 1], [2, 3], "other"))
        self.assertNotIn("clock_offset_seconds", here)
        # One machine has one clock.
        self.assertLess(abs(there["clock_offset_seconds"]), there["clock_error_seconds"] + 1e-6)
        self.assertEqual([(link["from"], link["to"], link["between"]) for link in report["job"]["links"]],
                         [(0, 1, "ranks"), (0, 2, "hosts"), (2, 3, "ranks")])
        # The launcher has started all four on one machine, and does not know of the other name.
        self.assertEqual(checks["ranks"]["verdict"], "warning", checks["ranks"])
        self.check_told(golden.without(checks["clocks"]["value"], golden.TIMES, (r"[-+]TIME", "TIME")),
                        checks["ranks"]["mend"])
        self.check_documented(report["job"])
        self.assertEqual(report["job"]["cluster"]["nodes"], 2)
        return report["job"]["cluster"]

    def check_problem_of_one_rank(self):
        run = self.launch_parts((1, self.words("--json")), (1, self.words("--json", "--budget", "3MiB")))
        # The machine may have problems of its own beside it.
        problem = self.report(run)[1][f"rank 1 ({socket.gethostname()}): budget"]
        self.assertEqual(problem["verdict"], "problem")
        self.check_told(*(problem[key] for key in ("subject", "value", "mend")))
        self.assertNotEqual(run.returncode, 0)

    def check_exit_codes(self):
        """Of all ranks; the launcher's own says of one."""
        code = 'sh -c \'"$@"; echo "code $?" >&2; exit 0\' sh'
        script = self.folder / "doctor.sh"
        script.write_text(f'#!/bin/sh\nexec {code} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        run = self.launch(3, script, *self.words("--budget", "3MiB"), mpi=self.MPI)
        self.assertEqual(run.stderr.count("code 1"), 3, run.stderr)

    def check_working_folder(self):
        """The kernel has file systems that do not tell when a file was made."""
        run = self.launch(2, "sh", "-c", 'cd /sys && exec "$@"', "sh", *self.words("--json"), mpi=self.MPI)
        _, checks = self.report(run)
        self.assertEqual(checks["working folder"]["verdict"], "warning")
        self.check_told(checks["working folder"]["value"], checks["working folder"]["mend"])
        self.assertEqual([name for name in checks if "working folder" in name], ["working folder"])

    def check_crowded(self):
        run = self.launch(2, "env", "OMP_NUM_THREADS=1000", *self.words("--json"), mpi=self.MPI)
        _, checks = self.report(run)
        self.assertEqual(checks["cores of ranks"]["verdict"], "warning")
        # On fewer cores than ranks it is to start fewer of these.
        advice = r"give each rank fewer \(OMP_NUM_THREADS=\d+\)|start fewer ranks there"
        self.check_told(golden.without(checks["cores of ranks"]["mend"], (r"\d+ cores?", "CORES"), (advice, "ADVICE")))

    def check_no_mpi(self, run, *patterns):
        """One report tells of it."""
        check = self.report(run)[1]["MPI"]
        self.assertEqual(check["verdict"], "problem", check)
        self.check_told(*(golden.without(check[key], LIBRARY, *patterns) for key in ("value", "mend")))

    def with_other_mpi(self, other):
        mpi_launcher(self, other)
        return "env", f"LD_PRELOAD={LIBRARIES[other]}"

    def check_other_mpi(self, other):
        """Each rank is a world of its own, and one of them says so."""
        wrong = self.with_other_mpi(other)
        run = self.launch(3, *wrong, *self.words("--json"), mpi=self.MPI)
        self.assertNotEqual(run.returncode, 0)
        self.check_no_mpi(run, (r"^rank \d of 3", "one of 3"))
        split = self.launch(2, *wrong, COMMAND, "run", "--split", "--budget", "1GiB", "--", *TRAINER, "--steps", "2",
                            mpi=self.MPI)
        self.assertNotEqual(split.returncode, 0)
        self.assertEqual(split.stderr.count("start the job with the launcher of that MPI"), 1, split.stderr)
        self.assertNotIn("loss", split.stdout)

    def check_one_rank_without_mpi(self, other):
        """The others wait for it in MPI."""
        run = self.launch_parts((2, self.words("--json")),
                                (1, [*self.with_other_mpi(other), *self.words("--json")]))
        self.assertNotEqual(run.returncode, 0)
        self.check_no_mpi(run)


class Mpich(DoctorCase):
    MPI = "MPICH"

    def test_ranks_of_one_host(self):
        self.check_one_host()

    def test_ranks_of_two_hosts(self):
        self.check_plannable(self.check_two_hosts(), 4)

    def test_a_problem_of_one_rank_is_told_by_the_first_one(self):
        self.check_problem_of_one_rank()

    def test_all_ranks_end_with_the_code_of_the_report(self):
        self.check_exit_codes()

    def test_more_threads_than_cores_are_a_warning(self):
        self.check_crowded()

    def test_a_working_folder_without_times_of_birth_is_a_warning(self):
        self.check_working_folder()

    def test_the_library_of_another_mpi_is_one_sentence(self):
        self.check_other_mpi("Open MPI")

    def test_a_rank_that_cannot_start_mpi_ends_the_job(self):
        self.check_one_rank_without_mpi("Open MPI")

    def test_one_rank_alone(self):
        run = self.launch(1, *self.words("--json"))
        report, checks = self.report(run)
        self.check_told(checks["ranks"]["value"])
        self.assertEqual(report["job"]["links"], [])
        self.assertEqual(report["job"]["cluster"]["node"]["devices"], 1)


class OpenMpi(DoctorCase):
    MPI = "Open MPI"

    def test_ranks_of_one_host(self):
        self.check_one_host()

    def test_ranks_of_two_hosts(self):
        self.check_two_hosts()

    def test_a_problem_of_one_rank_is_told_by_the_first_one(self):
        self.check_problem_of_one_rank()

    def test_all_ranks_end_with_the_code_of_the_report(self):
        self.check_exit_codes()

    def test_the_library_of_another_mpi_is_one_sentence(self):
        self.check_other_mpi("MPICH")

    def test_a_rank_that_cannot_start_mpi_ends_the_job(self):
        self.check_one_rank_without_mpi("MPICH")


class NoLauncher(DoctorCase):
    def test_a_report_without_a_launcher_knows_no_job(self):
        report, checks = self.report(self.start(*self.words("--json")))
        self.assertNotIn("job", report)
        self.assertNotIn("ranks", checks)

    def test_torchrun_starts_no_ranks_of_mpi(self):
        environment = {"WORLD_SIZE": "2", "RANK": "1"}
        report, _ = self.report(self.start(*self.words("--json"), **environment))
        self.assertNotIn("job", report)
        run = self.start(COMMAND, "run", "--split", "--budget", "1GiB", "--", *TRAINER, "--steps", "1",
                         **environment)
        self.assertEqual(run.returncode, 2, run.stderr)
        any_mpi = (r"(MPICH|Open MPI) \S*VERSION", "LIBRARY")
        self.check_told(golden.without(golden.own_lines(run.stderr), LIBRARY, any_mpi))


if __name__ == "__main__":
    unittest.main()
