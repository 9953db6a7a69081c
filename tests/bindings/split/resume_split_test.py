"""Programs that go on from an archive hold on each rank what the rank needs of it, and train the same bits."""
import pathlib
import unittest

from python_split_test import PYTHON, PythonCase
from slow_cases import slow

TRAINERS = pathlib.Path(__file__).with_name("resume_trainers.py")


class ResumeCase(PythonCase):
    def write(self, *words):
        """The archive that runs find beside their folders."""
        written = self.run_plain(PYTHON, TRAINERS, ",".join(["write", *words]), name="written")
        (written.folder / "state.pt").rename(self.room / "state.pt")

    def words(self, *trainers):
        return [PYTHON, TRAINERS, *trainers]


class Resume(ResumeCase):
    def check_trainers(self, *trainers, ranks=2):
        self.write()
        plain = self.run_plain(*self.words(*trainers))
        self.check_same(plain, self.run_split(ranks, *self.words(*trainers)))

    def test_on_any_number_of_ranks(self):
        self.write()
        plain = self.run_plain(*self.words("resume", "resume_mapped"))
        for ranks in (1, 2, 4):
            self.check_same(plain, self.run_split(ranks, *self.words("resume", "resume_mapped"), name=f"on-{ranks}"))

    @slow
    def test_by_assignment_twice_and_of_views(self):
        self.check_trainers("resume_by_assignment", "resume_twice", "resume_views")

    @slow
    def test_of_what_the_program_changes_and_looks_at(self):
        self.check_trainers("resume_what_the_program_changes", "resume_what_the_program_looks_at")

    @slow
    def test_in_a_thread_and_in_training(self):
        self.check_trainers("resume_in_a_thread", "resume_in_training", "resume_from_what_it_has_written")

    @slow
    def test_read_by_other_means(self):
        self.check_trainers("resume_read_by_other_means", "resume_from_a_part")

    def test_from_a_file_that_is_replaced(self):
        self.check_trainers(*(f"resume_and_replace,{how}" for how in ("overwrite", "rename", "remove", "save again")))


class Shares(ResumeCase):
    @slow
    def test_are_all_that_ranks_hold(self):
        self.write("1280", "16")
        # 100 MiB of parameters, so 25 MiB for each rank; with states, gradients and room for an update 150 MiB.
        for update, most in (("nothing", 40 << 20), ("plain", 160 << 20), ("foreach", 160 << 20), ("fused", 160 << 20)):
            words = self.words(f"resume_large,{update}")
            split = self.run_split(4, *words, budget=f"{most}B", name=f"split-{update}")
            self.check_same(self.run_plain(*words, name=f"plain-{update}"), split)
            for rank in split.statistics["ranks"]:
                self.assertEqual(rank["spilled_bytes"], 0, split.said)


class Changed(ResumeCase):
    def test_files_end_the_job(self):
        self.write()
        for how in ("change", "truncate"):
            split = self.run_split(2, *self.words(f"resume_and_replace,{how}"), name=how)
            self.assertNotEqual(split.code, 0, split.said)
            self.assertRegex(split.errors, r"own.pt has changed, and the program has loaded tensors from it whose "
                                           r"bytes were still to be read: write a new file, and rename it")


if __name__ == "__main__":
    unittest.main()
