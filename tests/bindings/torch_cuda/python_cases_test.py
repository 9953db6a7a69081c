"""Trainers in Python do awkward things of CUDA under the command, and get what they get without it, bit for bit."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from small_gpu import SMALL_GPU

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
PYTHON = os.environ["SPILLWAY_TEST_EMULATED_PYTHON"]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
HERE = pathlib.Path(__file__).resolve().parent
SETTINGS = {**SMALL_GPU, "PYTHONPATH": os.environ["SPILLWAY_TEST_EMULATED"]}
SLOW = {"EMU_CUDA_DELAY_US": "300", "EMU_CUDA_DELAY_PCT": "10", "EMU_CUDA_SEED": "3"}
BUDGET = "4MiB"
ALL = ("streams loader memory_functions checkpointing saved_on_cpu save_and_resume overflowing_amp moving_model "
       "storage_exchange optimizers smaller_batch private_pool anomaly own_streams exported raw_kernels "
       "convolutions").split()


class GpuRuns(unittest.TestCase):
    def setUp(self):
        WORK.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "statistics.json"

    def start(self, before, words, settings):
        return subprocess.run([*before, PYTHON, *words], capture_output=True, text=True, check=False,
                              env={**clean_environment(), **SETTINGS, **settings}, timeout=600)

    def served(self):
        return [COMMAND, "run", "--budget", f"cuda={BUDGET},cpu=4GiB", "--min-storage", "32KiB",
                "--nvme", f"ram:2MiB,{self.folder}", "--stats", str(self.file)]

    def devices(self, file):
        return json.loads(file.read_text(encoding="utf-8"))["devices"]

    def assert_paged(self, devices):
        for device in devices:
            self.assertGreater(device["fetched_bytes"], 0)
            self.assertGreater(device["demoted_bytes"], 0)  # By way of host memory to the disk.
            self.assertLessEqual(device["peak_bytes"], 4 << 20)


class RefusedGpus(GpuRuns):
    def test_the_sentence_is_the_last_that_a_trainer_says(self):
        """Told at once, and by the exception, with which Python ends as with any other."""
        run = self.start([COMMAND, "run", "--budget", "cuda=16GiB,cpu=4GiB", "--nvme", self.folder, "--"],
                         ["-c", "import torch; print('begun'); torch.empty(9, device='cuda')"], {})
        self.assertEqual((run.returncode, run.stdout), (1, "begun\n"), run.stderr)
        first, second, *_, last = run.stderr.splitlines()
        self.assertTrue(second.startswith("Traceback "), run.stderr)
        golden.check_part(self, first, last)


class CasesOnGpus(GpuRuns):
    def printed(self, cases, before, settings):
        run = self.start(before, [str(HERE / "python_cases.py"), *cases], settings)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def assert_equal(self, cases, **settings):
        without = {name: value for name, value in settings.items() if name not in (*SLOW, "EMU_CUDA_MEMORY")}
        plain = self.printed(cases, [], without)
        self.assertEqual(self.printed(cases, self.served(), settings), plain)

    def test_all_of_one_gpu_on_slow_streams(self):
        self.assert_equal(ALL, **SLOW)
        self.assert_paged(self.devices(self.file))

    def test_two_threads_with_streams_of_their_own(self):
        self.assert_equal(["threads"])
        self.assert_paged(self.devices(self.file))

    def test_a_model_over_two_gpus_and_copies_both_ways(self):
        self.assert_equal(["two_devices", "crossing_copies"], EMU_CUDA_DEVICES="2")
        first, second = self.devices(self.file)
        self.assertEqual([first["device"], second["device"]], ["cuda:0", "cuda:1"])
        self.assert_paged([first, second])

    def test_settings_of_libtorch(self):
        plain = self.printed(["plain"], [], {})  # Such settings change no bits.
        for settings in ({"CUDA_LAUNCH_BLOCKING": "1"}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
                         {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}):
            with self.subTest(**settings):
                self.assertEqual(self.printed(["plain"], self.served(), settings), plain)
                self.assert_paged(self.devices(self.file))

    def test_spill_files_that_the_gpu_moves_itself(self):
        plain = self.printed(["plain"], [], {})
        for settings in ({}, SLOW, {"EMU_CUFILE_FAULTS": "short:7"}, {"EMU_CUFILE_FAULTS": "read:20"}):
            with self.subTest(**settings):
                self.assertEqual(self.printed(["plain"], [*self.served(), "--gds", "on"], settings), plain)
                device, = self.devices(self.file)
                self.assert_paged([device])
                self.assertGreater(device["directly_written_bytes"], 0)
                self.assertGreater(device["directly_read_bytes"], 0)

    def test_graphs(self):
        self.assert_equal(["graphs"], **SLOW)
        self.assert_paged(self.devices(self.file))

    def test_a_card_that_libtorchs_cache_has_filled(self):
        self.assert_equal(["full_cache"], EMU_CUDA_MEMORY="5MiB", SMALL="240")
        self.assert_paged(self.devices(self.file))

    def test_one_gpu_too_many(self):
        run = self.start(self.served(), ["-c", "import torch; torch.empty(1 << 16, device='cuda:16')"],
                         {"EMU_CUDA_DEVICES": "17"})
        self.assertNotEqual(run.returncode, 0)
        golden.check_part(self, run.stderr.splitlines()[-1])

    def test_pointers_to_more_than_the_budget(self):
        """They stay as long as their tensors do, so the one that finds no room is refused, and the trainer goes on."""
        refused = self.printed(["too_many_pointers"], self.served(), {})
        plain = self.printed(["too_many_pointers"], [], {})
        self.assertEqual(refused.replace("OutOfMemoryError True", "8"), plain)
        self.assertNotEqual(refused, plain)

    def test_a_tensor_larger_than_the_budget(self):
        run = self.start(self.served(), [str(HERE / "python_cases.py"), "too_large"], {})
        self.assertNotEqual(run.returncode, 0)
        told, = (line for line in run.stderr.splitlines() if line.startswith("torch.OutOfMemoryError: "))
        golden.check_part(self, told)


class RanksOnGpus(GpuRuns):
    """Programs that torchrun has started beside one another, each with a GPU."""

    def train(self, form, backend, ranks, name, before, between):
        results = self.folder / name
        results.mkdir()
        script = [str(HERE / "python_ranks.py"), form, backend, str(results)]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", f"{ranks}"]
        run = self.start(before, [*torchrun, *between, PYTHON, *script], {"EMU_CUDA_DEVICES": f"{ranks}"})
        self.assertEqual(run.returncode, 0, run.stderr)
        return [(results / f"rank{rank}").read_text(encoding="utf-8") for rank in range(ranks)]

    def assert_ranks_equal(self, form, backend, ranks=2, outside=False):
        plain = self.train(form, backend, ranks, "plain", [], [])
        served = self.served()
        equal = self.train(form, backend, ranks, "served", *([served, []] if outside else [[], [*served, "--"]]))
        self.assertEqual(equal, plain)
        files = [self.file, *(self.folder / f"statistics.{rank}.json" for rank in range(1, ranks))]
        for rank, file in enumerate(files):
            device, = self.devices(file)
            self.assertEqual(device["device"], f"cuda:{rank}")
            self.assert_paged([device])

    def test_buckets_of_ddp_and_lists(self):
        self.assert_ranks_equal("ddp", "nccl", outside=True)

    def test_ddp_on_four_gpus(self):
        self.assert_ranks_equal("hook", "nccl", ranks=4)

    def test_a_hook_of_ddp(self):
        self.assert_ranks_equal("hook", "gloo")

    def test_sharded_parameters(self):
        self.assert_ranks_equal("sharded", "nccl")


if __name__ == "__main__":
    unittest.main()
