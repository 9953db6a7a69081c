"""Programs with data of their own (--shards) train on the mean of their gradients: the bits of one process that
trains all of them, adds their gradients in the order of shards and divides."""
import pathlib
import unittest

from python_split_test import PYTHON, PythonCase
from split_runs import COMMAND

TRAINERS = pathlib.Path(__file__).with_name("shard_trainers.py")


class ShardsCase(PythonCase):
    def run_shards(self, ranks, shards, *trainers, options=(), **more):
        return self.run_split(ranks, PYTHON, TRAINERS, "{shard}", "{shards}", "one", *trainers,
                              options=["--shards", shards, *options], **more)

    def check(self, ranks, shards, *trainers, **more):
        """In a folder of one process and in that of ranks: what shard 0 prints and saves."""
        plain = self.run_plain(PYTHON, TRAINERS, 0, shards, "whole", *trainers)
        self.check_same(plain, self.run_shards(ranks, shards, *trainers, **more))


class Means(ShardsCase):
    def test_over_two_shards_of_one_rank(self):
        self.check(2, 2, "sgd,1", "adamw,fused,1", "clipped", "kept_gradients", "update_in_backward", "looked_at",
                   "one_flat_gradient", "archived")

    def test_over_two_shards_of_two_stages(self):
        self.check(4, 2, "sgd,1", "sgd,4,512", "adamw,foreach", "adamw,fused", "clipped", "tied", "looked_at",
                   "archived")

    def test_over_three_shards(self):
        self.check(3, 3, "sgd,2", "batch_norm", "bfloat16")

    def test_with_other_placements(self):
        self.check(4, 2, "sgd,4", "clipped", "batch_norm", options=["--schedule", "gems-mast"])

    def test_with_pipelines_beside_each_other(self):
        self.check(4, 2, "sgd,4", "adamw,foreach,4", options=["--replicas", "2"])

    def test_of_two_are_the_same_in_any_order(self):
        self.check(2, 2, "sgd,2,512", "clipped", options=["--gradients", "fast"])


class Ends(ShardsCase):
    def check_end(self, trainer, text):
        run = self.run_shards(2, 2, trainer)
        self.assertNotEqual(run.code, 0, run.said)
        self.assertRegex(run.errors, text)

    def test_a_gradient_in_one_shard_only(self):
        self.check_end("gradient_in_one_shard",
                       r"shard 0 averages the gradient of parameter \d \(Float \[32, 32\]\) in step 2")

    def test_fewer_batches(self):
        self.check_end("fewer_batches", r"shard 1 has ended after 2 steps, and shard 0 goes on and averages the "
                                        r"gradient of parameter \d .* in step 3: give each shard as many batches")

    def test_a_skipped_update(self):
        self.check_end("skipped_update", r"shard 1 has ended after 2 steps, and shard 0 goes on")

    def test_other_sizes(self):
        self.check_end("other_sizes", r"shard 0 first uses parameter 0 .*, 16 B in step 1|"
                                      r"shard 1 first uses parameter 0 .*, 20 B in step 1")

    def test_data_with_gradients(self):
        self.check_end("data_with_gradients", r"the 8 steps up to step 9 has made a tensor that requires a gradient "
                                              r"\(Float \[8, 32\]\), so --shards takes it for a parameter")

    def test_gradients_of_its_own(self):
        self.check_end("gradients_of_its_own", "step 1 has updated parameters without gradients that --shards has")

    def test_updates_of_others_in_backward(self):
        self.check_end("updates_of_others_in_backward", r"parameter \d+ .* is updated inside of backward by a hook")

    def test_a_sparse_gradient(self):
        self.check_end("sparse", r"the gradient of parameter 0 \(Float \[8, 4\]\) is sparse")


class Words(ShardsCase):
    def test_reach_the_program(self):
        words = ["-c", "import os, sys; print(sys.argv[1:], os.environ['SPILLWAY_SHARD'], "
                       "os.environ['SPILLWAY_SHARDS'])",
                 "{shard}/{shards}", "{{shard}}"]
        alone = self.start([COMMAND, "run", "--split", "--shards", "2", "--", PYTHON, *words], "alone")
        self.assertEqual(alone.output, "['0/1', '{shard}'] 0 1\n", alone.said)

    def test_are_compared_as_they_were_given(self):
        common = [COMMAND, "run", "--split", "--shards", "2", "--", PYTHON, TRAINERS, "{shard}", "{shards}", "one"]
        run = self.start([self.launcher, "-n", "1", *common, "sgd,1", ":", "-n", "1", *common, "sgd,2"], "apart")
        self.assertEqual(run.code, 2, run.said)
        self.assertRegex(run.errors, r"list of words behind spillway run is .* on rank 0 .* on rank 1 ")


if __name__ == "__main__":
    unittest.main()
