"""What all cases of the command share: an installation of its own for each."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import golden
from clean_environment import clean_environment

COMMAND = pathlib.Path(os.environ["SPILLWAY_TEST_COMMAND"])
WORLD = pathlib.Path(os.environ["SPILLWAY_TEST_WORLD"])


class CommandCase(unittest.TestCase):
    """Each case has its own installation: both programs, preload library, a fake core, descriptions of machines."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "bin").mkdir()
        (self.root / "work").mkdir()
        self.command = self.root / "bin/spillway"
        for program in (COMMAND, COMMAND.with_name("spillway-planning")):
            shutil.copy(program, self.root / "bin")
        shutil.copytree(WORLD / "lib", self.root / "lib")
        shutil.copytree(COMMAND.parents[1] / "share", self.root / "share")
        self.preload = self.root / "lib/libspillway_preload.so"

    def environment(self, variables):
        return clean_environment(**{"HOME": str(self.root),
                                    "XDG_CONFIG_HOME": str(self.root / "config"), **variables})

    def spillway(self, *words, **variables):
        """(exit code, standard output, error output)"""
        outcome = subprocess.run([str(self.command), *map(str, words)], text=True,
                                 env=self.environment(variables), cwd=self.root / "work",
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def run_program(self, *words, options=(), **variables):
        """Without a budget that is asked for: with one, a run that needs none is told of."""
        return self.spillway("run", "--nvme", self.root / "work", *options, "--", *words,
                             **variables)

    def static_program(self):
        source = self.write("static.c", "int main(void) { return 0; }\n")
        program = self.root / "work/static"
        compiled = subprocess.run([os.environ["SPILLWAY_TEST_COMPILER"], "-static", str(source),
                                   "-o", str(program)], capture_output=True, check=False)
        if compiled.returncode != 0:
            self.skipTest("no static C library is installed")
        return program

    @staticmethod
    def file_system(path):
        asked = subprocess.run(["stat", "--file-system", "--format=%T", path], text=True,
                               capture_output=True, check=False)
        return asked.stdout.strip()

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        words = ((str(self.root / "work"), "$PWD"), (str(self.root), "$HOME"), (str(WORLD), "$WORLD"),
                 *((shutil.which(name) or name, name) for name in ("true", "env")))
        golden.check_told(self, texts, *words)

    def assert_environment(self, output, **expected):
        """Of what `env` has printed."""
        given = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        self.assertEqual({name: given.get(name) for name in expected}, expected)

    def refused(self, *words, code=2, **variables):
        """The one line that a refusal prints."""
        status, output, errors = self.spillway(*words, **variables)
        self.assertEqual((status, output), (code, ""), errors)
        line, end, rest = errors.partition("\n")
        self.assertEqual((line[:18], end, rest), ("[spillway] error: ", "\n", ""), errors)
        self.assertTrue(line[18:].strip(), "an error without a sentence")
        return errors

    def write(self, name, text, mode=0o755):
        path = self.root / "work" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path
