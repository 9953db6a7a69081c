"""What a user gets who gives a GPU too little, or has a GPU that can or does not do its part: a sentence and an end, or
the same bits."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from clean_environment import clean_environment
from small_gpu import SMALL_GPU

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "src/cmake/setup"))
from budget_text import as_option, smallest_budget_in  # noqa: E402  pylint: disable=wrong-import-position

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_CUDA_TRAINER"]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
MIB = 1 << 20
LITTLE = 14 * MIB  # What the largest operator of the convolutional net needs, and little more.
TRAINING = ("conv_net", "3")


class CudaRefusals(unittest.TestCase):
    def setUp(self):
        WORK.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, before, training, settings):
        """A hang fails: nothing here takes minutes."""
        return subprocess.run([*before, TRAINER, *training], capture_output=True, text=True, check=False,
                              env={**clean_environment(), **SMALL_GPU, **settings}, timeout=300)

    def run_with(self, budget, ram="16MiB", limit="", training=TRAINING, **settings):
        return self.start([COMMAND, "run", "--budget", f"cuda={as_option(budget)},cpu=4GiB", "--min-storage", "32KiB",
                           "--nvme", f"ram:{ram},{self.folder}{limit}", "--stats", str(self.statistics_file())],
                          training, settings)

    def statistics_file(self):
        return self.folder / "statistics.json"

    def assert_refused(self, run, *sentences):
        """It has ended by itself, said that, and trained no step wrongly."""
        self.assertNotEqual(run.returncode, 0, run.stderr)
        for sentence in sentences:
            self.assertIn(sentence, run.stderr)
        plain = self.start([], TRAINING, {}).stdout
        self.assertTrue(plain.startswith(run.stdout), f"{run.stdout} is not how this begins:\n{plain}")

    def assert_equal_though_paged(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, self.start([], TRAINING, {}).stdout)
        gpu, = json.loads(self.statistics_file().read_text(encoding="utf-8"))["devices"]
        self.assertGreater(gpu["fetched_bytes"], 0)

    def test_a_budget_larger_than_the_card(self):
        self.assert_refused(self.run_with(16 << 30), "[spillway] error: ",
                            "is larger than the memory of cuda:0 (Emulated GPU 0), 8.00 GiB")

    def test_no_gpu_that_can_be_used(self):
        """The trainer takes the CPU then, as it does without the command."""
        for settings in ({"EMU_CUDA_DRIVER": "0"}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "9"}):
            plain = self.start([], TRAINING, settings)
            self.assertEqual(plain.returncode, 0, plain.stderr)
            self.assertNotIn("peak", plain.stderr)
            run = self.run_with(LITTLE, training=TRAINING, **settings)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stdout, plain.stdout)
            self.assertNotIn("error", run.stderr)
            statistics = json.loads(self.statistics_file().read_text(encoding="utf-8"))
            self.assertEqual(statistics["devices"], [])

    def test_gpus_in_another_order(self):
        run = self.run_with(LITTLE, EMU_CUDA_DEVICES="2", CUDA_VISIBLE_DEVICES="1,0")
        self.assert_equal_though_paged(run)
        self.assertIn("Emulated GPU 1", run.stderr)

    def test_a_gpu_that_is_older_than_cuda(self):
        self.assert_refused(self.run_with(LITTLE, EMU_CUDA_CC="7.0"),
                            "[spillway] error: device cuda:0 has the compute capability 7.0, and CUDA 13 has kernels "
                            "for 7.5 and later: take another GPU")

    def test_a_tensor_for_other_processes(self):
        self.assert_refused(self.run_with(LITTLE, training=("shared",)),
                            "Spillway moves this tensor of 524288 bytes, so that no other process can use its memory: "
                            "send a copy on the host")

    def test_a_gpu_without_virtual_memory(self):
        self.assert_refused(self.run_with(LITTLE, EMU_CUDA_VIRTUAL="0"),
                            "[spillway] error: device cuda:0 cannot lay memory beneath addresses that stay")

    def test_a_budget_that_the_largest_operator_exceeds_and_the_one_that_is_named(self):
        refused = self.run_with(3 * MIB)
        self.assert_refused(refused, "does not fit into the budget of 3.00 MiB of cuda:0: it needs")
        self.assertNotIn("piece by piece", refused.stderr)
        smallest, said = 0, refused
        while said.returncode != 0:  # Larger operators may follow the one that was refused.
            self.assertGreater(smallest_budget_in(said.stderr), smallest)
            smallest = smallest_budget_in(said.stderr)
            said = self.run_with(smallest)
        self.assert_equal_though_paged(said)

    def test_host_memory_that_cannot_be_pinned(self):
        run = self.run_with(LITTLE, EMU_CUDA_PINNED="8MiB")
        self.assertIn("16.0 MiB of host memory for what leaves cuda:0 are not pinned, so copies are slower", run.stderr)
        self.assert_equal_though_paged(run)

    def test_a_full_disk_behind_full_host_memory(self):
        self.assert_refused(self.run_with(LITTLE, ram="4MiB", limit=":2MiB"), "No space left in",
                            "of host memory before it are full", "name a directory with more room")

    def test_a_gpu_that_is_lost(self):
        self.assert_refused(self.run_with(LITTLE, training=(*TRAINING, "1")), "ECC")


if __name__ == "__main__":
    unittest.main()
