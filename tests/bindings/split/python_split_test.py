"""Trainers in Python split over ranks train the same bits as in one process."""
import json
import os
import pathlib
import re
import sys
import unittest

import golden
from slow_cases import slow
from split_runs import COMMAND, SplitCase
from torch_of_python import reason_to_skip

PYTHON = os.environ.get("SPILLWAY_TEST_PYTHON") or sys.executable
TRAINERS = pathlib.Path(__file__).with_name("python_trainers.py")
BEGINS_MPI = pathlib.Path(__file__).with_name("begins_mpi.py")


class PythonCase(SplitCase):
    def setUp(self):
        reason = reason_to_skip(PYTHON, pathlib.Path(COMMAND))
        if reason:
            self.skipTest(reason)
        super().setUp()

    def check(self, *trainers, ranks=2, options=(), most=None):
        """All of them in one process, one after the other. No rank keeps all of what they train."""
        words = [PYTHON, TRAINERS, *trainers]
        plain = self.run_plain(*words)
        split = self.run_split(ranks, *words, options=options)
        self.check_same(plain, split)
        self.check_is_divided(split, ranks, most)


class Optimizers(PythonCase):
    def test_adamw(self):
        self.check("adamw_plain", "adamw_foreach", "adamw_fused")

    @slow
    def test_update_lists_where_their_tensors_are_kept(self):
        for how in ("foreach", "fused"):
            words = [PYTHON, TRAINERS, f"wide_adamw,{how}"]
            split = self.run_split(2, *words, name=how)
            self.check_same(self.run_plain(*words, name=f"plain-{how}"), split)
            self.assertLess(split.statistics["needed_bytes"], 48 << 20)  # One process needs 64 MiB and more.

    @slow
    def test_sgd(self):
        self.check("sgd_accumulating", "sgd_foreach_kept_gradients", "sgd_fused",
                   options=["--schedule", "gems-mast"])

    @slow
    def test_many(self):
        self.check("many_optimizers", "lbfgs", "two_optimizers", "learning_rates")

    def test_scaled_gradients(self):
        self.check("scaled")

    @slow
    def test_scaled_gradients_of_inverted_stages(self):
        self.check("scaled", ranks=4, options=["--schedule", "gems-mast"])

    @slow
    def test_scaled_gradients_stay_where_they_are(self):
        words = [PYTHON, TRAINERS, "wide_scaled"]
        split = self.run_split(2, *words)
        self.check_same(self.run_plain(*words), split)
        self.assertLess(split.statistics["needed_bytes"], 24 << 20, split.said)


class Models(PythonCase):
    def test_with_buffers_and_recurrence(self):
        self.check("batch_norm", "lstm", "weight_norm")

    def test_transformers(self):
        self.check("transformer", "tied_embedding", ranks=4, options=["--schedule", "interleaved"], most=2.5)

    @slow
    def test_parts_and_copies(self):
        self.check("frozen_parts", "moving_average", "evaluation_between", "forwards_before_backwards",
                   options=["--replicas", "2"])


class Starts(PythonCase):
    trainers = ["initialised", "seeds_between", "walks", "data_in_memory"]

    def test_initialise_where_it_is_needed(self):
        self.check(*self.trainers)

    @slow
    def test_initialise_where_it_is_needed_on_four_ranks(self):
        self.check(*self.trainers, ranks=4, options=["--schedule", "interleaved"])

    def test_take_the_memory_of_a_share(self):
        words = [PYTHON, TRAINERS, "large_model"]
        split = self.run_split(4, *words, budget="150MiB")
        self.check_same(self.run_plain(*words), split)
        for rank in split.statistics["ranks"]:
            self.assertEqual(rank["spilled_bytes"], 0, split.said)
        alone = self.run_plain(COMMAND, "run", "--budget", "150MiB", "--nvme", self.room, "--stats",
                               self.room / "alone.json", "--", *words, name="alone")
        self.assertGreater(json.loads((self.room / "alone.json").read_text())["spilled_bytes"], 250 << 20, alone.said)


class Notices(PythonCase):
    """What keeps ranks from dividing a model is told once, by the first."""

    def told_of(self, trainer, options=()):
        words = [PYTHON, TRAINERS, trainer]
        split = self.run_split(2, *words, options=options)
        self.check_same(self.run_plain(*words), split)
        return split, [line for line in split.errors.splitlines()
                       if "lies in" in line or "before its first forward of training" in line]

    def test_of_parameters_in_a_mapped_file(self):
        split, lines = self.told_of("mapped_parameters")
        self.assertEqual(len(lines), 1, split.said)
        self.check_told(*lines)

    @slow
    def test_of_parameters_in_memory_of_numpy(self):
        split, lines = self.told_of("array_parameters")
        self.assertEqual(len(lines), 1, split.said)
        self.check_told(*lines)

    @slow
    def test_are_none_where_they_are_copied(self):
        split, lines = self.told_of("mapped_parameters,copied", options=["--log-level", "info"])
        self.assertEqual(lines, [], split.said)
        self.check_is_divided(split, 2, most=1.25)

    @slow
    def test_of_a_model_that_is_validated_first(self):
        split, lines = self.told_of("validated_first", options=["--log-level", "info"])
        self.assertEqual(len(lines), 1, split.said)
        self.check_told(*lines)
        self.check_is_divided(split, 2, most=1.25)




class Autograd(PythonCase):
    def test_functions_and_graphs(self):
        self.check("custom_function", "checkpointed", "retained_graph", "double_backward", "functional_calls",
                   "anomaly_mode")

    def test_hooks(self):
        self.check("hooks", "update_in_backward")

    @slow
    def test_updates_in_hooks_are_steps(self):
        for trainer in ("update_in_backward", "hooks"):
            split = self.run_split(2, PYTHON, TRAINERS, trainer, name=trainer)
            self.assertEqual(split.statistics["ranks"][0]["steps"], 3, trainer)

    @slow
    def test_short_floats(self):
        self.check("autocast", "bfloat16_and_master")


class Memory(PythonCase):
    trainers = ["one_buffer", "one_buffer_with_a_gradient", "two_buffers", "kept_address"]

    def test_that_is_written_by_hand(self):
        self.check(*self.trainers)

    @slow
    def test_that_is_written_by_hand_on_four_ranks(self):
        self.check(*self.trainers, ranks=4)

    @slow
    def test_that_views_count_from_its_begin(self):
        self.check("views_from_the_begin")


class Data(PythonCase):
    def test_that_is_the_same_on_all_ranks(self):
        self.check("order_by,seeded", "own_times")

    @slow
    def test_in_the_order_of_a_set(self):
        words = [PYTHON, TRAINERS, "order_by,set"]
        self.check_same(self.run_plain(*words, PYTHONHASHSEED="0"), self.run_split(2, *words))


class Looks(PythonCase):
    def test_at_numbers_texts_and_lists(self):
        self.check("looks", "lists", "lazy_copies", "sparse_gradients", "sparse_neighbours")

    @slow
    def test_flags_hold_for_what_was_called_under_them(self):
        self.check("sets_flags")

    @slow
    def test_by_numpy(self):
        self.check("numpy_reads", "kept_arrays")


class Files(PythonCase):
    def test_are_those_of_one_process(self):
        self.check("saves", "state_in_memory", "best_so_far", "mapped_load", "loads_ahead",
                   "loads_by_a_name_of_its_own", "loads_what_each_rank_has_written")

    @slow
    def test_go_on_with_other_ranks(self):
        def words(*trainers):
            return [PYTHON, TRAINERS, *trainers]
        whole = self.run_plain(*words("saves,a.pt", "saves,a.pt"))
        split = self.run_split(2, *words("saves,a.pt"), name="first")
        self.assertEqual(split.code, 0, split.said)
        goes_on = words("saves,../first/a.pt")
        for ranks in (1, 4):
            kept = split.file("a.pt")
            name = f"on-{ranks}"
            run = self.run_plain(*goes_on, name=name) if ranks == 1 else self.run_split(ranks, *goes_on, name=name)
            self.assertEqual(split.output + run.output, whole.output, run.said)
            self.assertEqual(split.file("a.pt"), whole.file("a.pt"))
            (split.folder / "a.pt").write_bytes(kept)

    def test_take_no_room_on_other_ranks(self):
        words = [PYTHON, TRAINERS, "saves_large"]
        split = self.run_split(2, *words)
        self.check_same(self.run_plain(*words), split)
        for rank, most in (("", 1 << 25), (" 1", 1 << 20)):
            rows = re.findall(rf"\[spillway{rank}\] (\S+\.pt) (\d+) (\d+)\n", split.errors)
            self.assertEqual([name for name, _, _ in rows], ["by_path.pt", "buffered.pt", "old.pt"], split.said)
            for name, size, room in rows:
                self.assertGreater(int(size), 16 << 20, name)
                self.assertLess(int(room), most, f"{name} on rank {rank}")

    @slow
    def test_are_whole_where_the_program_leaves_at_once(self):
        self.check("leaves_behind_a_save")

    @slow
    def test_are_the_first_ranks_alone(self):
        words = [PYTHON, TRAINERS, "saves_on_rank,1"]
        split = self.run_split(2, *words)
        self.check_same(self.run_plain(*words), split)
        self.check_told(*(line for line in split.errors.splitlines() if " an archive " in line))


class Processes(PythonCase):
    def test_of_a_data_loader(self):
        self.check("loader_processes")

    @slow
    def test_of_a_data_loader_that_start_anew(self):
        self.check("loader_processes,spawn", "loader_processes,forkserver")

    @slow
    def test_that_load_libtorch(self):
        self.check("programs_beside")

    @slow
    def test_that_train_for_a_rank_say_so(self):
        alone = self.run_plain(PYTHON, TRAINERS, "wraps_a_trainer")
        split = self.run_split(2, PYTHON, TRAINERS, "wraps_a_trainer")
        self.check_same(alone, split)
        told = {golden.without(line.split("] ", 1)[1], golden.COUNTS) for line in split.errors.splitlines()
                if " trains alone" in line}
        self.check_told(*sorted(told))

    def test_compile(self):
        self.check("compiled", "scripted")


class Launchers(PythonCase):
    """The program is one, whatever its launcher tells each rank."""

    def test_are_not_seen(self):
        check_it_sees_none(self)

    @slow
    def test_are_not_seen_by_what_it_starts(self):
        self.check("starts_a_program_with_mpi")

    @slow
    def test_are_not_those_of_a_nearer_launcher(self):
        """Of a script that starts a program with MPI before it trains."""
        nested = f"{self.launcher} -n 2 {PYTHON} {BEGINS_MPI} && exec {PYTHON} {TRAINERS} adamw_plain"
        split = self.run_split(2, "sh", "-c", nested)
        self.check_same(self.run_plain("sh", "-c", nested), split)
        self.assertEqual(set(re.findall(r"ranks: (\d+)", split.output)), {"2"}, split.output)

    def test_are_seen_by_mpi_where_the_program_begins_it(self):
        words = [PYTHON, BEGINS_MPI, TRAINERS, "looks_for_ranks"]
        self.check_same(self.run_plain(*words), self.run_split(2, *words))


class LaunchersOfOpenMpi(PythonCase):
    mpi = "Open MPI"

    @slow
    def test_are_not_seen(self):
        check_it_sees_none(self)


def check_it_sees_none(case):
    words = [PYTHON, TRAINERS, "looks_for_ranks"]
    case.check_same(case.run_plain(*words), case.run_split(
        2, *words, SLURM_NTASKS="2", SLURM_PROCID="0", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0"))


class Signals(PythonCase):
    def check_left(self, own_step, others_step, left_in):
        """All ranks at the step that is two behind the first rank's."""
        split = self.run_split(2, PYTHON, TRAINERS, f"leaves_by_signal,{own_step},{others_step}",
                               name=f"split-{own_step}-{others_step}")
        alone = self.run_plain(PYTHON, TRAINERS, f"leaves_by_signal,{left_in},0")
        self.check_same(alone, split)
        self.assertEqual([line for line in split.output.splitlines() if "<lambda>" in line],
                         [f"step {left_in} [10] <lambda>"])

    def test_that_come_to_the_first_rank_first(self):
        self.check_left(2, 9, left_in=4)

    @slow
    def test_that_come_to_another_rank_first(self):
        self.check_left(6, 2, left_in=8)

    def test_that_interrupt(self):
        run = self.run_split(2, PYTHON, TRAINERS, "leaves_by_signal,2,4,interrupt")
        self.assertNotEqual(run.code, 0)
        self.assertIn("KeyboardInterrupt", run.errors.splitlines())
        self.assertNotIn("differs", run.errors)
        self.assertNotIn(" ends the job", run.errors)


@slow
class ProcessesUnderOpenMpi(PythonCase):
    mpi = "Open MPI"

    def test_of_a_data_loader_that_start_anew(self):
        self.check("loader_processes,spawn")

    def test_that_load_libtorch(self):
        self.check("programs_beside")


if __name__ == "__main__":
    unittest.main()
