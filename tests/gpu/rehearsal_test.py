"""`./test.sh --gpu` on the emulated GPU: each part gives figures or the reason why it has none."""
import json
import os
import pathlib
import subprocess
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
BUILD = os.environ["SPILLWAY_TEST_BUILD"]
PARTS = ["device", "cases", "link", "equality", "speed", "state", "sanitizer", "managed"]
NEED_A_GPU = {"sanitizer": "it checks kernels of a real GPU", "managed": "the emulated GPU has no managed memory"}


class GpuRehearsal(unittest.TestCase):
    def rehearse(self, *words, status=0, **variables):
        """The record, the summary."""
        WORK.mkdir(exist_ok=True)
        file = WORK / f"{self._testMethodName}.json"
        file.unlink(missing_ok=True)
        done = subprocess.run([REPOSITORY / "test.sh", "--gpu", "--emulated", "--build", BUILD, "--into", file, *words],
                              capture_output=True, text=True, check=False, env={**os.environ, **variables})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(file.read_text(encoding="utf-8")), done.stdout

    def test_gives_figures_or_a_reason_for_each_part(self):
        record, summary = self.rehearse()
        self.assertEqual(list(record["parts"]), PARTS)
        self.assertTrue(record["emulated"])
        self.assertTrue(record["device"].startswith("Emulated GPU 0 (8.0)"), record["device"])
        for name, outcome in record["parts"].items():
            if name in NEED_A_GPU:
                self.assertEqual(outcome.get("skipped"), NEED_A_GPU[name])
            else:
                self.assertTrue(outcome.get("figures"), f"{name}: {outcome}")
        parts = {name: outcome.get("figures") for name, outcome in record["parts"].items()}
        for told in parts["equality"].values():
            if isinstance(told, dict):  # Its data is on this machine.
                self.assertTrue(told["equal"])
                self.assertLessEqual({"with_room", "budget_75", "budget_50", "budget_25"}, set(told["runs"]))
                self.assertGreater(told["runs"]["budget_25"]["fetched_bytes"], 0)
        half = parts["speed"]["text_gpt"]["50 %"]
        self.assertGreater(half["spilled_bytes"], 0)
        self.assertLessEqual(half["peak_bytes"], half["budget_bytes"])
        # Nothing that could be taken for figures of a GPU.
        self.assertIn("Its times and rates are none of a GPU", summary)
        for unit in ("GB/s", "µs", "% of in-core"):
            self.assertNotIn(unit, summary)

    def test_ends_in_time(self):
        record, _ = self.rehearse("--parts", "link,equality", "--limit", "3")
        self.assertEqual(list(record["parts"]), ["device", "link", "equality"])
        self.assertIn("time", record["parts"]["equality"]["skipped"])

    def test_says_that_there_is_no_gpu(self):
        record, summary = self.rehearse(EMU_CUDA_DRIVER="0")
        self.assertEqual(list(record["parts"]), ["device"])
        self.assertIn("device: skipped: no GPU: no driver of NVIDIA is loaded", summary)


if __name__ == "__main__":
    unittest.main()
