"""Runs the lines of a page for users as they would type them."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment
from reference_data import reference_file

PAGE = pathlib.Path(os.environ["SPILLWAY_TEST_PAGE"])
PROGRAMS = os.environ["SPILLWAY_TEST_PROGRAMS"]
WORK = os.environ["SPILLWAY_TEST_WORK"]
# What the trainers read, and the packages that have it.
DATA = {"brain_unet": ("/usr/share/mricron/templates/ch2.nii.gz", "mricron-data"),
        "photo_net": ("/usr/share/backgrounds", "lomiri-wallpapers-16.04"),
        "text_gpt": ("/usr/share/common-licenses", "base-files")}


def lines_of(section):
    """The lines of its first block of shell."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(rf"^## {section}\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return block.group(1).replace("\\\n", "").splitlines()


class PageLines(unittest.TestCase):
    """Each case in a folder of its own, which the lines write into."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def require_data_of(self, trainer):
        data, package = DATA[trainer]
        if not pathlib.Path(data).exists():
            self.skipTest(f"{data} is missing (Debian package {package})")

    def copy_traces(self, traces):
        """Published ones, or extracts: see tests/README.md."""
        for trace in traces:
            source = reference_file(trace)
            (self.folder / source.name).write_bytes(source.read_bytes())

    def run_line(self, line):
        """(standard output, error output)"""
        environment = clean_environment(PATH=f"{PROGRAMS}:{os.environ['PATH']}",
                                        HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder),
                                        OMP_WAIT_POLICY="passive")
        run = subprocess.run(["bash", "-c", line], cwd=self.folder, env=environment, text=True,
                             timeout=300, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(run.returncode, 0, f"{line}\n{run.stderr}")
        return run.stdout, run.stderr

    def json_of(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def check_profile(self, name, output):
        self.assertEqual(set(re.findall(r"[\w.]+\.profile\.json", "".join(output))), {f"{name}.profile.json"}, output)
        self.assertEqual(self.json_of(f"{name}.profile.json")["format"], "spillway-profile")
