"""Parts that an emulated GPU cannot rehearse, with programs and tools that only say what real ones say."""
import os
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import golden
import gpu_test
import parts
import places

MIB = 1 << 20
# Of the words behind `--` the last program decides; `spillway run` leaves the statistics of a GPU.
SPILLWAY = """
import json, os, sys
words = sys.argv[1:]
with open(words[words.index("--stats") + 1], "w") as file:
    json.dump({"devices": [{"needed_bytes": 90 << 20, "small_peak_bytes": 10 << 20}]}, file)
words = words[words.index("--") + 1:]
os.execv(words[0], words)
"""
TRAINER = """
import os, sys
for name in ("--text", "--device"):
    assert name in sys.argv
left = os.environ.get("SPILLWAY_TEST_GPU_BYTES")
if left:
    assert "libspillway_managed_memory.so" in os.environ["LD_PRELOAD"]
# With managed memory the slower, the less of it is on the GPU: these are the three shares of 100 MiB.
seconds = {None: 0.25, 587 << 20: 0.5, 562 << 20: 1.0, 537 << 20: 2.0}[left and int(left)]
for step in range(int(os.environ.get("TRAINED", 10))):
    print(f"step {step}  loss 1.5  {9 if step < 2 else seconds} s/step, 12 tokens/s", flush=True)
"""
SANITIZER = """
import os, subprocess, sys
assert sys.argv[1:7] == ["--tool", "memcheck", "--error-exitcode", "86", "--target-processes", "all"]
done = subprocess.run(sys.argv[7:])
is_trainer = "--" in sys.argv
print("========= COMPUTE-SANITIZER")
errors = os.environ.get("ERRORS_OF_TRAINER" if is_trainer else "ERRORS_OF_CASES", "0")
if errors != "none":
    print(f"========= ERROR SUMMARY: {errors} error{'' if errors == '1' else 's'}")
sys.exit(86 if errors not in ("0", "none") else done.returncode)
"""
CASES = """
import json, os, sys
failures = [{"failure": "1 is not 2"}] if os.environ.get("CASES") == "fail" else []
case = {"classname": "Pages", "name": "Move", "status": "RUN", "result": "COMPLETED", "failures": failures}
if os.environ.get("CASES") != "untold":
    with open(sys.argv[1].removeprefix("--gtest_output=json:"), "w") as file:
        json.dump({"testsuites": [{"testsuite": [case]}]}, file)
print("the driver is shutting down")
sys.exit(os.environ.get("CASES") is not None)
"""


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.add_program("torch/lib/libtorch_cuda.so", "")
        self.add_program("bin/spillway", SPILLWAY)
        self.add_program("bin/text_gpt_on_cuda", TRAINER)
        self.add_program("bin/spillway_memory_cuda_test", "")
        self.add_program("tools/compute-sanitizer", SANITIZER)

    def add_program(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/usr/bin/env -S python3 -B\n{text}", encoding="utf-8")
        file.chmod(0o755)

    def outcome(self, part, *, managed=True, **variables):
        """Of a part on what it takes for a machine with a GPU."""
        with mock.patch.dict(os.environ, SPILLWAY_LIBTORCH_DIR=str(self.folder / "torch"),
                             PATH=f"{self.folder / 'tools'}:{os.environ['PATH']}", **variables):
            place = places.Place(self.folder, emulated=False)
            place.data = lambda name: (self.folder, ["--text", str(self.folder)])
            context = parts.Context(place, parts.REAL, self.folder, types.SimpleNamespace(managed=managed))
            context.begin("sanitizer", 100)
            return part(context)

    def failure(self, part, **variables):
        with self.assertRaises(parts.Failed) as failed:
            self.outcome(part, **variables)
        return str(failed.exception)

    def test_the_cases_of_each_program_are_counted(self):
        for name in parts.REAL.tests:
            self.add_program(f"bin/spillway_{name}_test", CASES)
        self.assertEqual(self.outcome(parts.cases), {name: {"cases": 1, "skipped": 0} for name in parts.REAL.tests})
        self.assertEqual(self.failure(parts.cases, CASES="fail"), "spillway_device_cuda_test: failed: Pages.Move")
        for how, reason in (("crash", ": no case has failed, and yet: "), ("untold", " ended without a report: ")):
            for report in self.folder.glob("*.json"):
                report.unlink()
            self.assertEqual(self.failure(parts.cases, CASES=how),
                             f"spillway_device_cuda_test{reason}exit status 1\nthe driver is shutting down\n")

    def test_works_in_the_folder_that_is_named(self):
        for variables, words, folder in (({}, [], "/var/tmp"), ({"TMPDIR": "/usr"}, [], "/usr"),
                                         ({"TMPDIR": "/usr"}, ["--work", "/"], "/")):
            with mock.patch.dict(os.environ, variables):
                if not variables:
                    os.environ.pop("TMPDIR", None)
                self.assertEqual(gpu_test.options_of(words).work, pathlib.Path(folder))

    def test_a_program_without_errors_passes_the_sanitizer(self):
        self.assertEqual(self.outcome(parts.sanitizer), {"errors": {"memory_cuda": 0, "text_gpt at 50 %": 0}})

    def test_one_error_that_the_sanitizer_finds_fails(self):
        self.assertEqual(self.failure(parts.sanitizer, ERRORS_OF_TRAINER="1"),
                         "compute-sanitizer: {'memory_cuda': 0, 'text_gpt at 50 %': 1}")
        self.assertEqual(self.failure(parts.sanitizer, ERRORS_OF_CASES="12"),
                         "compute-sanitizer: {'memory_cuda': 12, 'text_gpt at 50 %': 0}")

    def test_a_sanitizer_without_a_summary_fails(self):
        golden.check_part(self, self.failure(parts.sanitizer, ERRORS_OF_CASES="none"))

    def test_a_program_that_fails_without_an_error_of_memory_fails(self):
        self.add_program("bin/spillway_memory_cuda_test", "raise SystemExit(3)")
        golden.check_part(self, self.failure(parts.sanitizer))

    def test_a_machine_without_the_sanitizer_is_skipped(self):
        with mock.patch("shutil.which", return_value=None), self.assertRaises(parts.Skipped) as skipped:
            self.outcome(parts.sanitizer)
        self.assertEqual(str(skipped.exception), "there is no compute-sanitizer")

    def test_managed_memory_is_compared_by_the_steps_after_the_first_two(self):
        figures = self.outcome(parts.managed, TRAINED="4")
        self.assertEqual(list(figures), ["75 %", "50 %", "25 %"])
        for share, managed in (("75 %", 0.5), ("50 %", 1.0), ("25 %", 2.0)):
            self.assertEqual(figures[share], {"managed": managed, "spillway": 0.25, "times_faster": managed / 0.25})

    def test_a_trainer_that_managed_memory_ends_fails(self):
        said = self.failure(parts.managed, TRAINED="3")  # The loader tells of the library that is not there.
        golden.check_part(self, *(line for line in said.splitlines() if line and not line.startswith("ERROR: ld.so: ")))

    def test_managed_memory_is_measured_when_asked_for(self):
        with self.assertRaises(parts.Skipped) as skipped:
            self.outcome(parts.managed, managed=False)
        golden.check_part(self, str(skipped.exception))


if __name__ == "__main__":
    unittest.main()
