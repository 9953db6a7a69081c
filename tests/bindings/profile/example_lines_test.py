"""The lines of bindings/examples/planning.md, as a new user would type them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.dom.minidom

from clean_environment import clean_environment

PAGE = pathlib.Path(os.environ["SPILLWAY_TEST_PAGE"])
PROGRAMS = os.environ["SPILLWAY_TEST_PROGRAMS"]
WORK = os.environ["SPILLWAY_TEST_WORK"]
# What the trainers read, and the packages that have it.
DATA = {"brain_unet": ("/usr/share/mricron/templates/ch2.nii.gz", "mricron-data"),
        "photo_net": ("/usr/share/backgrounds", "lomiri-wallpapers-16.04"),
        "text_gpt": ("/usr/share/common-licenses", "base-files")}
# The traces that the last section imports: see tests/README.md.
TRACES = ("dtr/unet-b6.log", "pipedream/vgg16.graph.txt", "piper/bert32a100.json")


def lines_of(section):
    """The lines of its block of shell."""
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(rf"^## {section}\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return block.group(1).replace("\\\n", "").splitlines()


class ExampleLines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

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
        self.assertIn(f"{name}.profile.json", "".join(output))
        self.assertEqual(self.json_of(f"{name}.profile.json")["format"], "spillway-profile")

    def check_example(self, trainer, name):
        data, package = DATA[trainer]
        if not pathlib.Path(data).exists():
            self.skipTest(f"{data} is missing (Debian package {package})")
        (profile, plan, compare, link, frontier, store, follow, strategy,
         simulate) = lines_of(trainer)
        self.check_profile(name, self.run_line(profile))
        self.assertRegex(self.run_line(plan)[0], r"(?m)^bound +.* no plan is faster here")
        self.assertRegex(self.run_line(compare)[0], r"(?m)^karma +\d")
        figures = json.loads(self.run_line(link)[0])
        self.assertEqual(figures["rates"]["write_bytes_per_second"], 12e9)
        self.assertGreater(figures["swapped_bytes"] + figures["recompute_seconds"], 0)
        self.assertEqual(self.run_line(frontier)[0].count(" spillway "), 9)
        picture = xml.dom.minidom.parse(str(self.folder / f"{name}.svg"))
        self.assertEqual(picture.documentElement.tagName, "svg")
        self.assertIn("plan stored in", self.run_line(store)[0])
        followed = re.search(r"was followed in (\d+) of", self.run_line(follow)[1])
        self.assertGreaterEqual(int(followed.group(1)), 4)
        self.run_line(strategy)
        self.assertEqual(self.json_of(f"{name}.dtr.json")["strategy"], "dtr")
        self.assertRegex(self.run_line(simulate)[0], r"(?m)^measured +step \d+ of the run: ")
        events = self.json_of(f"{name}.both.json")["traceEvents"]
        self.assertEqual({event["pid"] for event in events if event["ph"] == "X"}, {1, 2})

    def test_of_brain_unet(self):
        self.check_example("brain_unet", "unet")

    def test_of_photo_net(self):
        self.check_example("photo_net", "photo")

    def test_of_text_gpt(self):
        self.check_example("text_gpt", "gpt")

    def test_of_published_traces(self):
        data = os.environ.get("SPILLWAY_REFERENCE_DATA", "")
        if not data:
            self.skipTest("SPILLWAY_REFERENCE_DATA does not name the folder with the published traces")
        for trace in TRACES:
            shutil.copy(pathlib.Path(data) / trace, self.folder)
        (*imports, bench, measured, by_name, two_tiers) = lines_of("Traces of others.*?")
        for line, name in zip(imports, ("dtr", "pipedream", "piper")):
            self.check_profile(name, self.run_line(line))
        self.run_line(bench)
        self.assertEqual(self.json_of("machine.json")["format"], "spillway disk rates")
        self.assertIn("(machine.json: ", self.run_line(measured)[0])
        figures = json.loads(self.run_line(by_name)[0])
        self.assertEqual(figures["strategy"], "karma")
        self.assertTrue(figures["rates"]["source"].startswith("machine.json: "))
        self.assertIn("8.00 GiB of host memory, then 3.00 GB/s out", self.run_line(two_tiers)[0])


if __name__ == "__main__":
    unittest.main()
