"""Trainers on an emulated GPU give under the command what they give without it, bit for bit."""
import os
import subprocess
import unittest

from clean_environment import clean_environment

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_CUDA_TRAINER"]
STEPS = "4"
SETTINGS = {"OMP_NUM_THREADS": "1", "EMU_CUDA_GRAIN": "64KiB"}


class CudaTraining(unittest.TestCase):
    def run_trainer(self, model, *before, **settings):
        """What the trainer printed; `before`: words of the command in front of it."""
        run = subprocess.run([*before, TRAINER, model, STEPS], capture_output=True, text=True, check=False,
                             env={**clean_environment(), **SETTINGS, **settings}, timeout=600)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def assert_equal_bits(self, model, *options, **settings):
        plain = self.run_trainer(model)
        self.assertNotIn("spillway", plain.stderr)
        served = self.run_trainer(model, COMMAND, "run", *options, **settings)
        self.assertIn("allocator spillway::", served.stderr)
        self.assertEqual(served.stdout, plain.stdout)
        return served

    def test_a_convolutional_net(self):
        self.assert_equal_bits("conv_net", "--budget", "4GiB")

    def test_a_transformer(self):
        self.assert_equal_bits("gpt", "--budget", "4GiB")

    def test_a_net_over_volumes_on_slow_streams(self):
        self.assert_equal_bits("unet", "--budget", "4GiB",
                               EMU_CUDA_DELAY_US="300", EMU_CUDA_DELAY_PCT="10", EMU_CUDA_SEED="3")


if __name__ == "__main__":
    unittest.main()
