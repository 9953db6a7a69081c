"""Whole runs of the command with a real trainer: their endings and their surroundings."""
import functools
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from memory_group import MemoryGroup, Unavailable, mounted
from mpi_launchers import RANKS_ALLOWED, mpi_launcher
from slow_cases import slow
from surroundings import SmallDisk, unnamed_files
from torch_of_python import reason_to_skip

COMMAND = pathlib.Path(os.environ["SPILLWAY_TEST_COMMAND"])
PROGRAMS = pathlib.Path(os.environ["SPILLWAY_TEST_PROGRAMS"])
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
STATISTICS_KEYS = pathlib.Path(os.environ["SPILLWAY_TEST_STATISTICS_KEYS"])
MRI = pathlib.Path("/usr/share/mricron/templates/ch2.nii.gz")

MIB = 1 << 20
# Parameters and optimizer states: 150 MB, of which 20 in the largest operator.
SMALL = [PROGRAMS / "text_gpt", "--preset", "tiny", "--threads", "1", "--layers", "2", "--width",
         "512", "--heads", "4", "--context", "32", "--batch", "1", "--warmup-steps", "2"]
SMALL_BUDGET = "48MiB"
PAGE = 2 * MIB  # What is moved at a time.
# The same with some 900 MB.
LARGE = [PROGRAMS / "text_gpt", "--preset", "tiny", "--threads", "1", "--layers", "4", "--width",
         "1024", "--heads", "4", "--context", "32", "--batch", "1", "--warmup-steps", "2"]
LARGE_LIMIT = 760 * MIB


class RunCase(unittest.TestCase):
    """Each case has a folder of its own on a real disk, and an empty one in it to spill to."""

    def setUp(self):
        WORK.mkdir(parents=True, exist_ok=True)
        self.root = pathlib.Path(tempfile.mkdtemp(dir=WORK, prefix="run-")).resolve()
        self.addCleanup(shutil.rmtree, self.root)
        self.spill = self.root / "spill"
        self.spill.mkdir()
        self.stats = self.root / "stats.json"

    def environment(self):
        return clean_environment(HOME=str(self.root),
                                 XDG_CONFIG_HOME=str(self.root / "config"), **RANKS_ALLOWED)

    def command(self, program, *options, budget=SMALL_BUDGET, spill=None, stats=None):
        return [str(word) for word in
                (COMMAND, "run", "--budget", budget, "--nvme", spill or self.spill,
                 "--stats", stats or self.stats, *options, "--", *program)]

    def trainer(self, program, name, steps=2):
        return [*program, "--steps", steps, "--losses", self.root / f"{name}.losses"]

    def finish(self, command, group=None):
        """(exit code, all output) of a program that ends by itself."""
        outcome = subprocess.run([str(word) for word in command], env=self.environment(), text=True,
                                 errors="replace", stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 preexec_fn=group and group.enter, timeout=900, check=False)
        return outcome.returncode, outcome.stdout

    def require_finished(self, command, group=None):
        code, output = self.finish(command, group)
        self.assertEqual(code, 0, output)
        return output

    def start(self, command):
        """A program in a process group of its own; whatever becomes of the case, it ends."""
        process = subprocess.Popen([str(word) for word in command], env=self.environment(),
                                   text=True, errors="replace", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def losses(self, name):
        return (self.root / f"{name}.losses").read_text()

    def statistics(self):
        return json.loads(self.stats.read_text())

    def available(self, make, *arguments):
        """A memory group or a small disk, or the case is skipped with the reason."""
        try:
            place = make(*arguments)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(place.remove)
        return place

    def check_told(self, *texts):
        """The texts of this case, with names for sizes, are those of its part of texts/told.txt."""
        golden.check_told(self, texts, (str(self.root), "ROOT"), patterns=(golden.SIZES,))

    def labels(self, output):
        """Of the lines that a run has said of itself, as `needed`."""
        return re.findall(r"(?m)^\[spillway\] (\w+) ", output)

    def require_nothing_left(self):
        self.assertEqual(list(self.spill.iterdir()), [])
        left = [path.name for path in self.root.iterdir()
                if path.name not in ("spill", "stats.json") and path.suffix != ".losses"]
        self.assertEqual(left, [])


class MemoryLimit(RunCase):
    """A group of processes that the kernel allows less memory than the trainer needs."""

    def test_kills_the_plain_trainer_and_spares_the_one_under_an_automatic_budget(self):
        self.require_finished(self.trainer(LARGE, "free"))
        group = self.available(MemoryGroup, LARGE_LIMIT)
        code, output = self.finish(self.trainer(LARGE, "plain"), group)
        self.assertEqual(code, -signal.SIGKILL, output)
        self.require_finished(
            self.command(self.trainer(LARGE, "auto"), budget="auto"), group)
        self.assertEqual(self.losses("auto"), self.losses("free"))
        self.assertEqual(group.processes(), [])
        statistics = self.statistics()
        self.assertIn(group.folder.name, statistics["budget_origin"])
        self.assertLess(statistics["budget_bytes"], LARGE_LIMIT)
        self.assertGreater(statistics["needed_bytes"], LARGE_LIMIT)
        self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertLessEqual(statistics["peak_bytes"], statistics["budget_bytes"])
        self.require_nothing_left()


class Endings(RunCase):
    """Runs that are ended from outside while tensors are on disk."""

    def spilling(self, program=None):
        process = self.start(self.command(program or self.trainer(SMALL, "endless", 1000000)))
        for line in process.stdout:
            if line.startswith("step 2 "):
                break
        self.assertGreater(sum(unnamed_files(process.pid, self.spill)), 0)
        self.assertEqual(list(self.spill.iterdir()), [])
        return process

    def require_end(self, process, code):
        _, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, errors)
        with self.assertRaises(ProcessLookupError):
            os.killpg(process.pid, 0)
        self.require_nothing_left()
        return errors

    def require_account(self, errors):
        statistics = self.statistics()
        self.assertGreaterEqual(statistics["steps"], 1)
        self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertEqual(self.labels(errors)[:3], ["needed", "budget", "peak"], errors)

    def test_by_a_request_to_terminate_leave_an_account_and_nothing_else(self):
        process = self.spilling()
        process.send_signal(signal.SIGTERM)
        self.require_account(self.require_end(process, -signal.SIGTERM))

    @slow
    def test_by_the_keyboard_leave_an_account_and_nothing_else(self):
        process = self.spilling()
        os.killpg(process.pid, signal.SIGINT)
        self.require_account(self.require_end(process, -signal.SIGINT))

    @slow
    def test_by_a_closed_terminal_leave_an_account_and_nothing_else(self):
        process = self.spilling()
        os.killpg(process.pid, signal.SIGHUP)
        self.require_account(self.require_end(process, -signal.SIGHUP))

    def test_by_a_signal_told_twice_leave_an_account(self):
        process = self.spilling()
        process.send_signal(signal.SIGTERM)
        os.killpg(process.pid, signal.SIGTERM)
        self.require_account(self.require_end(process, -signal.SIGTERM))

    def test_by_force_leave_nothing(self):
        process = self.spilling()
        os.killpg(process.pid, signal.SIGKILL)
        self.require_end(process, -signal.SIGKILL)
        self.assertFalse(self.stats.exists())

    def test_give_a_shell_the_usual_exit_code(self):
        words = self.command(self.trainer(SMALL, "endless", 1000000))
        process = self.start(["sh", "-c", '"$@" & echo "process $!"; wait $!; echo "code $?"',
                              "sh", *words])
        trainer = int(process.stdout.readline().split()[1])
        for line in process.stdout:
            if line.startswith("step 2 "):
                break
        os.kill(trainer, signal.SIGTERM)
        output, _ = process.communicate(timeout=300)
        self.assertEqual(output.splitlines()[-1], "code 143")

    def test_of_several_runs_in_one_directory_at_a_time(self):
        self.require_finished(self.trainer(SMALL, "plain", 3))
        names = ["first", "second", "third"]
        runs = [self.start(self.command(self.trainer(SMALL, name, 3),
                                        stats=self.root / f"{name}.json"))
                for name in names]
        killed = self.spilling()
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        for name, process in zip(names, runs):
            _, errors = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, errors)
            self.assertEqual(self.losses(name), self.losses("plain"))
            statistics = json.loads((self.root / f"{name}.json").read_text())
            self.assertEqual(statistics["process_id"], process.pid)
            self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertEqual(list(self.spill.iterdir()), [])


class Unusual(RunCase):
    """Trainers that begin, end or are built in unusual ways."""

    PROGRAM = WORK / "unusual_program"
    HOST = [WORK / "plugin_host", "plain", WORK / "libunusual_plugin.so"]
    BUDGET = "40MiB"

    def under_budget(self, program, *options, **variables):
        """(exit code, standard output, error output)"""
        outcome = subprocess.run(self.command(program, *options, budget=self.BUDGET),
                                 env={**self.environment(), **variables}, text=True,
                                 errors="replace", stdin=subprocess.DEVNULL, capture_output=True,
                                 timeout=600, check=False)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def plain(self, program, **variables):
        outcome = subprocess.run([str(word) for word in program],
                                 env={**self.environment(), **variables}, text=True,
                                 errors="replace", stdin=subprocess.DEVNULL, capture_output=True,
                                 timeout=600, check=False)
        return outcome.returncode, outcome.stdout

    def require_spilled(self):
        statistics = self.statistics()
        self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertLessEqual(statistics["peak_bytes"], 40 * MIB)

    def test_that_open_libtorch_with_a_plugin_are_under_the_budget(self):
        for variables in ({}, {"EARLY_TENSOR": "1"}):  # While the plugin is being opened, too.
            plain = self.plain(self.HOST, **variables)
            code, output, errors = self.under_budget(self.HOST, **variables)
            self.assertEqual((code, output), plain, errors)
            self.require_spilled()
            self.assertNotIn("warning", errors)

    @slow
    def test_whose_environment_is_cleared_are_under_the_budget(self):
        plain = self.plain([self.PROGRAM, "plain"])
        code, output, errors = self.under_budget(["env", "-i", self.PROGRAM, "plain"])
        self.assertEqual((code, output), plain, errors)
        self.require_spilled()

    def test_that_have_an_allocator_of_their_own_are_told_of(self):
        plain = self.plain([self.PROGRAM, "own_allocator"])
        code, output, errors = self.under_budget([self.PROGRAM, "own_allocator"])
        self.assertEqual((code, output), plain, errors)
        told = re.findall(r"warning: the program has replaced Spillway's allocator .*OwnAllocator",
                          errors)
        self.assertEqual(len(told), 1, errors)

    def test_that_crash_leave_an_account_and_end_as_before(self):
        for way, signal_number in (("abort", signal.SIGABRT), ("crash", signal.SIGSEGV)):
            plain = self.plain([self.PROGRAM, way])
            self.assertEqual(plain[0], -signal_number)
            code, output, errors = self.under_budget([self.PROGRAM, way])
            self.assertEqual((code, output), plain, errors)
            self.require_spilled()
            self.assertEqual(self.labels(errors)[0], "needed", errors)
            self.stats.unlink()

    def test_that_train_in_a_function_at_exit_get_the_same_results(self):
        """Plain LibTorch crashes or hangs there: its queue of the main thread is freed by then."""
        plain = self.plain([self.PROGRAM, "twice"])
        self.assertEqual(plain[0], 0)
        code, output, errors = self.under_budget([self.PROGRAM, "at_exit"])
        self.assertEqual((code, output), plain, errors)
        self.assertGreater(self.statistics()["spilled_bytes"], 0)

    @slow
    def test_with_the_address_sanitizer_have_its_runtime_first(self):
        program, options = WORK / "sanitized_program", {"ASAN_OPTIONS": "detect_leaks=0"}
        plain = self.plain([program, "plain"], **options)
        self.assertEqual(plain[0], 0)
        code, output, errors = self.under_budget([program, "plain"], **options)
        self.assertEqual((code, output), plain, errors)
        self.require_spilled()
        runtime = re.search(r"libasan\S+ => (\S+)", subprocess.run(
            ["ldd", program], text=True, capture_output=True, check=True).stdout)
        self.assertTrue(runtime)
        code, output, errors = self.under_budget(["env", program, "plain"],
                                                 LD_PRELOAD=runtime.group(1), **options)
        self.assertEqual((code, output), plain, errors)

    @slow
    def test_under_a_debugger_are_not_stopped_by_probes(self):
        if shutil.which("gdb") is None:
            self.skipTest("gdb is not installed")
        debugger = ["gdb", "-q", "-batch", "-nx", "-ex", "set startup-with-shell off", "-ex", "run",
                    "--args", self.PROGRAM, "plain"]
        _, output, errors = self.under_budget(debugger)
        if "ptrace" in errors:
            self.skipTest(f"gdb cannot trace here: {errors}")
        probed = self.finish([COMMAND, "doctor", "--skip-disks"])[1]
        traps = re.search(r"(?m)^\S+ +mapper +(signal|copy)", probed)
        if traps:
            self.assertIn("handle SIGSEGV nostop noprint pass", errors)
        else:
            self.assertIn("exited normally", output + errors)
            self.require_spilled()

    @slow
    def test_under_valgrind_are_refused_by_name(self):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed")
        code, _, errors = self.under_budget(["valgrind", "--tool=none", "-q", self.PROGRAM, "plain"])
        self.assertEqual(code, 2, errors)
        self.check_told(*(line for line in errors.splitlines() if " error: " in line))


class Ranks(RunCase):
    """Several trainers that a launcher starts."""

    def test_of_mpich_spill_side_by_side_and_leave_an_account_each(self):
        self.spill_side_by_side(mpi_launcher(self, "MPICH"))

    @slow
    def test_of_open_mpi_spill_side_by_side_and_leave_an_account_each(self):
        self.spill_side_by_side(mpi_launcher(self, "Open MPI"))

    def spill_side_by_side(self, launcher):
        self.require_finished(self.trainer(SMALL, "plain"))
        script = self.root / "rank.sh"
        script.write_text('exec "$@" --losses '
                          f'"{self.root}/rank$OMPI_COMM_WORLD_RANK$PMI_RANK.losses"\n')
        self.require_finished(
            self.command([launcher, "-n", "2", "sh", script, *SMALL, "--steps", "2"],
                         stats=self.root / "rank%r.json"))
        for rank in ("0", "1"):
            self.assertEqual(self.losses(f"rank{rank}"), self.losses("plain"))
            statistics = json.loads((self.root / f"rank{rank}.json").read_text())
            self.assertEqual(statistics["rank"], rank)
            self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertEqual(list(self.spill.iterdir()), [])


class Progress(RunCase):
    """What a terminal shows while a trainer runs."""

    def shown(self, shares_terminal):
        """All that comes to a terminal which is stderr, and stdout too where that is asked for."""
        ours, theirs = pty.openpty()
        command = self.command(self.trainer(SMALL, "run", steps=4))
        process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=theirs if shares_terminal else subprocess.DEVNULL,
                                   stderr=theirs)
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # The other end is closed.
                break
            text += piece
        os.close(ours)
        self.assertEqual(process.wait(), 0, text)
        return text.decode()

    def test_is_one_line_that_changes(self):
        text = self.shown(shares_terminal=False)
        self.assertEqual(re.findall(r"\r\[spillway\] step (\d+)  (?=[^\r\n]+[\r\n])", text)[:2], ["1", "2"], text)
        self.assertEqual(self.labels(text)[0], "needed", text)

    def test_does_not_run_into_the_programs_lines(self):
        text = self.shown(shares_terminal=True)
        self.assertEqual(re.findall(r"(?m)^step (\d+)  loss", text), ["1", "2", "3", "4"], text)
        for line in text.split("\r\n"):
            self.assertNotIn("\r", line)
            self.assertNotIn("[spillway]", line[1:])


class Disks(RunCase):
    """Directories that are too small, full, or no disks."""

    def test_that_are_too_small_end_the_training_with_their_name(self):
        disk = self.available(SmallDisk, self.root, 40 * MIB)
        code, output = self.finish(self.command(self.trainer(SMALL, "full"), spill=disk.point))
        self.assertNotIn(code, (0, 2), output)
        self.check_told(*(line for line in output.splitlines() if line.startswith("text_gpt: ")))
        self.assertEqual([path.name for path in disk.point.iterdir()], ["lost+found"])

    def test_that_are_too_small_are_helped_out_by_others(self):
        disk = self.available(SmallDisk, self.root, 40 * MIB)
        self.require_finished(self.trainer(SMALL, "plain"))
        self.require_finished(self.command(self.trainer(SMALL, "helped"),
                                           spill=f"{disk.point},{self.spill}"))
        self.assertEqual(self.losses("helped"), self.losses("plain"))
        statistics = self.statistics()
        self.assertEqual(statistics["directories"], [str(disk.point), str(self.spill)])
        self.assertGreater(statistics["spill_space_peak_bytes"], 40 * MIB)  # More than the small one.
        self.assertLess(statistics["spill_space_peak_bytes"], 2 * statistics["needed_bytes"])

    def test_that_are_full_are_refused(self):
        disk = self.available(SmallDisk, self.root, 40 * MIB)
        disk.fill(left=MIB)
        code, output = self.finish(self.command(self.trainer(SMALL, "full"), spill=disk.point))
        self.assertEqual(code, 2)
        self.check_told(output)

    def test_in_memory_are_warned_of(self):
        point = mounted("tmpfs")
        candidates = [path for path in (pathlib.Path("/dev/shm"), point)
                      if path is not None and os.access(path, os.W_OK)]
        if not candidates:
            self.skipTest("no tmpfs that this user may write to is mounted")
        folder = pathlib.Path(tempfile.mkdtemp(dir=candidates[0]))
        self.addCleanup(shutil.rmtree, folder)
        output = self.require_finished(self.command(self.trainer(SMALL, "ram", 1), spill=folder))
        warnings = [line for line in output.splitlines() if "warning: " in line
                    and ("RAM disk" in line or "tmpfs" in line)]
        self.assertEqual(len(warnings), 1, output)
        self.check_told(warnings[0].replace(str(folder), "FOLDER"))


class Budgets(RunCase):
    """Budgets at the border of what works."""

    def run_with(self, budget):
        """(MiB that a run with so many names, or None where every operator fitted; exit code)."""
        code, output = self.finish(self.command(self.trainer(SMALL, "least", 3),
                                                budget=f"{budget}MiB"))
        said = re.findall(r"\[spillway\] (?:error|warning): .* smallest budget: (\d+)MiB", output)
        statistics = self.statistics()
        self.assertEqual(bool(said), statistics["refusal"] != "", output)
        self.assertTrue(code == 0 or said, output)
        # Only what is of a whole step may be told as enough.
        self.assertEqual(statistics["has_whole_step"], code == 0, output)
        self.assertEqual("the first step did not end" in output, code != 0, output)
        return int(said[-1]) if said else None, code

    def test_below_the_largest_operator_name_it_and_the_smallest_that_works(self):
        budget, ended = 8, None
        while True:
            named, code = self.run_with(budget)
            if named is None:
                break
            # Refusals say "or more": they come before any operator of the optimizer was seen.
            self.assertNotEqual(ended, 0, "what a run names that went to its end does")
            self.assertGreater(named, budget)
            budget, ended = named, code
        self.assertGreater(budget, 8)
        self.assertLessEqual(self.statistics()["peak_bytes"], budget * MIB)
        # There is a page to spare in it, so the second one less is surely missing.
        named, code = self.run_with(budget - 2 * PAGE // MIB)
        self.assertIsNotNone(named)
        self.assertEqual(code, 0, "a little less is paged through to its end")


class DiskRates(RunCase):
    """What bench-io has recorded of a disk."""

    def test_are_what_plans_reckon_with(self):
        self.require_finished([COMMAND, "bench-io", "--file-size", "8MiB", "--blocks", "2MiB",
                               "--depths", "2", "--repetitions", "1", self.spill])
        kept = json.loads((self.root / "config/spillway/disks.json").read_text())["disks"][0]
        output = self.require_finished(
            self.command(self.trainer(SMALL, "run", 1), "--log-level", "info"))
        said = re.search(r"plans reckon with (\S+) bytes/s written, (\S+) read", output)
        self.assertTrue(said, output)
        for shown, key in zip(said.groups(), ("write_bytes_per_second", "read_bytes_per_second")):
            self.assertAlmostEqual(float(shown) / kept[key], 1, places=4, msg=key)


class Quiet(RunCase):
    """A run that shall say nothing of its own."""

    def test_leaves_the_statistics_and_the_programs_own_words(self):
        output = self.require_finished(self.command(self.trainer(SMALL, "quiet"), "--quiet"))
        self.assertEqual(re.findall(r"(?m)^step (\d+) ", output), ["1", "2"], output)
        self.assertNotIn("[spillway]", output)
        self.assertGreater(self.statistics()["spilled_bytes"], 0)


class Statistics(RunCase):
    """The file that a run writes."""

    def test_has_the_keys_that_are_documented(self):
        lines = STATISTICS_KEYS.read_text().splitlines()
        rows = [line.split("|")[1] for line in lines if line.startswith("| `")]
        told = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
        self.assertEqual(len(told), len(set(told)))
        self.require_finished(self.command(self.trainer(SMALL, "run", 1)))
        self.assertEqual(sorted(self.statistics()), sorted(told))

    def test_counts_nearly_no_traps_where_every_operand_is_announced(self):
        """A tensor of an operator that the interception missed would be served by a trap."""
        self.require_few_traps(SMALL, 3)

    @slow
    def test_counts_nearly_no_traps_in_convolutions(self):
        program = PROGRAMS / "brain_unet"
        if not program.exists() or not MRI.exists():
            self.skipTest(f"brain_unet or its data, {MRI}, is not on this machine")
        self.require_few_traps([program, "--preset", "tiny", "--threads", "1"], 2)

    def require_few_traps(self, program, steps):
        self.require_finished(self.command(self.trainer(program, "room", steps), budget="4GiB"))
        ample = self.statistics()
        self.assertEqual(ample["trap_count"], 0)
        half = ample["needed_bytes"] // 2 // 1024
        self.require_finished(self.command(self.trainer(program, "half", steps),
                                           budget=f"{half}KiB"))
        tight = self.statistics()
        self.assertEqual(tight["ops"], ample["ops"])
        self.assertGreater(tight["spilled_bytes"], 0)
        self.assertLess(tight["trap_count"], tight["ops"] / 500)


class PythonCase(RunCase):
    """A program in Python, by the interpreter that SPILLWAY_TEST_PYTHON names or this one."""

    def setUp(self):
        super().setUp()
        self.python = os.environ.get("SPILLWAY_TEST_PYTHON", sys.executable)
        reason = reason_to_skip(self.python, COMMAND)
        if reason:
            self.skipTest(reason)


class Python(PythonCase):
    """A trainer without an end."""

    TRAINER = """
import torch
torch.set_num_threads(1)
layers = [torch.nn.Linear(1024, 1024) for _ in range(6)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters())
step = 0
while True:
    step += 1
    model(torch.randn(16, 1024)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} ", flush=True)
"""

    def test_that_is_interrupted_leaves_an_account(self):
        process = self.start(self.command([self.python, "-c", self.TRAINER]))
        for line in process.stdout:
            if line.startswith("step 2 "):
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        traceback = [line for line in errors.splitlines() if not line.startswith("[spillway]")]
        self.assertEqual(traceback[-1], "KeyboardInterrupt", errors)
        self.assertGreater(self.statistics()["spilled_bytes"], 0)
        self.require_nothing_left()

    HALVING = """
import torch
rows = 1 << 20
while True:
    try:
        batch = torch.ones(rows, 64)
        print("sum", float((batch * 2).sum()) / rows, flush=True)
        break
    except torch.OutOfMemoryError as error:
        print("refused:", error, flush=True)
        rows //= 2
"""

    def test_that_halves_its_batch_when_memory_runs_out_goes_on(self):
        output = self.require_finished(self.command([self.python, "-c", self.HALVING],
                                                    budget="32MiB"))
        refused, *_, result = (line for line in output.splitlines() if line.startswith(("refused: ", "sum ")))
        self.check_told(refused, result)


class OwnLimits(PythonCase):
    """A program that limits, locks or forbids what it may take itself before it trains."""

    TRAINER = """
import ctypes, os, resource, subprocess, sys, threading, torch
GIB = 1 << 30
prepare = sys.argv[1]
tensor = torch.ones(1 << 20)
if prepare in ("AS", "DATA"):
    which = getattr(resource, "RLIMIT_" + prepare)
    resource.setrlimit(which, (16 * GIB, 16 * GIB))
    print("told", resource.getrlimit(which), flush=True)
    option = {"AS": "-v", "DATA": "-d"}[prepare]
    print("child", subprocess.check_output(["bash", "-c", "ulimit " + option]), flush=True)
    try:
        bytearray(20 * GIB)
        print("took more than the limit")
    except MemoryError:
        print("kept to the limit", flush=True)
if prepare.startswith("lock"):
    print("mlockall", ctypes.CDLL(None).mlockall(int(prepare[4:])), flush=True)
torch.set_num_threads(2)
torch.manual_seed(7)
weights = [(torch.randn(512, 512) * 0.04).requires_grad_() for _ in range(6)]
for step in range(3):
    hidden = torch.randn(1500, 512)
    for weight in weights:
        hidden = torch.nn.functional.silu(hidden.matmul(weight))
    loss = hidden.pow(2).mean()
    gradients = torch.autograd.grad([loss], weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            weight.sub_(gradient)
    own = bytearray(64 << 20)
    thread = threading.Thread(target=lambda: own.__setitem__(5, 1))
    thread.start()
    thread.join()
    print("loss", step, loss.item().hex(), tensor.sum().item(), flush=True)
"""

    # What it says of its limit, and then as without one.
    PREPARED = {
        "AS": f"told {(16 << 30, 16 << 30)}\nchild b'16777216\\n'\nkept to the limit\n",
        "DATA": f"told {(16 << 30, 16 << 30)}\nchild b'16777216\\n'\nkept to the limit\n",
        "lock1": "mlockall 0\n", "lock2": "mlockall 0\n", "lock3": "mlockall 0\n"}

    # Two threads that wait for each other on processors that others want would only spin.
    WAITING = {"OMP_WAIT_POLICY": "passive"}

    @functools.cached_property
    def trained(self):
        """What the trainer says without limits and without Spillway."""
        return self.run_trainer([self.python, "-c", self.TRAINER, "nothing"]).stdout

    def run_trainer(self, command):
        outcome = subprocess.run(command, env={**self.environment(), **self.WAITING}, text=True,
                                 capture_output=True, stdin=subprocess.DEVNULL, timeout=300,
                                 check=False)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome

    def require_as_before(self, prepare, *options, budget):
        program = [self.python, "-c", self.TRAINER, prepare]
        outcome = self.run_trainer(self.command(program, *options, budget=budget))
        self.assertEqual(outcome.stdout, self.PREPARED[prepare] + self.trained, outcome.stderr)

    def test_bound_what_the_program_takes_and_not_what_is_reserved(self):
        for limit in ("AS", "DATA"):
            for options in ([], ["--mapper", "signal"], ["--mapper", "copy"]):
                with self.subTest(limit=limit, options=options):
                    self.require_as_before(limit, *options, budget="4GiB")

    @slow
    def test_bound_it_while_tensors_spill(self):
        for limit in ("AS", "DATA"):
            self.require_as_before(limit, budget="40MiB")
            self.assertGreater(self.statistics()["spilled_bytes"], 0)

    @slow
    def test_of_locked_memory_leave_tensors_out(self):
        if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY \
                and os.geteuid() != 0:
            self.skipTest("locked memory is limited")
        for flags in ("lock1", "lock2", "lock3"):  # MCL_CURRENT, MCL_FUTURE, both.
            for mapper in ("auto", "signal", "copy"):
                with self.subTest(flags=flags, mapper=mapper):
                    self.require_as_before(flags, "--mapper", mapper, budget="40MiB")
                    self.assertGreater(self.statistics()["spilled_bytes"], 0)

    def test_that_only_the_kernel_knows_are_named_where_a_thread_is_refused(self):
        program = """
import ctypes, resource, threading, torch
tensor = torch.ones(1 << 20)
size = int(open("/proc/self/statm").read().split()[0]) * 4096
limit = (ctypes.c_uint64 * 2)(size + (1 << 20), size + (1 << 20))
print("limited", ctypes.CDLL(None).syscall(302, 0, resource.RLIMIT_AS, limit, None), flush=True)  # prlimit64
try:
    threading.Thread(target=print).start()
except RuntimeError as error:
    print("refused:", error)
"""
        output = self.require_finished(self.command([self.python, "-c", program], budget="40MiB"))
        lines = output.splitlines()
        self.check_told(*(line for line in lines if " error: " in line),
                        *(line for line in lines if line.startswith(("limited ", "refused: "))))

    def test_of_locked_memory_that_pass_by_the_c_library_are_named(self):
        program = """
import ctypes, torch
tensor = torch.ones(1 << 20)
print("mlockall", ctypes.CDLL(None).syscall(151, 1), flush=True)
print("sum", tensor.sum().item())
"""
        code, output = self.finish(self.command([self.python, "-c", program], "--mapper",
                                                "userfaultfd-user", budget="400MiB"))
        if "mlockall -1" in output or 'mapper "userfaultfd-user":' in output:
            self.skipTest(output)
        self.assertIn(code, (-signal.SIGSEGV, -signal.SIGABRT), output)
        self.check_told(output[output.index("the program has locked"):].splitlines()[0])

    def test_of_addresses_at_the_start_shrink_what_is_reserved(self):
        command = self.command([self.python, "-c", self.TRAINER, "nothing"], budget="40MiB")
        output = self.require_finished(
            ["bash", "-c", 'ulimit -v 20000000; exec "$@"', "limited", *command])
        self.check_told(*(line.replace("1.00 TiB", "ALL").replace("19.1 GiB", "LIMIT")
                          for line in output.splitlines() if " addresses are reserved " in line))
        self.assertGreater(self.statistics()["spilled_bytes"], 0)

    def test_of_addresses_that_cannot_hold_all_tensors_are_what_is_to_be_lifted(self):
        program = "import torch; held = [torch.ones(1 << 22) for _ in range(1000)]"  # 16 GiB
        code, output = self.finish(
            ["bash", "-c", 'ulimit -v 6000000; exec "$@"', "limited",
             *self.command([self.python, "-c", program], budget="40MiB")])
        self.assertNotEqual(code, 0, output)
        told = [line for line in output.splitlines() if re.match(r"\[spillway\] (error: |advice |needed )", line)]
        self.check_told(*(line.replace("5.72 GiB", "LIMIT").replace("16.0 MiB", "TENSOR") for line in told))
        self.assertEqual(self.statistics()["refusal_cause"], "addresses")

    def test_of_writable_memory_at_the_start_are_named_with_their_value(self):
        command = self.command([self.python, "-c", self.TRAINER, "nothing"], budget="40MiB")
        code, output = self.finish(
            ["bash", "-c", 'ulimit -d 220000; exec "$@"', "limited", *command])
        self.assertNotEqual(code, 0, output)
        self.check_told(*(line.replace("215 MiB", "LIMIT") for line in output.splitlines() if " error: " in line))


class Cores(PythonCase):
    """What a run that aborts leaves behind where cores are kept."""

    PATTERN = 1234567.0
    TRAINER = f"""
import os, torch
tensor = torch.full((1 << 20,), {PATTERN})
print("sum", tensor.sum().item(), flush=True)
os.abort()
"""

    def test_hold_tensors_in_memory_and_nothing_of_what_is_reserved(self):
        if pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core":
            self.skipTest("cores do not go to the working directory")
        for mapper in ("auto", "signal", "copy"):
            with self.subTest(mapper=mapper):
                command = self.command([self.python, "-c", self.TRAINER], "--mapper", mapper,
                                       budget="4GiB")
                folder = self.root / mapper
                folder.mkdir()
                outcome = subprocess.run(
                    ["bash", "-c", 'ulimit -c unlimited; cd "$1"; shift; exec "$@"', "core", folder,
                     *command], env=self.environment(), stdin=subprocess.DEVNULL,
                    capture_output=True, text=True, timeout=300, check=False)
                self.assertEqual(outcome.returncode, -signal.SIGABRT, outcome.stderr)
                cores = list(folder.iterdir())
                self.assertEqual(len(cores), 1)
                self.assertLess(cores[0].stat().st_size, 2 << 30)
                pattern = struct.pack("<f", self.PATTERN) * (1 << 18)
                self.assertIn(pattern, cores[0].read_bytes())


if __name__ == "__main__":
    unittest.main()
