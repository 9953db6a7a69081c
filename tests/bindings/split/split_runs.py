"""Runs a trainer in one process and split over ranks, each time in a folder of its own with the same
relative paths, and compares what the runs leave: standard output and every file."""
import collections
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import zipfile

import golden
from clean_environment import clean_environment
from mpi_launchers import RANKS_ALLOWED, mpi_launcher

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
ROOM = "4GiB"
PATIENCE_SECONDS = 240  # Of a loaded machine.
SHOWN = 4000  # Letters of what a failed run said.


class Run:
    """One that has ended."""

    def __init__(self, words, folder, environment):
        self.folder = folder
        process = subprocess.Popen(words, cwd=folder, env=environment, text=True, start_new_session=True,
                                   errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.output, self.errors = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.output, self.errors = process.communicate()
            self.errors += f"\nno end after {PATIENCE_SECONDS} s"
        self.code = process.returncode
        self.said = " ".join(words) + "\n" + self.output[-SHOWN:] + self.errors[-SHOWN:]

    def file(self, name):
        return (self.folder / name).read_bytes()

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


def records_of(archive):
    """The tensors in an archive, however it is ordered: optimizers of LibTorch's C++ interface save
    their states in the order of addresses, and under them."""
    with zipfile.ZipFile(archive) as opened:
        return collections.Counter(hashlib.sha256(opened.read(name)).hexdigest()
                                   for name in opened.namelist() if "/data/" in name)


class SplitCase(unittest.TestCase):
    mpi = "MPICH"
    threads = "1"
    maxDiff = None

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt, whichever rank says them."""
        words = (re.escape(str(self.room)), "ROOM"), golden.HOST, (r"(?m)^\[spillway( \d)?\]", "[spillway]")
        golden.check_part(self, *(golden.without(text, *words) for text in texts))

    def told(self, output):
        """What of a standard output every run has to say."""
        return output

    def setUp(self):
        self.launcher = mpi_launcher(self, self.mpi)
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.room = pathlib.Path(room.name).resolve()

    def start(self, words, name, **variables):
        folder = self.room / name
        folder.mkdir()
        temporary = self.room / f"temporary-{name}"
        temporary.mkdir()
        environment = clean_environment(TMPDIR=str(temporary), HOME=str(self.room), OMP_NUM_THREADS=self.threads,
                                        OMP_WAIT_POLICY="passive", **RANKS_ALLOWED, **variables)
        return Run([str(word) for word in words], folder, environment)

    def run_plain(self, *words, name="plain", **variables):
        run = self.start(words, name, **variables)
        self.assertEqual(run.code, 0, run.said)
        return run

    def run_split(self, ranks, *words, options=(), budget=ROOM, name="split", **variables):
        """Its statistics, those of the first rank, are in `statistics`."""
        statistics = self.room / f"{name}.json"
        run = self.start([self.launcher, "-n", ranks, COMMAND, "run", "--split", "--budget", budget, "--nvme",
                          self.room, "--stats", statistics, *options, "--", *words], name, **variables)
        run.statistics = json.loads(statistics.read_text()) if statistics.exists() else {}
        return run

    def check_same(self, plain, split, archives=()):
        """The results of the plain run; of `archives` the tensors."""
        self.assertEqual(split.code, 0, split.said)
        self.assertNotIn("operators run in the order in which they can from now on", split.said)  # None held ranks up.
        self.assertEqual(self.told(split.output), self.told(plain.output), split.said)
        self.assertEqual(split.files(), plain.files(), split.said)
        for name in plain.files():
            if name in archives:
                self.assertEqual(records_of(split.folder / name), records_of(plain.folder / name), name)
            else:
                self.assertEqual(split.file(name), plain.file(name), name)

    def check_is_divided(self, split, ranks, most=None):
        """Equal bits alone would come from ranks that each compute all of it, too. No rank keeps `most` times its even
        share of the parameters, or all of them."""
        rows = split.statistics["ranks"]
        self.assertEqual(len(rows), ranks)
        for number, row in enumerate(rows):
            self.assertGreater(row["busy_seconds"], 0, f"rank {number}: {row}")
        kept = [row["parameter_bytes"] for row in rows]
        self.assertLess(max(kept), (most or ranks) * sum(kept) / ranks, f"one rank keeps too many parameters: {kept}")

    def check_half(self, ranks, words, plain, room, archives=(), **more):
        """Again with half of the memory that the first rank took with room for everything."""
        half = room.statistics["needed_bytes"] // 2
        split = self.run_split(ranks, *words, budget=f"{half}B", name="half", **more)
        self.check_same(plain, split, archives)
        self.assertGreater(split.statistics["spilled_bytes"], 0, split.said)
