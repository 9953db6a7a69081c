"""Trainers on GPUs, which are emulated, split over ranks that have one each: the same bits as in one process."""
import json
import os
import pathlib
import re
import signal
import unittest

import examples_split_test
from failures_split_test import RunningJob
from slow_cases import slow
from split_runs import SplitCase

TRAINER = os.environ["SPILLWAY_TEST_CUDA_TRAINER"]
STEPS = 3
GPUS = {"EMU_CUDA_DEVICES": "2"}
SLOW = {"EMU_CUDA_DELAY_US": "300", "EMU_CUDA_DELAY_PCT": "20"}
# Pages of the smallest size, so that small networks have many.
SMALL_PAGES = {"EMU_CUDA_GRAIN": "64KiB", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
PAGE = 64 << 10
# Where gradients of the smallest networks have pages, too.
TINY_PAGES = {"EMU_CUDA_GRAIN": "8KiB"}
PLENTY = 1 << 30


class CudaCase(SplitCase):
    def run_split(self, *words, **more):
        """No message lies in pages, which move."""
        return super().run_split(*words, EMU_NCCL_FIXED="1", **more)

    def errors_of(self, split):
        """Whichever rank says them."""
        return sorted({line.split("] ", 1)[1] for line in split.errors.splitlines() if "] error: " in line})

    def check_goes_by_nccl(self, split):
        """Not a byte of a tensor on a GPU has gone by the host."""
        for row in split.statistics["ranks"]:
            self.assertGreater(row["gpu_sent_bytes"], 0, row)
            self.assertEqual(row["gpu_staged_bytes"], 0, row)


class CudaSplit(CudaCase):
    def check(self, model, **variables):
        plain = self.run_plain(TRAINER, model, STEPS, **GPUS)
        split = self.run_split(2, TRAINER, model, STEPS, **GPUS, **variables)
        self.check_same(plain, split)
        self.check_is_divided(split, 2)
        rows = split.statistics["ranks"]
        self.assertEqual([row["steps"] for row in rows], [STEPS, STEPS])
        return plain, split

    @slow
    def test_a_transformer_on_slow_gpus(self):
        self.check_goes_by_nccl(self.check("gpt", **SLOW, EMU_CUDA_SEED="3")[1])

    def test_a_convolutional_net_with_dropout_on_slow_gpus(self):
        """Whose large tensors have pages, which move, and go in pieces."""
        self.check_goes_by_nccl(self.check("conv_net", **SLOW, EMU_CUDA_SEED="5")[1])

    def test_four_stages_on_four_gpus(self):
        plain = self.run_plain(TRAINER, "gpt", STEPS)
        split = self.run_split(4, TRAINER, "gpt", STEPS, EMU_CUDA_DEVICES="4")
        self.check_same(plain, split)
        self.check_is_divided(split, 4)
        self.check_goes_by_nccl(split)

    def test_a_pointer_that_is_kept(self):
        plain = self.run_plain(TRAINER, "gpt_and_pointer", 1, **GPUS)
        self.check_same(plain, self.run_split(2, TRAINER, "gpt_and_pointer", 1, **GPUS))

    def test_another_stream_is_refused(self):
        split = self.run_split(2, TRAINER, "gpt_on_stream", 1, **GPUS)
        self.assertNotEqual(split.code, 0)
        self.assertIn("is called on a stream of the program's own", split.said)

    @slow
    def test_two_shards_with_the_same_data(self):
        """Whose mean is what each of them has."""
        plain = self.run_plain(TRAINER, "gpt", STEPS, **GPUS)
        split = self.run_split(4, TRAINER, "gpt", STEPS, options=["--shards", "2"], EMU_CUDA_DEVICES="4")
        self.check_same(plain, split)
        self.check_is_divided(split, 4)
        self.check_goes_by_nccl(split)

    def run_shards(self, name, *options, **variables):
        """Three, whose gradients are others in each order of additions."""
        return self.run_split(3, TRAINER, "gpt_on_data_{shard}", STEPS, name=name,
                              options=["--shards", "3", *options], **variables)

    def test_three_shards_whose_gradients_stay_on_their_gpus(self):
        staged = self.run_shards("staged", CUDA_VISIBLE_DEVICES="0")
        self.assertGreater(staged.statistics["ranks"][0]["gpu_staged_bytes"], 0)
        paged = ["--min-storage", "4KiB"]  # Most gradients have pages.
        fast = ["--gradients", "fast"]
        for name, options in (("ordered", []), ("fast", fast), ("ordered_paged", paged),
                              ("fast_paged", fast + paged)):
            split = self.run_shards(name, *options, EMU_CUDA_DEVICES="3", **SMALL_PAGES | TINY_PAGES)
            # The emulated NCCL adds in the order of ranks, too.
            self.check_same(staged, split)
            self.check_goes_by_nccl(split)

    def test_more_ranks_than_gpus_are_refused(self):
        split = self.run_split(3, TRAINER, "gpt", 1, **GPUS, CUDA_VISIBLE_DEVICES="0,1")
        self.assertNotEqual(split.code, 0)
        self.check_told(*self.errors_of(split))

    def test_more_ranks_than_gpus_that_nobody_has_named(self):
        """The third takes the CPU, as the trainer does where it sees no GPU."""
        split = self.run_split(3, TRAINER, "gpt", 1, **GPUS)
        self.assertNotEqual(split.code, 0)
        self.assertRegex(split.errors, "where one sees no GPU, start no more ranks on a host than it has GPUs, or let "
                         "them share one with CUDA_VISIBLE_DEVICES=0")

    def test_a_third_rank_that_ends_as_it_sees_no_gpu(self):
        words = [examples_split_test.PROGRAMS / "text_gpt_on_emulated_cuda", "--preset", "tiny", "--device", "cuda"]
        split = self.run_split(3, *words, **GPUS)
        self.assertNotEqual(split.code, 0)
        self.assertRegex(split.errors, "warning: rank 2 sees no GPU: CUDA_VISIBLE_DEVICES=2 names no GPU that is "
                         "there.*; each of the 3 ranks on this host has the GPU of its number there, from 0 on")

    def test_ranks_may_share_a_gpu(self):
        """Where the user says so: the plain run sees one, too."""
        plain = self.run_plain(TRAINER, "gpt", 1)
        split = self.run_split(2, TRAINER, "gpt", 1, budget="cuda=auto,cpu=4GiB", options=["--log-level", "info"],
                               CUDA_VISIBLE_DEVICES="0")
        self.check_same(plain, split)
        self.assertRegex(split.errors, "info: .* by way of the host: ranks 0 and 1 have the same GPU")
        self.assertRegex(split.errors,
                         "cuda:0: budget .*: auto: 8.00 GiB free of 8.00 GiB for 2 ranks, less 512 MiB reserve each")
        for row in split.statistics["ranks"]:
            self.assertGreater(row["gpu_staged_bytes"], 0, row)
            self.assertEqual(row["gpu_sent_bytes"], 0, row)
            self.assertEqual(row["gpu_budget_bytes"], 7 << 29)

    def test_ranks_with_gpus_of_their_own_have_all_of_them(self):
        split = self.run_split(2, TRAINER, "gpt", 1, budget="cuda=auto,cpu=4GiB", **GPUS)
        self.assertEqual(split.code, 0, split.said)
        self.assertEqual([row["gpu_budget_bytes"] for row in split.statistics["ranks"]], [7 << 30] * 2)

    def test_a_refusal_is_told_once_with_its_rank(self):
        split = self.run_split(2, TRAINER, "gpt", 1, options=["--update", "host"], **GPUS)
        self.assertNotEqual(split.code, 0)
        told = re.findall(r"\[spillway( \d)?\] error: --update host is not for --split", split.errors)
        self.assertIn(told, ([" 0"], [" 1"]), split.errors)


    def process_of(self, job, rank):
        wanted = {f"SPILLWAY_LAUNCHER_PMI_RANK={rank}", f"TMPDIR={job.temporary}"}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_text(errors="replace").split("\0")
                if wanted <= set(variables) and (folder / "exe").readlink() == pathlib.Path(TRAINER):
                    return int(folder.name)
            except OSError:
                continue
        self.fail(f"rank {rank} is not there: {job.said()}")

    def test_a_rank_that_stops_is_named(self):
        job = RunningJob(self, 2, TRAINER, "gpt", 1000, **GPUS)
        job.until("loss ", 2)
        os.kill(self.process_of(job, "1"), signal.SIGSTOP)
        self.assertNotEqual(job.end(), 0, job.said())
        self.assertRegex(job.written["errors"], r"rank 1 .*does not answer .*rank 0 ")


class BudgetCase(CudaCase):
    """Each rank has a part of its GPU's memory; what leaves goes by way of pinned host memory to a disk."""

    def serve(self, ranks, words, size, options=(), min_storage="32KiB", **variables):
        """A run with so much of each GPU; in `gpus` what each rank tells of its own."""
        split = self.run_split(ranks, *words, budget=f"cuda={size >> 10}KiB,cpu=4GiB", name=f"{size}",
                               options=["--min-storage", min_storage, "--nvme", f"ram:2MiB,{self.room}",
                                        "--stats", self.room / f"{size}-%r.json", *options],
                               EMU_CUDA_DEVICES=str(ranks), **SMALL_PAGES | variables)
        told = [self.room / f"{size}-{rank}.json" for rank in range(ranks)]
        told = [json.loads(file.read_text()) for file in told if file.exists()]
        split.statistics = told[0] if told else {}
        split.gpus = [gpu for rank in told for gpu in rank["devices"]]
        for gpu in split.gpus:
            self.assertEqual(gpu["budget_bytes"], size)
            self.assertLessEqual(gpu["peak_bytes"], size)
        return split

    def check_in_part(self, plain, part, archives=()):
        """Every GPU has had too little."""
        self.check_same(plain, part, archives)
        self.check_is_divided(part, 2)
        self.check_goes_by_nccl(part)
        for gpu in part.gpus:
            self.assertGreater(gpu["fetched_bytes"], 0)


class CudaBudget(BudgetCase):
    def check(self, ranks, model, share, **more):
        """With room for all of it, then with that share of what the rank takes that takes most."""
        plain = self.run_plain(TRAINER, model, STEPS, **GPUS)
        whole = self.serve(ranks, [TRAINER, model, STEPS], PLENTY, **more)
        self.check_same(plain, whole)
        self.check_is_divided(whole, ranks)
        self.assertEqual([gpu["spilled_bytes"] for gpu in whole.gpus], [0] * ranks)
        need = max(gpu["needed_bytes"] + gpu["small_peak_bytes"] for gpu in whole.gpus)
        size = int(need * share) // PAGE * PAGE
        part = self.serve(ranks, [TRAINER, model, STEPS], size, **more)
        self.check_same(plain, part)
        self.assertIn("needed", re.findall(r"cuda:0 +(\w+) ", part.errors))
        self.check_goes_by_nccl(part)
        rows = part.statistics["ranks"]
        for key in ("budget", "peak", "spilled"):
            self.assertEqual([row[f"gpu_{key}_bytes"] for row in rows], [gpu[f"{key}_bytes"] for gpu in part.gpus])
        self.assertEqual([gpu["steps"] for gpu in part.gpus], [STEPS] * ranks)
        self.assertGreater(max(gpu["demoted_bytes"] for gpu in part.gpus), 0)  # By way of host memory to the disk.
        print(f"{model}: {size} of {need} bytes, {[gpu['spilled_bytes'] for gpu in part.gpus]} left,"
              f" largest operators {[gpu['largest_op_needs_bytes'] for gpu in part.gpus]}")

    def test_a_transformer_with_dropout_and_a_pointer_that_is_kept(self):
        trace = self.room / "trace.json"
        self.check(2, "gpt_and_pointer", 0.5, options=["--trace", trace])
        lanes = {event["args"]["name"] for event in json.loads(trace.read_text())["traceEvents"]
                 if event["name"] == "process_name"}
        for rank in range(2):
            self.assertTrue(any(re.match(rf"rank {rank} \(.*\): cuda:0 \(", lane) for lane in lanes), lanes)

    def test_a_convolutional_net_on_slow_gpus(self):
        self.check(2, "conv_net", 0.5, **SLOW, EMU_CUDA_SEED="7")

    def test_shards_on_slow_gpus(self):
        """Whose mean is what each of them has."""
        self.check(4, "gpt", 0.5, options=["--shards", "2"], min_storage="4KiB", **TINY_PAGES, **SLOW,
                   EMU_CUDA_SEED="2")

    def test_a_budget_that_is_too_small(self):
        split = self.serve(2, [TRAINER, "gpt", 1], 2 << 20)
        self.assertNotEqual(split.code, 0)
        self.assertRegex(split.errors, r"rank \d ends the job: .*does not fit into the budget of 2.00 MiB of cuda:0: "
                         r"it needs .* smallest budget: \dMiB or more .*allow more with --budget cuda=SIZE\) \(rank \d")

    def test_a_budget_below_two_pages(self):
        split = self.serve(2, [TRAINER, "gpt", 1], PAGE)
        self.assertNotEqual(split.code, 0)
        self.check_told(*self.errors_of(split))


class CudaExample(examples_split_test.ExampleCase, BudgetCase):
    def test_text_gpt_with_its_archives_under_a_budget(self):
        data, flags = examples_split_test.TRAINERS["text_gpt"]
        if not pathlib.Path(data).exists():
            self.skipTest(f"{data} is not on this machine")
        words = [examples_split_test.PROGRAMS / "text_gpt_on_emulated_cuda", *flags, "--device", "cuda",
                 *examples_split_test.LEAVES]
        plain = self.run_plain(*words, **GPUS)
        self.check_in_part(plain, self.serve(2, words, 9 << 20), archives=["checkpoint"])


class CudaPython(BudgetCase):
    VARIABLES = {"PYTHONPATH": os.environ["SPILLWAY_TEST_CUDA_TORCH"],
                 "EMU_OPERATORS": os.environ["SPILLWAY_TEST_CUDA_OPERATORS"]}

    def words(self, file, *arguments):
        python = pathlib.Path(os.environ["SPILLWAY_TEST_CUDA_PYTHON"])
        if not python.exists():
            self.skipTest(f"{python} is not there (src/cmake/setup/fetch_python.sh)")
        return [python, "-B", pathlib.Path(__file__).with_name(file), *arguments]

    def test_a_trainer_with_mixed_precision_under_a_budget(self):
        words = self.words("cuda_python_trainer.py")
        plain = self.run_plain(*words, **GPUS, **self.VARIABLES)
        self.check_in_part(plain, self.serve(2, words, 5 << 19, **self.VARIABLES))

    def check_trainers(self, *trainers, file="python_trainers.py", options=()):
        words = self.words(file, *trainers)
        split = self.run_split(2, *words, options=options, **GPUS, **self.VARIABLES)
        self.check_same(self.run_plain(*words, **GPUS, **self.VARIABLES), split)
        self.check_is_divided(split, 2)

    def test_models_that_are_made_on_a_gpu(self):
        self.check_trainers("initialised", "walks", "large_model", "transformer", "batch_norm", "frozen_parts")

    @slow
    def test_optimizers_of_all_kinds(self):
        self.check_trainers("adamw_plain", "adamw_foreach", "adamw_fused", "sgd_foreach_kept_gradients",
                            "many_optimizers", "lbfgs", "scaled", options=["--schedule", "gems-mast"])

    @slow
    def test_what_programs_look_at(self):
        self.check_trainers("lists", "looks", "hooks", "retained_graph", "double_backward", "autocast", "checkpointed")

    def test_gradients_of_gradients(self):
        self.check_trainers("physics", "penalty", file="model_trainers.py")

    def test_layers_move_by_what_operators_take_on_a_gpu(self):
        words = self.words("python_trainers.py", "work_before_parameters,16,adamw")
        split = self.run_split(2, *words, options=["--log-level", "info"], **GPUS, **self.VARIABLES)
        self.check_same(self.run_plain(*words, **GPUS, **self.VARIABLES), split)
        moves = split.statistics["layer_moves"]
        self.assertGreater(moves["times"], 0, split.said)
        self.assertGreater(moves["seconds_forecast"], 0)
        self.assertRegex(split.errors, r"before step \d+ \d+ parameters? moves? between ranks")


if __name__ == "__main__":
    unittest.main()
