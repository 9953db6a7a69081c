"""`./test.sh --gpu` on the emulated GPU: each part gives figures or the reason why it has none."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import gpu_test
from clean_environment import clean_environment
from small_gpu import NO_DRIVER

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
BUILD = os.environ["SPILLWAY_TEST_BUILD"]
PARTS = ["device", "cases", "link", "equality", "speed", "state", "sanitizer", "managed"]
NEED_A_GPU = {"sanitizer": "it checks kernels of a real GPU", "managed": "the emulated GPU has no managed memory"}


class GpuRehearsal(unittest.TestCase):
    def start(self, *words, **variables):
        return subprocess.run([REPOSITORY / "test.sh", "--gpu", "--emulated", *words], capture_output=True, text=True,
                              check=False, env={**os.environ, **variables})

    def rehearse(self, *words, status=0, **variables):
        """The record, the summary."""
        WORK.mkdir(exist_ok=True)
        file = WORK / f"{self._testMethodName}.json"
        file.unlink(missing_ok=True)
        done = self.start("--build", BUILD, "--into", file, *words, **variables)
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
        self.assertIn("An emulated GPU: these parts work. Its times and rates are none of a GPU", summary)
        for unit in ("GB/s", "µs", "% of in-core"):
            self.assertNotIn(unit, summary)

    def test_shows_figures_beside_their_goals(self):
        at = {"of_in_core_speed": 0.9, "step_seconds": 2.0, "in_core_step_seconds": 1.8, "planned_step_seconds": 1.9,
              "bound_step_seconds": 1.85, "lost_seconds_per_operator": 3e-7, "host_seconds_per_operator": 2e-7,
              "followed_step_seconds": 1.957, "planned_peak_bytes": 1000, "followed_peak_bytes": 995}
        without_plan = {**at, "planned_step_seconds": 0.0, "followed_step_seconds": 0.0, "bound_step_seconds": 0.0}
        record = {"emulated": False, "date": "2026-11-27", "device": "Card", "parts": {
            "speed": {"seconds": 1.0, "figures": {"text_gpt": {"room": at, "50 %": at, "25 %": without_plan}}},
            "link": {"seconds": 1.0, "figures": {
                "of_bare_out": 0.97, "of_bare_in": 0.96, "product_loses": 0.02, "bare": {"out": 5e10, "in": 4e10},
                "spillway": {"mapping": [{"chunk_bytes": 2 << 20, "beside": "copies", "map_seconds": 3.6e-5,
                                          "unmap_seconds": 1.4e-5}]}}},
            "managed": {"seconds": 1.0, "figures": {"50 %": {"times_faster": 4.0}}},
            "state": {"seconds": 1.0, "figures": {"needed_bytes": 4 << 30, "budget_bytes": 1 << 30,
                                                  "step_seconds_median": 0.5, "tokens_per_second": 321.0}},
            "sanitizer": {"seconds": 0.1, "skipped": "there is no compute-sanitizer"}}}
        summary = gpu_test.summary_of(record)
        for line in ("text_gpt: interception: 11.1 % of a step, 0.30 µs per operator (0.20 µs of the host) (goal 2 %",
                     "text_gpt at 50 %: 90.0 % of in-core speed (2.000 s, planned 1.900 s, bound 1.850 s) (goal 95 %",
                     "text_gpt at 50 %: measured against planned: step +3.0 %, peak -0.5 % (goal 5 %, 1 %)",
                     "text_gpt at 25 %: measured against planned: no step followed a plan (goal 5 %, 1 %)",
                     "copies of pages, of a bare loop: out 97.0 %, in 96.0 % of 50.0 and 40.0 GB/s (goal 95 %)",
                     "matrix products beside copies: lose 2.0 % (goal 3 %)",
                     "2 MiB mapped beside copies: map 36.0 µs, unmap 14.0 µs (goal hidden)",
                     "managed memory at 50 %: 4.0 times faster (goal 3 times)",
                     "state of four budgets: 4.00 GiB with 1.00 GiB, 0.500 s per step, 321 tokens/s (goal trains)",
                     "sanitizer: skipped: there is no compute-sanitizer"):
            self.assertIn(line, summary)

    def test_ends_in_time(self):
        # A test that hangs has failed; what is not measured in time is left out.
        record, _ = self.rehearse("--parts", "equality,speed", "--limit", "3", status=1)
        self.assertEqual(list(record["parts"]), ["device", "equality", "speed"])
        self.assertIn("time", record["parts"]["equality"]["failed"])
        self.assertIn("time", record["parts"]["speed"]["skipped"])

    def test_says_that_there_is_no_gpu(self):
        record, summary = self.rehearse(status=1, EMU_CUDA_DRIVER="0")
        self.assertEqual(list(record["parts"]), ["device"])
        self.assertRegex(summary, f"device: skipped: no GPU: {NO_DRIVER}")

    def test_names_what_is_not_built(self):
        """Of a tree that somebody has configured and built a part of."""
        with tempfile.TemporaryDirectory() as tree:
            for folder in ("bin", "lib"):
                (pathlib.Path(tree) / folder).symlink_to(f"{BUILD}/{folder}")
            (pathlib.Path(tree) / "lib").unlink()
            done = self.start("--build", tree)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"\Anothing was measured: .* lacks lib/libspillway_preload.so, "
                         r"lib/libspillway_core_2.11.so, lib/libspillway_core_2.11_cuda.so, .*"
                         r"--target spillway_emulated_programs\)\n\Z")

    def test_a_machine_without_libtorch_is_told_how_to_go_on(self):
        done = subprocess.run([REPOSITORY / "test.sh", "--gpu", "--build", BUILD], capture_output=True, text=True,
                              check=False, env={**os.environ, "SPILLWAY_LIBTORCH_DIR": "/none"})
        self.assertEqual(done.returncode, 1, done.stdout)
        for words in ("nothing was measured: ", "export SPILLWAY_LIBTORCH_DIR=", "./test.sh --gpu --emulated"):
            self.assertIn(words, done.stdout)

    def test_what_is_packed_is_small_and_whole(self):
        with tempfile.TemporaryDirectory(dir=WORK.parent) as place:
            folder = pathlib.Path(place) / "gpu"
            packed = subprocess.run([REPOSITORY / "test.sh", "--gpu", "--build", BUILD, "--pack", folder],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
            self.assertLess(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), 64_000_000)
            # Its programs are found and start, or there would be other reasons.
            for variables, reason in (
                    ({"SPILLWAY_LIBTORCH_DIR": "/none"}, "the LibTorch in /none has no CUDA part"),
                    ({"EMU_CUDA_DRIVER": "0"}, f"device: skipped: no GPU: {NO_DRIVER}"),
                    ({}, r"device: skipped: Emulated GPU 0 \(8.0\), 8.00 GiB")):
                # It may find no script of this tree.
                surroundings = clean_environment("PYTHONPATH", **{
                    "SPILLWAY_LIBTORCH_DIR": f"{BUILD}/emulated/torch", **variables})
                done = subprocess.run([folder / "test.sh", "--gpu"], capture_output=True, text=True, check=False,
                                      env=surroundings)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertRegex(done.stdout, reason)

    def test_a_failed_part_is_not_said_to_work(self):
        record = {"emulated": True, "date": "2026-11-27", "device": "Emulated GPU 0", "parts": {
            "device": {"seconds": 1.0, "figures": {}}, "cases": {"seconds": 1.0, "failed": "one"}}}
        self.assertIn("An emulated GPU: not every part works", gpu_test.summary_of(record))


if __name__ == "__main__":
    unittest.main()
