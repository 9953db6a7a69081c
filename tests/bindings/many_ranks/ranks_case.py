"""Runs a small trainer under a launcher of MPI, in a folder of its own."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from mpi_launchers import PATIENCE_SECONDS, RANKS_ALLOWED, mpi_launcher

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = [os.environ["SPILLWAY_TEST_TRAINER"], "--preset", "tiny", "--batch", "1", "--context", "64", "--width", "64",
           "--heads", "2", "--layers", "2"]


class RanksCase(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.folder = pathlib.Path(room.name).resolve()

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        golden.check_told(self, texts, (str(self.folder), "FOLDER"), patterns=(golden.HOST,))

    def start(self, *words, **variables):
        """What a command has written, and its exit code."""
        environment = clean_environment(HOME=str(self.folder), TMPDIR=str(self.folder), OMP_NUM_THREADS="1",
                                        OMP_WAIT_POLICY="passive", **RANKS_ALLOWED, **variables)
        return subprocess.run([str(word) for word in words], cwd=self.folder, env=environment, text=True,
                              timeout=PATIENCE_SECONDS, capture_output=True, check=False)

    def launch(self, ranks, *words, mpi="MPICH", **variables):
        return self.start(mpi_launcher(self, mpi), "-n", ranks, *words, **variables)

    def split(self, ranks, *options, trainer=(*TRAINER, "--steps", "2"), **more):
        return self.launch(ranks, COMMAND, "run", "--split", "--budget", "1GiB", *options, "--", *trainer, **more)
