"""`./test.sh --gpu` on the emulated GPU: each part gives figures or the reason why it has none."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import golden
import gpu_test
from clean_environment import clean_environment

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
        self.assertEqual([line for line in summary.splitlines() if line.startswith("An emulated GPU: ")],
                         ["An emulated GPU: these parts work. Its times and rates are none of a GPU."])
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
        golden.check_part(self, gpu_test.summary_of(record))

    def test_ends_in_time(self):
        # A test that hangs has failed; what is not measured in time is left out.
        record, _ = self.rehearse("--parts", "equality,speed", "--limit", "3", status=1)
        self.assertEqual(list(record["parts"]), ["device", "equality", "speed"])
        self.assertIn("time", record["parts"]["equality"]["failed"])
        self.assertIn("time", record["parts"]["speed"]["skipped"])

    def test_says_that_there_is_no_gpu(self):
        record, _ = self.rehearse(status=1, EMU_CUDA_DRIVER="0")
        self.assertEqual(list(record["parts"]), ["device"])
        golden.check_part(self, golden.masked(record["parts"]["device"]["skipped"]))

    def test_names_what_is_not_built(self):
        """Of a tree that somebody has configured and built a part of."""
        with tempfile.TemporaryDirectory() as tree:
            for folder in ("bin", "lib"):
                (pathlib.Path(tree) / folder).symlink_to(f"{BUILD}/{folder}")
            (pathlib.Path(tree) / "lib").unlink()
            done = self.start("--build", tree)
        self.assertEqual(done.returncode, 1, done.stdout)
        golden.check_part(self, golden.masked(done.stdout, (tree, "TREE")))

    def test_a_machine_without_libtorch_is_told_how_to_go_on(self):
        done = subprocess.run([REPOSITORY / "test.sh", "--gpu", "--build", BUILD], capture_output=True, text=True,
                              check=False, env={**os.environ, "SPILLWAY_LIBTORCH_DIR": "/none"})
        self.assertEqual(done.returncode, 1, done.stdout)
        golden.check_part(self, golden.masked(done.stdout, (BUILD, "BUILD")))

    def test_what_is_packed_is_small_and_whole(self):
        with tempfile.TemporaryDirectory(dir=WORK.parent) as place:
            folder = pathlib.Path(place) / "gpu"
            packed = subprocess.run([REPOSITORY / "test.sh", "--gpu", "--build", BUILD, "--pack", folder],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
            self.assertLess(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), 64_000_000)
            # Its programs are found and start, or there would be other reasons.
            told = []
            for variables in ({"SPILLWAY_LIBTORCH_DIR": "/none"}, {"EMU_CUDA_DRIVER": "0"}, {}):
                # It may find no script of this tree.
                surroundings = clean_environment("PYTHONPATH", **{
                    "SPILLWAY_LIBTORCH_DIR": f"{BUILD}/emulated/torch", **variables})
                done = subprocess.run([folder / "test.sh", "--gpu"], capture_output=True, text=True, check=False,
                                      env=surroundings)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                told.append(golden.without(golden.masked(done.stdout, (str(folder), "FOLDER")),
                                           (r"\d+-\d+-\d+T[\d:+]+", "DATE")))
            golden.check_part(self, *told)

    def test_a_failed_part_is_not_said_to_work(self):
        record = {"emulated": True, "date": "2026-11-27", "device": "Emulated GPU 0", "parts": {
            "device": {"seconds": 1.0, "figures": {}}, "cases": {"seconds": 1.0, "failed": "one"}}}
        golden.check_part(self, gpu_test.summary_of(record))


if __name__ == "__main__":
    unittest.main()
