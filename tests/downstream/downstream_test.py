"""A project of its own is built against the installed package and trains under a budget."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

import golden
from clean_environment import clean_environment

BUILD = os.environ["SPILLWAY_TEST_BUILD"]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_FOLDER"])
PROJECT = pathlib.Path(__file__).resolve().parent / "trainer"
MIB = 1 << 20
BUDGET_MIB = 64


def run(*command, **variables):
    """Returns what the command printed; fails with everything it said."""
    environment = clean_environment(
        **{"SPILLWAY_LIBTORCH_DIR": os.environ["SPILLWAY_LIBTORCH_DIR"], **variables})
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode} of {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def losses_in(text):
    return [line for line in text.splitlines() if line.startswith("loss ")]


def counters_in(text):
    words = [line.split() for line in text.splitlines()]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def said_in(text):
    """All else."""
    return [line for line in text.splitlines()
            if not line.startswith("loss ") and line.split()[0] not in counters_in(text)]


class InstalledPackage(unittest.TestCase):
    def setUp(self):
        self.prefix = WORK / "prefix"
        self.spill = WORK / "spill"
        for folder in (self.prefix, self.spill):
            shutil.rmtree(folder, ignore_errors=True)
        self.spill.mkdir(parents=True)

    def build_trainer(self):
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        # Its one unit takes longer to compile than to train.
        cached = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        # Debug: the package itself must bring the NDEBUG that LibTorch's headers need.
        run("cmake", "-G", "Ninja", "-S", PROJECT, "-B", WORK / "build",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Debug", *cached)
        run("cmake", "--build", WORK / "build")
        return WORK / "build/trainer"

    def assert_paged(self, counters):
        self.assertEqual(counters["budget_bytes"], BUDGET_MIB * MIB)
        self.assertGreater(counters["needed_bytes"], 2 * BUDGET_MIB * MIB)
        self.assertGreater(counters["spilled_bytes"], 0)
        self.assertGreater(counters["fetched_bytes"], 0)
        self.assertGreater(counters["peak_bytes"], 0)
        self.assertLessEqual(counters["peak_bytes"], BUDGET_MIB * MIB)

    def test_trains_the_same_linked_in_and_under_the_command(self):
        trainer = self.build_trainer()
        file = WORK / "parameters"
        plain = run(trainer, file)
        self.assertEqual(len(losses_in(plain)), 4, plain)
        said = said_in(plain)

        # "signal" leaves system calls to the core's copies of the preload library's functions.
        for mapper in ("auto", "signal"):
            linked = run(trainer, file, f"{BUDGET_MIB}MiB", self.spill, SPILLWAY_MAPPER=mapper)
            self.assertEqual(losses_in(linked), 2 * losses_in(plain))
            self.assertEqual(linked.count("file equal\n"), 2, linked)
            self.assert_paged(counters_in(linked))
        said += said_in(linked)

        stats = WORK / "stats.json"
        stats.unlink(missing_ok=True)
        under_command = run(self.prefix / "bin/spillway", "run", "--budget", f"{BUDGET_MIB}MiB",
                            "--nvme", self.spill, "--stats", stats, "--", trainer, file)
        self.assertEqual(losses_in(under_command), losses_in(plain))
        said += said_in(under_command)
        self.assert_paged(json.loads(stats.read_text(encoding="utf-8")))
        self.assertEqual(list(self.spill.iterdir()), [])

        costs = WORK / "costs.txt"
        costs.write_text("1 2 3 4\n", encoding="utf-8")
        # The program that plans was installed as well.
        cuts = run(self.prefix / "bin/spillway", "costs", costs, "--ranks", "2")
        golden.check_part(self, *said, golden.masked(cuts))


if __name__ == "__main__":
    unittest.main()
