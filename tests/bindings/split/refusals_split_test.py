"""Programs that cannot be split end on all ranks, with a sentence that names the reason."""
import unittest

from python_split_test import PYTHON, TRAINERS, PythonCase
from slow_cases import slow


class Refusals(PythonCase):
    def check_end(self, trainer, text, ranks=2, **more):
        run = self.run_split(ranks, PYTHON, TRAINERS, trainer, **more)
        self.assertNotEqual(run.code, 0, run.said)
        self.assertRegex(run.errors, text)

    def test_a_pointer_that_nobody_tells_of(self):
        self.check_end("reads_by_address", r"after \S+ the program reads or writes a tensor, storage \d+ of "
                                           r"rank \d, by a pointer that nobody has told of: read it by item.*"
                                           r"save it by torch.save or, with safetensors")
        self.check_end("reads_by_address", r"info: Python is at \S+file_trainers.py\", line \d+ in reads_by_address, "
                                           r"called from .*python_trainers.py\", line ", name="place")

    @slow
    def test_a_pointer_that_nobody_tells_of_with_faulthandler(self):
        self.check_end("reads_by_address_with_faulthandler", r"after \S+ the program reads or writes a tensor, storage")

    @slow
    def test_a_pointer_to_nowhere_is_faulthandlers(self):
        run = self.run_split(2, PYTHON, TRAINERS, "reads_nowhere_with_faulthandler")
        self.assertNotEqual(run.code, 0, run.said)
        self.assertIn("in reads_nowhere_with_faulthandler", run.errors)
        self.assertEqual(run.errors.count("Fatal Python error: Segmentation fault"), 1, run.said)

    def test_a_forked_child_that_reads_by_address(self):
        run = self.run_split(2, PYTHON, TRAINERS, "reads_by_address_in_a_child")
        self.assertEqual((run.code, run.output.splitlines()[-1]), (0, "signal 11"), run.said)
        self.check_told(*sorted({line.split("] ", 1)[1] for line in run.errors.splitlines()
                                 if " a forked child " in line}))

    def test_a_seed_by_chance(self):
        self.check_end("seeded_by_chance", r"argument \d+ of call \d+, aten::\S+, differs between rank")

    @slow
    def test_data_in_an_order_by_chance(self):
        for kind, variables in (("random", {}), ("numpy", {}), ("device", {}), ("set", {"PYTHONHASHSEED": "random"})):
            with self.subTest(kind):
                run = self.run_split(2, PYTHON, TRAINERS, f"order_by,{kind},1000", name=kind, **variables)
                self.assertNotEqual(run.code, 0, run.said)
                self.assertRegex(run.errors, r"the data differ between the ranks: the bytes that call \d+, aten::\S+, "
                                             r"reads are others on rank \d .*than on rank \d.* \(seed each generator")

    @slow
    def test_draws_of_another_thread(self):
        self.check_end("differs_by_rank,draws", r"argument \d+ of call \d+, aten::\S+, differs between rank")

    @slow
    def test_threads_that_differ_after_the_start(self):
        self.check_end("differs_by_rank,threads", r"argument 0 of call \d+, the begin of a step, differs between rank")

    def test_data_that_differ_and_come_by_archives_threads_or_operators_of_their_own(self):
        for way in ("archives", "loaded beside", "named"):
            with self.subTest(way):
                self.check_end(f"differs_by_rank,{way}", r"the bytes that call \d+, \S+, reads are others on rank",
                               name=way.replace(" ", "-"))

    def test_files_that_differ(self):
        files = [self.room / f"{seed}.pt" for seed in range(2)]
        for seed, file in enumerate(files):
            self.assertEqual(self.run_plain(PYTHON, TRAINERS, f"writes_weights,{file},{seed}", name=file.stem).code, 0)
        self.check_end(f"differs_by_rank,weights,{files[0]},{files[1]}",
                       r"the bytes that call \d+, \S+, reads are others on rank .*give all ranks the same files")

    @slow
    def test_a_thread_that_writes_what_is_used(self):
        self.check_end("thread_writes_what_is_used", r"aten::copy_ runs on a thread of its own and writes a tensor, "
                                                     r"Float \[64, 32\], .*clone\(\)")

    @slow
    def test_a_thread_that_loads_what_was_saved(self):
        self.check_end("thread_loads_what_was_saved", "a thread of its own reads an archive of this run, whose bytes "
                                                      "are in the file of the first rank: load it on the program's ")

    def test_a_program_that_is_steered_by_its_rank(self):
        self.check_end("steered_by_rank", r"call \d+ is .+ on rank \d.* and .+ on rank \d.*seed the program equally")

    def test_an_archive_of_the_first_rank_alone(self):
        self.check_end("saves_on_rank,0", r"the program of rank 1 has gone on without: let all ranks save at the same")

    def test_a_thread_that_trains(self):
        self.check_end("trains_on_a_thread", r"(?s)Python is at .*line \d+ in train, .*runs on a thread of its own, .* "
                                             r"train on the program's first thread")

    def test_an_early_end_is_one(self):
        run = self.run_split(2, PYTHON, TRAINERS, "leaves_in_mid_step")
        self.assertEqual(run.code, 3, run.said)
        self.assertEqual(run.output.splitlines()[-1:], ["leaves"], run.said)

    @slow
    def test_an_early_end_of_one_rank(self):
        self.check_end("leaves_on_one_rank", r"call \d+ is .*the end of the program on rank 1 .*"
                                             r"\(what the rank that has ended wrote last tells why: ")

    @slow
    def test_another_process_that_reads_an_archive_of_this_run(self):
        self.check_end("evaluates_beside", r"\[spillway 1\] error: a process that a rank has started reads an archive "
                                           r"of this run, .*: read it where the program trains, or after the run")

    def test_an_exit_in_an_operator(self):
        self.check_end("exits_in_an_operator", r"rank \d ends the job: the program exits in the middle of an operator")

    @slow
    def test_a_rank_that_becomes_another_program(self):
        self.check_end("becomes_another", r"error: this process was a rank before it became this program \(exec\)")

    def test_an_operator_that_fails_on_its_owner(self):
        self.check_end("fails_for_a_value", r"aten::embedding has failed on the rank that computes it for forward of "
                                               r"stage 0, micro-batch \d in step 4, and the others went on: index out "
                                               r"of range in self \(without --split the program gets this error at "
                                               r"the call, and may catch it\) \(rank \d ")


if __name__ == "__main__":
    unittest.main()
