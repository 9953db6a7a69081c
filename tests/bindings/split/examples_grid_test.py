"""The example trainers split by each schedule, on few and many ranks, with room and with half of it."""
import itertools
import unittest

from examples_split_test import TRAINERS, ExampleCase

SCHEDULES = ("gpipe", "1f1b", "interleaved", "gems-basic", "gems-mast", "gems-master", "zb-h1")


class Grid(ExampleCase):
    def check(self, trainer, ranks):
        for count, schedule in itertools.product(ranks, SCHEDULES):
            with self.subTest(ranks=count, schedule=schedule):
                self.setUp()
                # Half of what each of many ranks needs is less than their largest operator.
                self.train(trainer, count, "--schedule", schedule, half=count == 2)

    def test_text_gpt(self):
        self.check("text_gpt", (2, 4))

    def test_brain_unet(self):
        self.check("brain_unet", (2, 4))

    def test_photo_net(self):
        self.check("photo_net", (2, 4))

    def test_replicas(self):
        for trainer in TRAINERS:
            with self.subTest(trainer=trainer):
                self.setUp()
                self.train(trainer, 4, "--replicas", "2")

    def test_eight_ranks(self):
        self.train("text_gpt", 8, "--schedule", "gems-mast")


class OpenMpi(ExampleCase):
    mpi = "Open MPI"

    def test_text_gpt(self):
        self.train("text_gpt", 2)

    def test_photo_net_on_four_ranks(self):
        self.train("photo_net", 4, "--schedule", "gems-mast")


if __name__ == "__main__":
    unittest.main()
