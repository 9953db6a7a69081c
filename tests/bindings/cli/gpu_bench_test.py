"""`spillway bench-io --device` on the emulated CUDA, where its times mean nothing."""
import json
import os
import pathlib
import re
import unittest

import golden
from command_case import COMMAND, CommandCase

EMULATED = pathlib.Path(os.environ["SPILLWAY_TEST_EMULATED"])
SMALL = ("--blocks", "256KiB,4MiB", "--depths", "1,2", "--repetitions", "1", "--chunks", "2MiB")


class GpuBench(CommandCase):
    def measure(self, *words, **variables):
        self.command = COMMAND  # The emulated runtime is beside a LibTorch, not in this world.
        status, output, errors = self.spillway("bench-io", *words, SPILLWAY_LIBTORCH_DIR=str(EMULATED / "torch"),
                                               **variables)
        # A slow machine takes longer than it stays silent.
        progress = re.compile(r"^\[spillway\] (?:pinning|copies|mapping) .*\n", re.MULTILINE)
        return status, output, progress.sub("", errors)

    def test_keeps_what_it_measures_under_the_name_of_the_gpu(self):
        rates = self.root / "work/rates.json"
        for device in ("cuda:1", "cuda:0"):
            status, output, errors = self.measure("--rates", rates, "--device", device, *SMALL,
                                                  EMU_CUDA_DEVICES="2", EMU_CUDA_DELAY_US="300")
            self.assertEqual((status, errors), (0, ""))
        self.assertTrue(output.startswith("cuda:0, Emulated GPU 0, 20"), output)
        second, first = json.loads(rates.read_text(encoding="utf-8"))["links"]
        self.assertEqual((first["name"], second["name"]), ("Emulated GPU 0", "Emulated GPU 1"))
        points = [(sample["block_bytes"] >> 10, sample["depth"], sample["beside_work"]) for sample in first["samples"]]
        self.assertEqual(points, [(256, 1, 0), (256, 2, 0), (4096, 1, 0), (4096, 2, 0), (4096, points[-1][1], 1)])
        self.assertEqual([time["beside"] for time in first["mapping"]], ["nothing", "work", "copies"])
        self.assertEqual([time["bytes"] >> 20 for time in first["pinning"]], [2, 32, 256])
        for key in ("out", "in", "both"):
            self.assertGreater(first[f"{key}_bytes_per_second"], 0)
        for line in ("beside work", "  plans", "work is copies within", "2.00 MiB beside copies: ",
                     "pinning 256 MiB: "):
            self.assertIn(line, output)

    def test_tells_where_nothing_can_be_mapped_or_pinned(self):
        _, output, errors = self.measure("--rates", self.root / "work/rates.json", "--device", "cuda:0", *SMALL,
                                         EMU_CUDA_VIRTUAL="0", EMU_CUDA_PINNED="1MiB")
        lines = output.splitlines()
        self.check_told(*(golden.without(line, golden.TIMES) for line in lines
                          if " is pageable: " in line or "nothing is mapped" in line), errors)

    def test_refuses_what_it_cannot_measure(self):
        told = []
        for words in (("--device", "gpu"), ("--device", "cuda:3"), (), ("--device", "cuda:0", "."),
                      ("--device", "cuda:0", "--store", "posix"), ("--chunks", "2MiB", "."),
                      ("--device", "cuda:0", "--chunks", "3KiB")):
            status, output, errors = self.measure(*words)
            self.assertEqual((status, output), (2, ""), words)
            told.append(errors)
            self.assertEqual(errors.count("\n"), 1, errors)
        status, _, errors = self.measure("--device", "cuda:0", EMU_CUDA_DRIVER="0")
        self.assertEqual(status, 2)
        self.check_told(*told, errors)


if __name__ == "__main__":
    unittest.main()
