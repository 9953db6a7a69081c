"""Ranks that are killed, stopped, slow, or do something else, at moments that a seed draws: the job goes on with the
same bits, or ends on all ranks with a sentence. It leaves nothing behind."""
import os
import pathlib
import queue
import random
import re
import select
import signal
import subprocess
import threading
import unittest

from clean_environment import clean_environment
from memory_group import Unavailable
from mpi_launchers import RANKS_ALLOWED
from python_split_test import PYTHON, TRAINERS, PythonCase
from slow_cases import slow
from split_runs import COMMAND, PATIENCE_SECONDS, records_of
from surroundings import SmallDisk

STEPS = 24
BUDGET = "24MiB"  # A third of what a rank of two needs: its swap file is in use.
SEEDS = range(2)


def processes_with(text):
    """Descriptors of the processes that have it in their environment."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found[int(path.parent.name)] = os.pidfd_open(int(path.parent.name))
        except OSError:
            continue
    return found


def check_gone(case, temporary):
    """Processes of a run, which has that folder for temporary files, and what they had there."""
    for process, descriptor in processes_with(str(temporary)).items():
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        case.assertTrue(poll.poll(PATIENCE_SECONDS * 1000), f"process {process} stays")
        os.close(descriptor)
    case.assertEqual(list(temporary.glob("spillway*")), [])  # LibTorch leaves something there.


class RunningJob:
    """Ranks that train, what they write, and their processes."""

    def __init__(self, case, ranks, *words, options=(), **variables):
        folder, self.temporary = case.room / "running", case.room / "temporary-running"
        folder.mkdir()
        self.temporary.mkdir()
        environment = clean_environment(TMPDIR=str(self.temporary), HOME=str(case.room), OMP_NUM_THREADS="1",
                                        OMP_WAIT_POLICY="passive", **RANKS_ALLOWED, **variables)
        command = [case.launcher, "-n", ranks, COMMAND, "run", "--split", "--budget", BUDGET, "--nvme", case.room,
                   *options, "--", *words]
        self.process = subprocess.Popen([str(word) for word in command], cwd=folder, env=environment, text=True,
                                        errors="replace", start_new_session=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.written = {"out": "", "errors": ""}
        self.lines = queue.Queue()
        self.readers = [threading.Thread(target=self.read, args=(name, pipe)) for name, pipe in
                        (("out", self.process.stdout), ("errors", self.process.stderr))]
        for reader in self.readers:
            reader.start()
        case.addCleanup(self.kill)

    def read(self, name, pipe):
        with pipe:
            for line in pipe:
                self.lines.put((name, line))

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self):
        return self.written["out"] + self.written["errors"]

    def count(self, pattern):
        return len(re.findall(pattern, self.said()))

    def until(self, pattern, times=1):
        """Reads on until that is written so often, on one of both; returns these places."""
        while True:
            for text in self.written.values():
                found = re.findall(pattern, text)
                if len(found) >= times:
                    return found
            try:
                name, line = self.lines.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no {pattern} in: {self.said()}") from None
            self.written[name] += line

    def processes(self, ranks):
        """Of each rank, once all have come."""
        found = {}
        for rank in range(ranks):
            mark = f" {rank}" if rank else ""
            found[rank] = int(self.until(rf"\[spillway{mark}\] process (\d+)\n")[0])
        return found

    def end(self):
        """Its exit code."""
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        for reader in self.readers:
            reader.join(PATIENCE_SECONDS)
        while not self.lines.empty():
            name, line = self.lines.get()
            self.written[name] += line
        return code


class FailureCase(PythonCase):
    def begin(self, ranks=2, steps=STEPS, handled="", **more):
        return RunningJob(self, ranks, PYTHON, TRAINERS, f"tells_steps,{steps},{handled}", **more)

    def check_nothing_left(self, job, before):
        check_gone(self, job.temporary)
        self.assertEqual(sorted(self.room.iterdir()), before)

    def check_moment(self, seed, send, reason, ranks=3):
        """A rank gets a signal in a step that is drawn; what the job says, once it has ended."""
        self.setUp()
        drawn = random.Random(seed)
        rank, step = drawn.randrange(ranks), drawn.randrange(STEPS // 2)
        with self.subTest(rank=rank, step=step):
            job = self.begin(ranks)
            before = sorted(self.room.iterdir())
            process = job.processes(ranks)[rank]
            job.until(f"step {step} ")
            os.kill(process, send)
            self.assertNotEqual(job.end(), 0, job.said())
            self.assertNotIn(f"step {STEPS - 1} ", job.said())
            if reason:
                self.assertRegex(job.written["errors"], reason.replace("RANK", str(rank)))
            self.check_nothing_left(job, before)

    def check_killed(self):
        for seed in SEEDS:
            self.check_moment(seed, signal.SIGKILL, "")

    def check_stopped(self):
        told = (r"(?s)\[spillway.*\] info: rank \d \(\S+\) is at call \d+, aten::\S+, and has waited \d+ s for .* of "
                r"rank RANK .*\[spillway.*\] info: rank \d \(\S+\) has computed nothing for \d+ s.*in step \d+; "
                r"\d+ tasks? .*\] info: rank \d \(\S+\) did last, in this order: in step \d+ .*"
                r"rank RANK \(\S+\) does not answer rank \d \(\S+\) for 5 s")
        for seed in SEEDS:
            self.check_moment(seed, signal.SIGSTOP, told)

    def check_told_why(self):
        for rank, way, last in ((1, "raises", "RuntimeError: this rank has had enough"), (1, "leaves", "rank 1 trains"),
                                (0, "raises", "RuntimeError: this rank has had enough")):
            with self.subTest(rank=rank, way=way):
                run = self.run_split(2, PYTHON, TRAINERS, f"fails_on_rank,{rank},{way}", name=f"{way}-{rank}")
                self.assertNotEqual(run.code, 0, run.said)
                before = "[spillway 1] info: this rank said last: " if rank == 1 else ""
                said = [line for line in run.errors.splitlines() if line.endswith(last)]
                self.assertEqual(said, [before + last], run.said)
                self.assertRegex(run.errors, rf"call \d+ is .*the end of the program on rank {rank} .*"
                                             r"\(what the rank that has ended wrote last tells why: ")


class Mpich(FailureCase):
    def test_a_killed_rank_ends_the_job(self):
        self.check_killed()

    def test_a_stopped_rank_ends_the_job_and_others_tell_what_they_did(self):
        self.check_stopped()

    def test_what_a_program_wrote_last_that_ends_on_one_rank_is_told(self):
        self.check_told_why()


class OpenMpi(FailureCase):
    mpi = "Open MPI"

    @slow
    def test_what_a_program_wrote_last_that_ends_on_one_rank_is_told(self):
        self.check_told_why()

    def test_a_killed_rank_ends_the_job(self):
        self.check_killed()

    @slow
    def test_a_stopped_rank_ends_the_job_and_others_tell_what_they_did(self):
        self.check_stopped()


@slow
class GoesOn(FailureCase):
    def check_same_bits(self, job):
        self.assertEqual(job.end(), 0, job.said())
        plain = self.run_plain(PYTHON, TRAINERS, f"tells_steps,{STEPS},", name=f"plain-{self.mpi}")
        self.assertEqual(job.written["out"].replace("handled\n", ""), plain.output, job.said())

    def test_with_a_rank_that_is_slow(self):
        """It is stopped until another one waits for it, again and again."""
        drawn = random.Random(7)
        job = self.begin()
        processes = job.processes(2)
        for step in sorted(drawn.sample(range(STEPS - 2), 4)):
            slow = drawn.randrange(2)
            job.until(f"step {step} ")
            os.kill(processes[slow], signal.SIGSTOP)
            line = rf"\[spillway {1 - slow}\] info: rank {1 - slow} \(\S+\) "
            waits, last = line + r"has computed nothing for \d+ s, and waits for", line + "did last"
            seen = job.count(waits)
            while job.count(waits) == seen:
                os.kill(processes[1 - slow], signal.SIGUSR2)
                job.until(last, job.count(last) + 1)
            os.kill(processes[slow], signal.SIGCONT)
        self.check_same_bits(job)


class Signal(GoesOn):
    def check_told(self, send):
        job = self.begin()
        processes = job.processes(2)
        job.until("step 2 ")
        send(job, processes)
        for rank in range(2):
            start = rf"\[spillway {rank}\] info: rank {rank} \(\S+\) "
            job.until(start + r"is at call \d+, .*?(?:; its latest calls: |, and has waited)")
            job.until(start + r"has (?:computed nothing|been computing)")
            job.until(start + r"did last, in this order: in step \d+ .*\d[FB]\d")
        self.check_same_bits(job)

    def test_to_the_ranks_is_answered_by_each(self):
        self.check_told(lambda job, processes: [os.kill(process, signal.SIGUSR2) for process in processes.values()])

    def test_that_the_program_handles_is_its_own(self):
        job = self.begin(handled="again")
        process = job.processes(2)[0]
        job.until("the program takes SIGUSR2 for itself")
        os.kill(process, signal.SIGUSR2)
        job.until("handled")
        self.check_same_bits(job)
        self.assertNotIn("did last", job.said())
        self.assertEqual(job.said().count("takes SIGUSR2 for itself"), 1)


@slow
class SignalOfOpenMpi(Signal):
    mpi = "Open MPI"

    def test_to_the_launcher_reaches_all(self):
        """MPICH's ends by it."""
        self.check_told(lambda job, processes: os.kill(job.process.pid, signal.SIGUSR2))


class Apart(FailureCase):
    def test_ranks_that_go_apart_are_named(self):
        for seed in range(8):
            with self.subTest(seed=seed):
                self.setUp()
                job = RunningJob(self, 2, PYTHON, TRAINERS, f"goes_apart,{seed}")
                before = sorted(self.room.iterdir())
                self.assertNotEqual(job.end(), 0, job.said())
                self.assertRegex(job.written["errors"], r"rank \d ends the job: .* rank [01] \(\S+\)", job.said())
                self.check_nothing_left(job, before)


class Surroundings(PythonCase):
    """Of the second rank, which are other than those of the first one."""

    def check_ends(self, reason, *before, nvme=None, trainer="tells_steps,3,"):
        def words(folder):
            return [COMMAND, "run", "--split", "--budget", BUDGET, "--nvme", folder, "--", PYTHON, TRAINERS, trainer]

        run = self.start([self.launcher, "-n", 1, *words(self.room), ":", "-n", 1, *before, *words(nvme or self.room)],
                         "split")
        self.assertNotEqual(run.code, 0, run.said)
        self.assertNotIn("no end after", run.errors)
        check_gone(self, self.room / "temporary-split")
        self.assertRegex(run.errors, reason)
        self.assertEqual(run.files(), [])

    def check_limit(self, limit, reason):
        self.check_ends(reason, "bash", "-c", f'ulimit {limit} && exec "$@"', "bash")

    def small_disk(self):
        try:
            disk = SmallDisk(self.room, 8 << 20)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(disk.remove)
        return disk

    def test_with_little_address_space(self):
        self.check_limit("-v 1000000", r"rank 1 \(\S+\): a budget of 24.0 MiB does not fit: the address-space limit")

    def test_with_too_little_address_space_for_the_program(self):
        self.check_limit("-v 3000000", r"the end of the program on rank 1 ")

    @slow
    def test_with_small_files_only(self):
        """MPI's own may be too large, too."""
        self.check_limit("-f 1000", r"\[spillway 1\] warning: files may not be larger than \S+ \S+ here \(see ulimit")

    def test_with_few_descriptors(self):
        self.check_limit("-n 20", r"\[spillway[ 01]*\] error: ")

    def test_without_a_place_for_its_files(self):
        self.check_ends("cannot make a folder in /none for the files of this rank: No such file",
                        "env", "TMPDIR=/none")

    def test_without_its_spill_directory(self):
        self.check_ends(r"rank 1 \(\S+\): spill directory /none does not exist", nvme="/none")

    def test_with_a_spill_directory_that_takes_no_files(self):
        self.check_ends(r"\[spillway 0\] error: rank 1 \(\S+\): .*/sys", nvme="/sys")

    def test_with_a_full_disk(self):
        self.check_ends(r"aten::\S+ has failed on the rank that computes it.* in step 1, and the others went on: "
                        r"No space left in .*/small .*\(rank 1 ", nvme=self.small_disk().point)

    @slow
    def test_with_a_disk_that_is_full_for_the_first_rank(self):
        """It alone writes what the program saves."""
        disk = self.small_disk()
        disk.fill(4096)
        self.check_ends(r"(?s)rank \d ends the job: .*the end of the program on rank 0 ",
                        trainer=f"saves,{disk.point}/a.pt")

    @slow
    def test_but_goes_on_where_the_program_saves_elsewhere(self):
        disk = self.small_disk()
        whole, again = self.room / "whole.pt", self.room / "again.pt"
        plain = self.run_plain(PYTHON, TRAINERS, f"saves_again,{whole}")
        disk.fill(16 << 10)  # Some of the tensors that the first rank asks for.
        split = self.run_split(2, PYTHON, TRAINERS, f"saves_again,{disk.point}/a.pt,{again}")
        self.check_same(plain, split)
        self.assertIn(f"{disk.point}/a.pt: ", split.errors)
        self.assertEqual(records_of(again), records_of(whole))


if __name__ == "__main__":
    unittest.main()
