"""What cases of completions and of the manual share: the files as they are installed, and the help that they are of."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment

COMMAND = pathlib.Path(os.environ["SPILLWAY_TEST_COMMAND"])
BUILD = os.environ["SPILLWAY_TEST_BUILD"]


def help_of(*command):
    return subprocess.run([COMMAND, *command, "--help"], stdout=subprocess.PIPE, text=True, check=True,
                          env=clean_environment()).stdout


def commands_of_help():
    listed = help_of().partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"(?m)^  (\S+)", listed)


def options_of_help(command):
    """(name, type) of each, type "" where the help shows no value."""
    return re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)(?: (\S.*))?$", help_of(command).partition("Examples:")[0])


class InstalledShare(unittest.TestCase):
    """Each case has an installation below `self.share`, and works in a folder with a file and a folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name).resolve()
        subprocess.run(["cmake", "--install", BUILD, "--component", "shell", "--prefix", root],
                       stdout=subprocess.DEVNULL, check=True)
        self.share = root / "share"
        self.assertTrue(self.share.is_dir(), "nothing to install: build the target spillway_shell_files")
        self.work = root / "work"
        (self.work / "spill").mkdir(parents=True)
        (self.work / "step.json").touch()
        self.programs = root / "programs"
        self.programs.mkdir()
        (self.programs / "spillway").symlink_to(COMMAND)  # fish completes what is there only.
        (self.programs / "own-trainer").write_text("#!/bin/sh\n", encoding="utf-8")
        (self.programs / "own-trainer").chmod(0o755)
        self.environment = clean_environment(
            HOME=str(root), XDG_CONFIG_HOME=str(root / "config"), XDG_DATA_HOME=str(root / "data"),
            XDG_DATA_DIRS=f"{self.share}:/usr/local/share:/usr/share", TERM="dumb", LC_ALL="C.UTF-8",
            PATH=f"{self.programs}:{os.environ['PATH']}")
