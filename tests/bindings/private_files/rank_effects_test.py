"""What is left of a program that runs on many ranks: files and output of the first one."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from memory_group import Unavailable
from mpi_launchers import RANKS_ALLOWED, mpi_launcher
from surroundings import SmallDisk

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
# Standard error of a rank that says nothing shows what begins as Spillway's own lines do.
TELL_FOLDER = 'echo "[spillway] folder $SPILLWAY_PRIVATE_FILES" >&2;'


class RankCase(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.room = pathlib.Path(room.name).resolve()
        self.work = self.room / "work"
        self.work.mkdir()
        self.temporary = self.room / "temporary"
        self.temporary.mkdir()

    def start(self, script, *before, rank=None, switch="--split"):
        """A script under `spillway run`, as a rank or under a launcher."""
        variables = {"TMPDIR": str(self.temporary), "HOME": str(self.room), **RANKS_ALLOWED}
        if rank is not None:
            variables.update(PMI_RANK=str(rank), PMI_SIZE="3")
        return subprocess.Popen([*before, COMMAND, "run", switch, "--nvme", str(self.room), "--", "bash",
                                 "-c", script], cwd=self.work, text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=clean_environment("PMI_RANK", "PMI_SIZE", **variables))

    def run_script(self, script, *before, typed="", **more):
        """(exit code, standard output, lines of the error output)"""
        process = self.start(script, *before, **more)
        output, errors = process.communicate(typed, timeout=120)
        return process.returncode, output, errors.splitlines()

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        words = ((str(self.work), "WORK"), (str(self.temporary), "TMPDIR"), (str(self.room), "ROOM"))
        golden.check_told(self, texts, *words, patterns=((r"spillway-rank-\d+-\w+", "PRIVATE"),))

    def left(self):
        return sorted(path.name for path in self.temporary.iterdir()
                      if path.name.startswith("spillway-rank-"))

    def names(self):
        return sorted(path.name for path in self.work.iterdir())


# The first rank has written half of a file when the other one looks for it; they meet at pipes. Then
# each goes on with the log that it has begun.
HALF_WRITTEN = """
import os, sys
rank = os.environ.get("SPILLWAY_LAUNCHER_PMI_RANK") or os.environ["SPILLWAY_LAUNCHER_OMPI_COMM_WORLD_RANK"]
is_first = int(rank) == 0
def meet(pipe, writes):
    with open(pipe, "w" if writes else "r"): pass
meet("begun", not is_first)
if not is_first: meet("half", False)
listed = sorted(os.listdir())
if not os.path.exists("cache") and not os.path.exists("folder"):
    os.mkdir("folder")
    with open("log", "a") as log: log.write("a line\\n")
    with open("cache", "w") as cache:
        cache.write("half, "); cache.flush()
        if is_first: meet("half", True); meet("done", False)
        cache.write("whole")
with open("log") as log, open("cache") as cache:
    print(f"[spillway] {listed} {cache.read()} {log.read().count('line')}", file=sys.stderr)
if not is_first: meet("done", True)
"""


class FirstRank(RankCase):
    """Its effects are the only ones, under each launcher."""

    def check(self, mpi):
        (self.work / "old").write_text("old\n")
        script = ("rank=${SPILLWAY_LAUNCHER_PMI_RANK:-$SPILLWAY_LAUNCHER_OMPI_COMM_WORLD_RANK};"
                  "echo out; echo errors >&2;"
                  "echo $rank >made-$rank; echo $rank >>old; mkdir folder-$rank; cat;"
                  "[ $(cat made-$rank) = $rank ] && [ -d folder-$rank ] &&"
                  "echo \"[spillway] rank $rank reads $(tail -n 1 old)\" >&2")
        code, output, errors = self.run_script(script, mpi_launcher(self, mpi), "-n", "3", typed="typed\n")
        self.assertEqual((code, output), (0, "out\ntyped\n"))
        warning = ("warning: the program reads standard input, which only the first rank has: on this "
                   "rank it is empty")
        self.assertEqual(sorted(errors), ["[spillway 1] rank 1 reads 1", f"[spillway 1] {warning}",
                                          "[spillway 2] rank 2 reads 2", f"[spillway 2] {warning}",
                                          "[spillway] rank 0 reads 0", "errors"])
        self.assertEqual(self.names(), ["folder-0", "made-0", "old"])
        self.assertEqual((self.work / "old").read_text(), "old\n0\n")
        self.assertEqual(self.left(), [])

    def check_half_written(self, mpi):
        for pipe in ("begun", "half", "done"):
            os.mkfifo(self.work / pipe)
        (self.work / "program.py").write_text(HALF_WRITTEN)
        code, _, errors = self.run_script("python3 program.py", mpi_launcher(self, mpi), "-n", "2")
        told = "['begun', 'done', 'half', 'program.py'] half, whole 1"
        self.assertEqual((code, sorted(errors)), (0, [f"[spillway 1] {told}", f"[spillway] {told}"]))
        self.assertEqual((self.work / "log").read_text(), "a line\n")

    def test_under_mpich(self):
        self.check("MPICH")

    def test_under_open_mpi(self):
        self.check("Open MPI")

    def test_what_it_is_writing_is_its_own_under_mpich(self):
        self.check_half_written("MPICH")

    def test_what_it_is_writing_is_its_own_under_open_mpi(self):
        self.check_half_written("Open MPI")


class OtherRank(RankCase):
    def test_leaves_everything_as_it_was_and_ends_as_it_would(self):
        code, output, errors = self.run_script(TELL_FOLDER + "echo x >made; cat made; exit 7", rank=1)
        self.assertEqual((code, output, self.names(), self.left()), (7, "", [], []))
        self.check_told(*errors)

    def test_shows_what_it_said_last_when_it_fails(self):
        for end in ("exit 3", "exec python3 -c 'import os; os._exit(3)'"):
            code, _, errors = self.run_script(f"printf 'early\none\ntwo\nframe #0: x\nthree' >&2; {end}", rank=1)
            self.assertEqual((code, errors), (3, [f"[spillway 1] error: this rank has failed: {line}"
                                                  for line in ("early", "one", "two", "three")]))

    def test_shows_nothing_more_where_the_reason_is_told(self):
        code, _, errors = self.run_script("echo errors >&2; echo '[spillway] error: reason' >&2; exit 3", rank=1)
        self.assertEqual((code, errors), (3, ["[spillway 1] error: reason"]))

    def test_shows_why_it_aborts(self):
        code, _, errors = self.run_script("exec python3 -c 'import os, sys; print(\"why\", file=sys.stderr,"
                                          "flush=True); os.abort()'", rank=1)
        self.assertEqual((code, errors), (-signal.SIGABRT, ["[spillway 1] error: this rank has failed: why"]))

    def test_says_nothing_of_its_own_when_it_ends_well_or_is_ended(self):
        for end, expected in (("exit 0", 0), ("kill -TERM $$", -signal.SIGTERM)):
            code, _, errors = self.run_script(f"echo errors >&2; (exit 3); {end}", rank=1)
            self.assertEqual((code, errors), (expected, []))

    def test_names_a_working_folder_without_times_of_birth(self):
        """The first rank does. The kernel has such a file system."""
        for folder, expected in ((pathlib.Path("/sys"), 1), (self.work, 0)):
            known = subprocess.run(["stat", "--format=%W", folder], capture_output=True, text=True, check=True).stdout
            self.assertEqual(int(known) > 0, expected == 0, folder)
            self.work = folder
            _, _, errors = self.run_script("true", rank=0)
            self.assertEqual(len(errors), expected, errors)
            if expected:
                self.check_told(*errors)
            self.assertEqual(self.run_script("true", rank=1)[2], [])
            self.assertEqual(self.run_script("true", rank=0, switch="--split=off")[2], [])

    def test_is_as_any_program_where_no_job_is_split(self):
        code, output, errors = self.run_script(TELL_FOLDER + "echo x >made; cat made", rank=1,
                                               switch="--split=off")
        self.assertEqual((code, output, errors), (0, "x\n", ["[spillway] folder "]))
        self.assertEqual(self.names(), ["made"])

    def test_has_no_children_that_it_did_not_start(self):
        code, _, errors = self.run_script("read -r children </proc/$$/task/$$/children;"
                                          "echo \"[spillway] children:$children\" >&2", rank=1)
        self.assertEqual((code, errors), (0, ["[spillway 1] children:"]))

    def test_leaves_nothing_behind_when_it_is_killed(self):
        process = self.start(TELL_FOLDER + "echo x >made; kill -KILL $$", rank=2)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.check_told(errors)
        self.assertEqual((self.names(), self.left()), ([], []))

    def test_removes_what_was_left_of_ranks_that_are_gone(self):
        tell_owner = 'echo "[spillway] $(readlink $SPILLWAY_PRIVATE_FILES/owner)" >&2; sleep 0.1'
        _, _, errors = self.run_script(tell_owner, rank=1)
        ended = errors[0].removeprefix("[spillway 1] ")
        world, process = ended.rsplit(" ", 2)[0], str(os.getpid())
        alive = f"{world} {process} {pathlib.Path('/proc/self/stat').read_text().split()[21]}"
        for name, owner in (("ended", ended), ("alive", alive), ("other", "elsewhere 1 2 3 4")):
            folder = self.temporary / f"spillway-rank-{name}"
            (folder / "files/closed").mkdir(parents=True)
            (folder / "files/closed/file").write_text("left")
            (folder / "files/closed").chmod(0o500)
            (folder / "owner").symlink_to(owner)
        self.run_script("true", rank=1)
        self.assertEqual(self.left(), ["spillway-rank-alive", "spillway-rank-other"])

    def test_says_that_it_reads_what_was_changed_meanwhile(self):
        for pipe in ("begun", "go"):
            os.mkfifo(self.work / pipe)
        for name in ("changed", "kept"):
            (self.work / name).write_text("before")
        process = self.start("echo >begun; cat go; cat kept changed changed; echo x >>changed; cat changed", rank=1)
        (self.work / "begun").read_text()
        (self.work / "changed").write_text("after")
        (self.work / "go").write_text("")
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        self.check_told(errors)

    def test_says_that_it_copies_what_is_large(self):
        large = (257 << 20) + 7
        for name, size in (("large", large), ("other", large), ("emptied", large), ("small", 1 << 20)):
            with open(self.work / name, "wb") as file:
                file.truncate(size)
        script = ("exec 3<>large 4>>large 5>emptied 6<>small; chmod u+x other; echo more >&4; cat large >/dev/null;"
                  "echo \"[spillway] $(wc -c <large)\" >&2")
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual((code, len(errors)), (0, 3), errors)
        self.check_told(*errors[:2])
        self.assertEqual(errors[2], f"[spillway 1] {large + 5}")
        self.assertEqual((self.work / "large").stat().st_size, large)
        self.assertEqual(self.run_script(script, rank=0)[2], [f"[spillway] {large + 5}"])

    def check_unreachable(self, first, *options):
        """Of a program that makes its system calls past the library, however often and by whom it is started."""
        source, program = self.room / "program.c", self.room / "program"
        source.write_text('#include <stdio.h>\n#ifdef MARK\n'
                          '__attribute__((section(".go.buildinfo"), used)) char mark;\n#endif\n'
                          'int main(void) { return fopen("made", "w") == NULL; }\n')
        compiled = subprocess.run([os.environ["SPILLWAY_TEST_COMPILER"], *options, source, "-o", program],
                                  capture_output=True, text=True, check=False)
        if compiled.returncode != 0 and "-static" in options:
            self.skipTest("no static C library is installed")
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        script = (f"{first.format(program)}; {program}; (PATH=$PATH:{self.room}; program); "
                  f"python3 -c 'import os\nos.posix_spawn(\"{program}\", [\"x\"], os.environ); os.wait()'")
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual((code, len(errors)), (0, 1), errors)
        self.check_told(*errors)
        self.assertEqual(self.run_script(script, rank=0)[::2], (0, []))

    def test_names_a_static_program(self):
        self.check_unreachable("python3 -c 'import subprocess\n"
                               "assert not subprocess.run([\"{}\"], capture_output=True).stderr'", "-static")
        self.assertEqual(self.names(), ["made"])

    def test_names_a_program_made_by_go(self):
        self.check_unreachable("{} 2>/dev/null", "-DMARK")

    def test_says_nothing_of_programs_that_it_reaches(self):
        script = "ls; python3 -c 'import ctypes.util; ctypes.util.find_library(\"m\")'"
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual((code, errors), (0, []))

    def test_is_refused_without_a_place_for_its_files(self):
        self.temporary.rmdir()
        code, _, errors = self.run_script("true", rank=1)
        self.assertEqual(code, -signal.SIGTERM)  # By which MPICH's launcher ends the others.
        self.check_told(errors[-1])

    def test_names_its_disk_where_that_is_full(self):
        try:
            disk = SmallDisk(self.room, 8 << 20)
        except Unavailable as reason:
            self.skipTest(str(reason))
        self.addCleanup(disk.remove)
        self.temporary = disk.point
        script = "head -c 9M /dev/zero >large || echo \"[spillway] failed: $(wc -c <large)\" >&2"
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual(code, 0)
        self.check_told(*(golden.without(line, (r"(?<=failed: )\d{7}$", "COUNT")) for line in errors))
        self.assertEqual((self.names(), self.left()), ([], []))

    def test_stays_one_where_its_program_calls_the_command_again(self):
        script = TELL_FOLDER + f"{COMMAND} run --nvme {self.room} -- sh -c 'echo x >made; {TELL_FOLDER}'; cat made >&2"
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual((code, len(errors), len(set(errors))), (0, 2, 1), errors)
        self.assertEqual((self.names(), self.left()), ([], []))

    def test_goes_on_with_programs_that_outlive_it(self):
        script = "(sleep 0.3; echo '[spillway] later' >&2) & exit 0"
        code, _, errors = self.run_script(script, rank=1)
        self.assertEqual((code, errors, self.left()), (0, ["[spillway 1] later"], []))


if __name__ == "__main__":
    unittest.main()
