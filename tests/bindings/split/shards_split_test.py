"""Programs with data of their own (--shards) train on the mean of their gradients: the bits of one process that
trains all of them, adds their gradients in the order of shards and divides."""
import pathlib
import unittest

from python_split_test import PYTHON, PythonCase
from slow_cases import slow
from split_runs import COMMAND

TRAINERS = pathlib.Path(__file__).with_name("shard_trainers.py")


class ShardsCase(PythonCase):
    def run_shards(self, ranks, shards, *trainers, options=(), **more):
        return self.run_split(ranks, PYTHON, TRAINERS, "{shard}", "{shards}", "one", *trainers,
                              options=["--shards", shards, *options], **more)

    def check(self, ranks, shards, *trainers, name="split", **more):
        """In a folder of one process and in that of ranks: what shard 0 prints and saves."""
        plain = self.run_plain(PYTHON, TRAINERS, 0, shards, "whole", *trainers, name=f"whole {name}")
        self.check_same(plain, self.run_shards(ranks, shards, *trainers, name=name, **more))


class Means(ShardsCase):
    def test_over_two_shards_of_one_rank(self):
        self.check(2, 2, "sgd,1", "adamw,fused,1", "clipped", "kept_gradients", "update_in_backward", "looked_at",
                   "one_flat_gradient", "archived")

    def test_over_two_shards_of_two_stages(self):
        self.check(4, 2, "sgd,1", "sgd,4,512", "adamw,foreach", "adamw,fused", "clipped", "tied", "looked_at",
                   "archived")

    @slow
    def test_over_three_shards(self):
        self.check(3, 3, "sgd,2", "batch_norm", "bfloat16")

    @slow
    def test_with_other_placements(self):
        self.check(4, 2, "sgd,4", "clipped", "batch_norm", options=["--schedule", "gems-mast"])

    @slow
    def test_with_pipelines_beside_each_other(self):
        self.check(4, 2, "sgd,4", "adamw,foreach,4", options=["--replicas", "2"])

    @slow
    def test_of_any_number_of_stages_micro_batches_and_shards(self):
        for stages, shards in ((1, 4), (2, 3), (3, 2)):
            with self.subTest(stages=stages, shards=shards):
                self.check(stages * shards, shards, "sgd,1", "sgd,3", "sgd,4", "clipped,4",
                           name=f"{stages} by {shards}")

    @slow
    def test_with_heads_that_data_choose(self):
        self.check(2, 2, "chosen_heads", "chosen_heads_of_one_order")
        self.check(4, 2, "chosen_heads", "chosen_heads_of_one_order", name="4")

    @slow
    def test_with_data_that_require_gradients(self):
        self.check(2, 2, "adversarial", "saliency")
        self.check(4, 2, "adversarial", "saliency", name="4")

    @slow
    def test_with_an_update_that_is_skipped(self):
        self.check(2, 2, "scaled")
        self.check(4, 2, "scaled", name="4")

    @slow
    def test_of_two_models_by_turns(self):
        self.check(2, 2, "by_turns")
        self.check(4, 2, "by_turns", name="4")

    def test_of_two_are_the_same_in_any_order(self):
        self.check(2, 2, "sgd,2,512", "clipped", options=["--gradients", "fast"])


class Ends(ShardsCase):
    def check_end(self, trainer, text):
        run = self.run_shards(2, 2, trainer)
        self.assertNotEqual(run.code, 0, run.said)
        self.assertRegex(run.errors, text)

    def test_a_gradient_in_one_shard_only(self):
        self.check_end("gradient_in_one_shard",
                       r"shard 0 averages the gradient of parameter Float \[32, 32\], number 3 of 6 in step 2")

    @slow
    def test_fewer_batches(self):
        self.check_end("fewer_batches", r"shard 1 has ended after 2 steps, and shard 0 goes on and averages the "
                                        r"gradient of parameter Float .* in step 3: give each shard as many batches")

    def test_a_skipped_update(self):
        self.check_end("skipped_update", r"shard 1 has ended after 2 steps, and shard 0 goes on")

    def test_other_sizes(self):
        self.check_end("other_sizes", r"shard \d has ended after 0 steps, and shard \d goes on and first uses "
                                      r"parameter Float \[\d\], number 1 of 1 in step 1")

    @slow
    def test_one_head_in_each_shard(self):
        self.check_end("one_head_each", r"shard 1 first uses parameter Float .*, number 2 of 2 in step 1 where "
                                        "shard 0 averages the gradient")

    @slow
    def test_one_head_in_each_shard_later(self):
        self.check_end("one_head_each_later", r"averages the gradient of parameter Float .*, number 1 of 2 in step 2 "
                                              r"where shard 1 averages .*, number 2 of 2 in step 2")

    @slow
    def test_more_tensors_in_one_shard(self):
        self.check_end("more_tensors_in_one_shard", r"of [67] in step 1 where .* number \d of [67] in step 1: --shards "
                                                    "knows a parameter by its number")

    @slow
    def test_parameters_made_in_forward(self):
        self.check_end("made_in_forward", r"a parameter \(Float \[4\]\) was made after forward had used another")

    @slow
    def test_bare_tensors(self):
        self.check_end("bare_tensors", "a tensor of 512 B that requires a gradient and is no parameter of a module")

    def test_memory_of_numpy(self):
        self.check_end("memory_of_numpy", r"a parameter \(Float \[4, 32\]\) lies in memory that the program has made")

    def test_gradients_of_its_own(self):
        self.check_end("gradients_of_its_own", "step 1 has updated parameters without gradients that --shards has")

    @slow
    def test_updates_of_others_in_backward(self):
        self.check_end("updates_of_others_in_backward", "parameter Float .* is updated inside of backward by a hook")

    def test_a_sparse_gradient(self):
        self.check_end("sparse", r"the gradient of parameter Float \[8, 4\], number 1 of 1 is sparse")


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
