"""The example trainers split over ranks train the same bits as in one process."""
import os
import pathlib
import re
import unittest

from memory_group import Unavailable
from slow_cases import slow
from split_runs import COMMAND, ROOM, SplitCase
from surroundings import SmallDisk

PROGRAMS = pathlib.Path(os.environ["SPILLWAY_TEST_PROGRAMS"])
LEAVES = ["--losses", "losses", "--save-model", "model", "--checkpoint", "checkpoint"]
TRAINERS = {
    "text_gpt": ("/usr/share/common-licenses", ["--preset", "tiny", "--batch", "1", "--context", "128", "--width",
                                                "192", "--warmup-steps", "2", "--steps", "4", "--evaluate-every", "2",
                                                "--evaluate-batches", "1", "--sample-every", "3"]),
    "brain_unet": ("/usr/share/mricron/templates/ch2.nii.gz", ["--preset", "tiny", "--patch", "32x32x32",
                                                               "--steps", "3"]),
    "photo_net": ("/usr/share/backgrounds/Painting-Colors_by__herobrine7gamer.jpg",
                  ["--preset", "tiny", "--crop", "128x128", "--steps", "3"]),
}


class ExampleCase(SplitCase):
    def told(self, output):
        return re.sub(r"  [0-9.e+-]+ s/step.*", "", output)

    def train(self, trainer, ranks, *options, half=False):
        data, flags = TRAINERS[trainer]
        if not pathlib.Path(data).exists():
            self.skipTest(f"{data} is not on this machine")
        words = [PROGRAMS / trainer, *flags, *LEAVES]
        plain = self.run_plain(*words)
        split = self.run_split(ranks, *words, options=options)
        self.check_same(plain, split, archives=["checkpoint"])
        self.check_is_divided(split, ranks)
        if half:
            self.check_half(ranks, words, plain, split, archives=["checkpoint"], options=options)


class Examples(ExampleCase):
    def test_text_gpt_on_two_ranks(self):
        self.train("text_gpt", 2, half=True)

    @slow
    def test_text_gpt_saves_without_room_on_the_other_rank(self):
        """LibTorch's C++ writers; Python's are in python_split_test.py."""
        try:
            disk = SmallDisk(self.room, 8 << 20)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(disk.remove)
        disk.fill(1 << 20)
        words = [PROGRAMS / "text_gpt", "--preset", "tiny", "--steps", "1", *LEAVES]
        plain = self.run_plain(*words)
        self.assertGreater(len(plain.file("model")), 2 << 20)
        rank = ["-n", 1, "env"]
        command = [COMMAND, "run", "--split", "--budget", ROOM, "--nvme", self.room, "--", *words]
        split = self.start([self.launcher, *rank, *command, ":", *rank, f"TMPDIR={disk.point}", *command], "split")
        self.check_same(plain, split, archives=["checkpoint"])
        self.assertNotIn("No space left", split.errors)

    def test_text_gpt_in_two_shards_with_the_same_data(self):
        self.train("text_gpt", 4, "--shards", "2", half=True)

    @slow
    def test_brain_unet_on_two_ranks(self):
        self.train("brain_unet", 2)

    def test_photo_net_on_four_ranks(self):
        self.train("photo_net", 4)


if __name__ == "__main__":
    unittest.main()
