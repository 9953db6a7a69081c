"""The preload library in programs with and without LibTorch; see CMakeLists.txt for the world."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock

import golden
from clean_environment import clean_environment
from mpi_launchers import RANKS_ALLOWED, mpi_launcher

WORLD = pathlib.Path(os.environ["SPILLWAY_TEST_WORLD"])
PRELOAD = WORLD / "lib/libspillway_preload.so"


def start(command, preload=None, **variables):
    """(exit code, standard output, error output) of a program in a clean environment."""
    if preload:
        variables["LD_PRELOAD"] = str(preload)
    outcome = subprocess.run([str(word) for word in command], env=clean_environment(**variables),
                             text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    return outcome.returncode, outcome.stdout, outcome.stderr


class PreloadCase(unittest.TestCase):
    def copy_of_installation(self, *cores):
        """A folder with the preload library and empty files for cores."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        shutil.copy(PRELOAD, folder.name)
        for core in cores:
            (pathlib.Path(folder.name) / f"libspillway_core_{core}.so").touch()
        return pathlib.Path(folder.name) / PRELOAD.name

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        golden.check_part(self, *(text.replace(str(WORLD), "$WORLD") for text in texts))


class Harmlessness(PreloadCase):
    """In programs without LibTorch nothing changes and nothing is printed."""

    def check(self, *command):
        if shutil.which(command[0]) is None:
            self.skipTest(f"{command[0]} is not installed")
        plain = start(command)
        self.assertEqual(start(command, PRELOAD), plain)
        self.assertEqual(start(command, PRELOAD, SPILLWAY_ACTIVE="1"), plain)
        return plain

    def test_a_shell_and_its_children(self):
        code, output, _ = self.check("bash", "-c", "echo $((6*7)) | tr 4 5; (exit 3)")
        self.assertEqual((code, output), (3, "52\n"))

    def test_a_shell_that_dies_by_a_signal(self):
        code, _, _ = self.check("bash", "-c", "kill -TERM $$")
        self.assertEqual(code, -15)

    def test_python_with_threads_and_processes(self):
        self.check("python3", "-c", "import threading, subprocess\n"
                   "t = threading.Thread(target=print, args=(1,)); t.start(); t.join()\n"
                   "print(subprocess.run(['echo', 'x'], capture_output=True).stdout)\n"
                   "raise SystemExit(4)")

    def test_handlers_of_signals_in_what_is_to_be_split(self):
        script = ("import ctypes, os, signal\n"
                  "seen = []\n"
                  "signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))\n"
                  "os.kill(os.getpid(), signal.SIGUSR1)\n"
                  "libc = ctypes.CDLL(None)\n"
                  "libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)\n"
                  "own = ctypes.cast(libc.abs, ctypes.c_void_p).value\n"
                  "told = [libc.signal(signal.SIGTERM, wanted) for wanted in (own, 1, own, 0, 0)]\n"
                  "print(seen, [word == own or word for word in told])\n"
                  "try: signal.raise_signal(signal.SIGINT)\n"
                  "except KeyboardInterrupt: print('interrupted', flush=True)\n"
                  "os.kill(os.getpid(), signal.SIGHUP)\n")
        plain = start(["/usr/bin/python3", "-c", script])
        self.assertEqual(start(["/usr/bin/python3", "-c", script], PRELOAD, SPILLWAY_SPLIT="on"), plain)
        self.assertEqual(plain[:2], (-1, "[10] [None, True, 1, True, None]\ninterrupted\n"), plain)

    def test_git(self):
        moment = "2026-11-21T00:00:00Z"
        code, output, _ = self.check(
            "bash", "-c", "command -v git >/dev/null || exit 77\n"
            f"export GIT_AUTHOR_DATE={moment} GIT_COMMITTER_DATE={moment}\n"
            "folder=$(mktemp -d) && cd $folder && git init -q . && echo x >file && git add file &&\n"
            "git -c user.name=a -c user.email=a@b commit -q -m first && git log --format='%H %s'\n"
            "code=$?; rm -rf $folder; exit $code")
        if code == 77:
            self.skipTest("git is not installed")
        self.assertEqual(code, 0)
        commit, _, subject = output.partition(" ")
        self.assertEqual((len(commit), subject), (40, "first\n"))

    def test_mpich_and_the_ranks_that_it_starts(self):
        self.check_ranks_of("MPICH")

    def test_open_mpi_and_the_ranks_that_it_starts(self):
        self.check_ranks_of("Open MPI")

    def check_ranks_of(self, mpi):
        launcher = mpi_launcher(self, mpi)
        with unittest.mock.patch.dict(os.environ, RANKS_ALLOWED):
            # Ranks that have something to do: MPICH's launcher, without us too, breaks on one in a hundred
            # that end while it is still starting others.
            code, output, _ = self.check(launcher, "-n", "2", "sh", "-c",
                                         "ls -R /usr/lib > /dev/null; echo a rank; exit 0")
        self.assertEqual((code, output), (0, "a rank\na rank\n"))

    def test_a_compiler(self):
        self.check("cc", "--version")

    def test_a_program_that_is_not_there(self):
        code, _, _ = self.check("bash", "-c", "exec /no/such/program")
        self.assertEqual(code, 127)

    def test_many_threads_at_once(self):
        self.check("python3", "-c", "from concurrent.futures import ThreadPoolExecutor as P\n"
                   "print(sum(P(16).map(lambda x: x * x, range(500))))")

    def test_the_library_needs_nothing_but_the_c_library(self):
        readelf = os.environ["SPILLWAY_TEST_READELF"]
        _, output, _ = start([readelf, "-d", PRELOAD])
        needed = {line.split("[")[1].split(".so")[0] for line in output.splitlines() if "(NEEDED)" in line}
        self.assertTrue(needed, output)
        # The loader has the processor in its name.
        self.assertEqual({name for name in needed - {"libc", "libdl", "libpthread"}
                          if not name.startswith("ld-linux")}, set())

    def test_the_library_asks_for_no_symbol_of_libtorch(self):
        _, output, _ = start([os.environ["SPILLWAY_TEST_READELF"], "-sW", "--dyn-syms", PRELOAD])
        undefined = [line for line in output.splitlines() if " UND " in line]
        self.assertTrue(undefined, output)
        self.assertFalse([line for line in undefined if "_ZN" in line], undefined)


class LinkedProgram(PreloadCase):
    """A program that is linked with LibTorch."""

    def test_gets_the_core_before_it_starts(self):
        code, output, errors = start([WORLD / "bin/trainer_2.11.0"], PRELOAD)
        lines = output.splitlines()
        self.assertEqual((code, errors), (7, ""))
        self.assertEqual(lines[0], "core: loaded")
        self.assertLess(lines.index("core: registered 0"), lines.index("trainer: starts"))

    def test_has_its_new_threads_reported(self):
        _, output, _ = start([WORLD / "bin/trainer_2.11.0"], PRELOAD)
        lines = output.splitlines()
        self.assertEqual(lines.count("core: a thread started"), 1)
        self.assertLess(lines.index("trainer: starts"), lines.index("core: a thread started"))

    def test_refuses_hooks_of_another_version(self):
        _, output, _ = start([WORLD / "bin/trainer_2.11.0"], PRELOAD)
        self.assertEqual(output.splitlines().count("core: a later version gets -1"), 1, output)

    def preloaded_by_a_child(self, preload, **variables):
        """What a child of the trainer tells of its environment."""
        _, output, _ = start([WORLD / "bin/trainer_2.11.0"], preload, **variables)
        return [line.removeprefix("child: ") for line in output.splitlines() if line.startswith("child: ")]

    def test_hands_the_library_on_to_children(self):
        self.assertEqual(self.preloaded_by_a_child(PRELOAD), [str(PRELOAD)])

    def test_strips_children_when_told_to(self):
        self.assertEqual(self.preloaded_by_a_child(PRELOAD, SPILLWAY_CHILDREN="strip"), ["nothing preloaded"])

    def test_keeps_children_whose_files_are_those_of_a_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            told = self.preloaded_by_a_child(PRELOAD, SPILLWAY_CHILDREN="strip", SPILLWAY_PRIVATE_FILES=folder)
        self.assertEqual(told, [str(PRELOAD)])

    def test_strips_only_its_own_entry(self):
        other = WORLD / "torch_2.11.0/libtorch_cpu.so"
        told = self.preloaded_by_a_child(f"{PRELOAD}:{other}", SPILLWAY_CHILDREN="strip")
        self.assertEqual(told, [str(other)])

    def test_of_another_version_is_refused(self):
        code, output, errors = start([WORLD / "bin/trainer_2.13.1"], PRELOAD, SPILLWAY_ACTIVE="1")
        self.assertEqual((code, output), (2, ""))
        self.check_told(errors)

    def test_of_another_version_is_told_of_the_nearest_served(self):
        told = []
        for cores in (("2.15", "2.9", "2.12", "2.11"), ("2.12", "2.9"), ("2.15", "2.14")):
            preload = self.copy_of_installation(*cores)
            (preload.parent / "libspillway_core_2.13.so.old").touch()
            code, _, errors = start([WORLD / "bin/trainer_2.13.1"], preload, SPILLWAY_ACTIVE="1")
            self.assertEqual(code, 2)
            told.append(errors)
        self.check_told(*told)

    def test_of_another_version_runs_plainly_without_the_command(self):
        code, output, errors = start([WORLD / "bin/trainer_2.13.1"], PRELOAD)
        self.assertEqual(code, 7)
        self.check_told(output, errors)

    def test_of_unknown_version_is_refused(self):
        code, _, errors = start([WORLD / "bin/trainer_unknown"], PRELOAD, SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 2)
        self.check_told(errors)

    def test_gets_the_core_of_its_version(self):
        preload = self.copy_of_installation("2.11", "2.13")
        code, _, errors = start([WORLD / "bin/trainer_2.13.1"], preload, SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 2)  # The file is empty; what matters is which one was tried.
        self.check_told(errors.replace(str(preload.parent), "FOLDER"))

    def test_without_any_core_names_the_folder(self):
        preload = self.copy_of_installation()
        code, _, errors = start([WORLD / "bin/trainer_2.11.0"], preload, SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 2)
        self.check_told(errors.replace(str(preload.parent), "FOLDER"))

    def test_with_a_second_libtorch_is_refused(self):
        second = WORLD / "torch_second/libtorch_cpu.so"
        code, output, errors = start([WORLD / "bin/trainer_2.11.0"], f"{PRELOAD}:{second}",
                                     SPILLWAY_ACTIVE="1")
        self.assertEqual((code, output), (2, ""))
        self.check_told(errors)

    def test_with_a_core_linked_in_gets_no_second_one(self):
        core = WORLD / "lib/libspillway_core_2.11.so"
        _, output, _ = start([WORLD / "bin/trainer_2.11.0"], f"{PRELOAD}:{core}")
        self.assertEqual(output.count("core: loaded"), 1)


class LateProgram(PreloadCase):
    """A program that loads LibTorch while it runs, as Python does."""

    TORCH = WORLD / "torch_2.11.0/libtorch_cpu.so"
    MODULE = WORLD / "modules/libtorch_python.so"

    def test_gets_the_core_at_the_import(self):
        code, output, errors = start([WORLD / "bin/late_trainer", self.MODULE], PRELOAD)
        self.assertEqual((code, errors), (5, ""))
        self.assertEqual(output.splitlines(),
                         ["trainer: starts", "core: loaded", "core: a later version gets -1",
                          "core: registered 0", "torch: stub given",
                          "core: a thread started"])

    def test_passes_the_stub_on_where_no_core_fits(self):
        _, output, _ = start([WORLD / "bin/late_trainer", self.MODULE],
                             self.copy_of_installation("2.13"))
        self.assertEqual(output.splitlines(), ["trainer: starts", "torch: stub given"])

    def test_is_unchanged_before_it_loads_anything(self):
        plain = start([WORLD / "bin/late_trainer"])
        self.assertEqual(start([WORLD / "bin/late_trainer"], PRELOAD, SPILLWAY_ACTIVE="1"), plain)

    def test_says_so_when_libtorch_came_unseen(self):
        code, output, errors = start([WORLD / "bin/late_trainer", self.TORCH], PRELOAD,
                                     SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 5)
        self.check_told(output, errors)

    def test_gets_the_core_at_the_first_allocation(self):
        code, output, errors = start([WORLD / "bin/late_trainer", WORLD / "modules/libplugin.so"],
                                     PRELOAD, SPILLWAY_ACTIVE="1")
        self.assertEqual((code, errors), (5, ""))
        self.assertEqual(output.splitlines(),
                         ["trainer: starts", "core: loaded", "core: a later version gets -1",
                          "core: registered 0", "torch: allocator given",
                          "core: a thread started", "torch: allocator given",
                          "core: a thread started"])

    def test_of_another_version_is_refused_at_the_first_allocation(self):
        code, output, errors = start(
            [WORLD / "bin/late_trainer", WORLD / "torch_2.13.1/libtorch_cpu.so",
             WORLD / "modules/libplugin.so"], PRELOAD, SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 2)
        self.check_told(output, errors)

    def test_of_another_version_is_refused(self):
        # The module binds to whichever LibTorch has the name that it needs.
        code, _, errors = start(
            [WORLD / "bin/late_trainer", WORLD / "torch_2.13.1/libtorch_cpu.so", self.MODULE],
            PRELOAD, SPILLWAY_ACTIVE="1")
        self.assertEqual(code, 2)
        self.check_told(errors)


if __name__ == "__main__":
    unittest.main()
