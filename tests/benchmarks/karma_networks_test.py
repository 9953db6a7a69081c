#!/usr/bin/env python3
"""Steps that were recorded at two batch sizes, at other ones and on a V100."""
import copy
import pathlib
import sys
import unittest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
FOLDER = BENCHMARKS / "does_it_reach_what_karma_claims"
sys.path[:0] = [str(BENCHMARKS), str(FOLDER)]
from measure import training  # noqa: E402  pylint: disable=wrong-import-position
import recorded_step  # noqa: E402  pylint: disable=wrong-import-position
import v100  # noqa: E402  pylint: disable=wrong-import-position

KIB, MIB = 1 << 10, 1 << 20
WEIGHT = ("conv", 8, 4, 3, 3)  # 1152 bytes.


def profile_at(batch):
    """Images of 64 KiB, a convolution to 128 KiB and back, and an update of its weight."""
    columns = {
        "bytes": [1152, 64 * KIB * batch, 128 * KIB * batch, 128 * KIB * batch, 1152],
        "birth": [-1, 0, 1, 2, 3],
        "death": [-1, 3, 2, 3, 4],
        "becomes": [0, -1, -1, -1, -1],
        "class": [1, 5, 5, 5, 2]
    }
    return {
        "origin": {
            "program": "p"
        },
        "classes": [],
        "small_bytes": 10,
        "kinds": {
            "name": [
                "aten::randn", "aten::convolution", "aten::relu", "aten::convolution_backward",
                "aten::add_.Tensor"
            ]
        },
        "ops": {
            "kind": [0, 1, 2, 3, 4],
            "signature": ["0" * 16] * 5,
            "use_count": [0, 2, 1, 3, 2],
            "replayable": [0, 1, 1, 0, 0]
        },
        "uses": {
            "value": [1, 0, 2, 3, 1, 0, 0, 4],
            "writes": [0, 0, 0, 0, 0, 0, 1, 0]
        },
        "values": columns
    }


def joined(first, second):
    return recorded_step.joined([first, second], (1, 2), [WEIGHT])


class RecordedStep(unittest.TestCase):
    def setUp(self):
        self.step = recorded_step.RecordedStep(joined(profile_at(1), profile_at(2)))

    def test_grows_by_the_bytes_of_an_image(self):
        self.assertEqual(self.step.bytes_at(2, 100), 100 * 128 * KIB)
        self.assertEqual(self.step.bytes_at(0, 100), 1152)

    def test_refuses_bytes_that_are_not_affine(self):
        self.step.values[2].bytes = (5, 4)
        with self.assertRaisesRegex(training.Failure, "value 2 has 5 bytes at batch 1 and 4 at 2"):
            self.step.bytes_at(2, 3)

    def test_refuses_batches_whose_steps_differ(self):
        other = copy.deepcopy(profile_at(2))
        other["values"]["death"][1] = 4
        with self.assertRaisesRegex(training.Failure, "differ in values.death"):
            joined(profile_at(1), other)
        other["ops"]["kind"][2] = 4
        with self.assertRaisesRegex(training.Failure, "different operators"):
            joined(profile_at(1), other)

    def test_counts_two_products_in_backward_but_one_for_the_first_layer(self):
        # 128 KiB are 32768 floats in 8 channels: 4096 pixels, each 288 multiplications and additions.
        forward = 2 * 4096 * 288
        self.assertEqual(v100.flops_of_operators(self.step, 1), [0, forward, 0, forward, 0])

    def test_takes_the_slower_of_arithmetic_and_memory(self):
        speed = v100.Speed(flops_3x3=1e6, flops_other=1, bytes_per_second=1e9, launch=0.25)
        seconds = v100.times(self.step, 1, speed)
        self.assertAlmostEqual(seconds[1], 0.25 + 2 * 4096 * 288 / 1e6)
        self.assertAlmostEqual(seconds[2], 0.25 + 256 * KIB / 1e9)

    def test_tells_large_values_only_and_loses_no_time(self):
        profile = v100.profile(self.step, 8)  # Images of half a MiB, layers of one.
        self.assertEqual(profile["values"], {
            "bytes": [MIB, MIB],
            "birth": [0, 1],
            "death": [1, 2],
            "becomes": [-1, -1],
            "class": [5, 5]
        })
        self.assertEqual(profile["ops"]["use_count"], [0, 1, 1])
        self.assertEqual(profile["ops"]["inside_peak_pages"], [1, 1, 0])
        self.assertEqual(sum(profile["ops"]["time_ns"]), round(sum(v100.times(self.step, 8)) * 1e9))
        # Weight, gradient and images together, and what the recording could not tell apart.
        self.assertEqual(profile["small_bytes"], 10 + 2 * 1152 + 512 * KIB)


if __name__ == "__main__":
    unittest.main()
