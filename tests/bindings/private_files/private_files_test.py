"""Programs whose files are a rank's own: they see what they would see, and nothing is there after."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from clean_environment import clean_environment
from slow_cases import slow

HERE = pathlib.Path(__file__).resolve().parent
PRELOAD = os.environ["SPILLWAY_TEST_PRELOAD"]
PROGRAM = os.environ["SPILLWAY_TEST_PROGRAM"]


def make_world(folder):
    """What the programs find."""
    for name in ("sub", "tree/branch", "empty", "mixed"):
        (folder / name).mkdir(parents=True)
    for name, text in {"log": "first line\n", "data": "some data\n", "page": "0123456789\n",
                       "old": "an old checkpoint\n", "target": "the target\n", "sub/inner": "inner\n",
                       "model.pt": "of the last run", "optimizer.pt": "",
                       "tree/leaf": "leaf\n", "tree/branch/leaf": "deep leaf\n", "mixed/one": "1\n",
                       "mixed/two": "2\n", "mixed/three": "3\n"}.items():
        (folder / name).write_text(text)
    (folder / "link").symlink_to("target")


def contents(folder):
    """All that is below a folder: kinds, modes, sizes, times and texts."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_mtime_ns, facts.st_ino, what)
    return found


class PrivateFilesCase(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        self.room = pathlib.Path(room.name).resolve()

    def world(self, name):
        folder = self.room / name
        folder.mkdir()
        make_world(folder)
        return folder

    def own_files(self):
        folder = self.room / "own"
        folder.mkdir()
        return folder

    def run_in(self, folder, command, **variables):
        outcome = subprocess.run(command, cwd=folder, env=clean_environment(**variables), text=True,
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def check(self, command, preload=PRELOAD):
        """Runs a program plainly and on files of its own; returns (exit code, output)."""
        plain = self.run_in(self.world("plain"), command)
        folder = self.world("seen")
        before = contents(folder)
        own = self.run_in(folder, command, LD_PRELOAD=str(preload),
                          SPILLWAY_PRIVATE_FILES=str(self.own_files()))
        self.assertEqual(own[1].splitlines(), plain[1].splitlines(), own[2])
        self.assertEqual(own[0], plain[0])
        if preload == PRELOAD:
            self.assertEqual(own[2], plain[2])
        self.assertEqual(contents(folder), before)
        self.assertNotEqual(contents(self.room / "plain"), before)
        return plain[:2]


class WhatProgramsSee(PrivateFilesCase):
    def test_a_program_in_cpp(self):
        code, output = self.check([PROGRAM])
        self.assertEqual(code, 0)
        self.assertGreater(len(output.splitlines()), 100)

    def test_a_program_in_python(self):
        code, output = self.check([sys.executable, str(HERE / "program.py")])
        self.assertEqual(code, 0)
        self.assertEqual([line for line in output.splitlines() if line.endswith("checkpoint 2")],
                         ["data checkpoint 2", "latest checkpoint 2", "copy checkpoint 2"])

    def test_a_shell(self):
        code, output = self.check(["bash", "-c", "cp -r tree copy; mv log log.1; echo x >log;"
                                      "cat log log.1; rm -r tree sub; find . | sort; tar cf - copy |"
                                      "tar tf - | sort; sed -i s/some/other/ data; cat data; du -a |"
                                      "cut -f2 | sort; ln -sf data link; cat link; touch new; ls"])
        self.assertEqual(code, 0)
        self.assertEqual(output.splitlines().count("other data"), 2, output)


class WhatTrainersSave(PrivateFilesCase):
    """A checkpoint over the one before, under the library alone: without a core it only says so."""

    def setUp(self):
        super().setUp()
        self.alone = shutil.copy(PRELOAD, self.room)

    def test_in_cpp(self):
        trainer = os.environ.get("SPILLWAY_TEST_SAVING_TRAINER")
        if not trainer:
            self.skipTest("this build has no LibTorch")
        code, output = self.check([trainer], self.alone)
        self.assertEqual((code, len(output.splitlines())), (0, 6))

    def test_in_python_with_forked_loaders(self):
        self.save_in_python("fork")

    @slow
    def test_in_python_with_loaders_started_anew(self):
        self.save_in_python("spawn")

    def save_in_python(self, context):
        python = os.environ.get("SPILLWAY_TEST_PYTHON", sys.executable)
        if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=False).returncode:
            self.skipTest(f"{python} cannot import torch (SPILLWAY_TEST_PYTHON names another interpreter)")
        code, output = self.check([python, str(HERE / "saving_trainer.py"), context], self.alone)
        self.assertEqual((code, len(output.splitlines())), (0, 5))


class WhatIsRefused(PrivateFilesCase):
    """A rank may do what it might do for real."""

    def test_to_a_user_without_rights(self):
        if os.geteuid() != 0:
            self.skipTest("another user is needed, whom root can be")
        script = ("import os, pathlib\n"
                  "def attempt(*words):\n"
                  "    try: print(words[1:], words[0](*words[1:]))\n"
                  "    except OSError as error: print(words[1:], error.errno)\n"
                  "write = lambda path: pathlib.Path(path).write_text('x')\n"
                  "read = lambda path: pathlib.Path(path).read_text()\n"
                  "for name in ('locked/new', 'locked/file', 'free/new', 'free/file', 'free/closed'):\n"
                  "    attempt(write, name); attempt(read, name)\n"
                  "attempt(os.mkdir, 'locked/folder'); attempt(os.unlink, 'locked/file')\n"
                  "attempt(os.rename, 'locked/file', 'free/x'); attempt(os.rename, 'free/new', 'locked/x')\n"
                  "attempt(os.chmod, 'free/file', 0o777); attempt(os.truncate, 'locked/file', 0)\n"
                  "attempt(os.rmdir, 'locked'); attempt(os.symlink, 'x', 'locked/link')\n"
                  "attempt(os.unlink, 'sticky/file'); attempt(write, 'sticky/new')\n"
                  "attempt(os.unlink, 'sticky/new'); attempt(os.unlink, 'free/closed')\n"
                  "attempt(os.access, 'locked', os.W_OK); attempt(lambda path: sorted(os.listdir(path)), 'free')\n")
        for folder in (self.room, *(self.room / name for name in ("plain", "seen"))):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        own = self.own_files()
        own.chmod(0o777)
        told = []
        for name, variables in (("plain", {}), ("seen", {"LD_PRELOAD": PRELOAD,
                                                         "SPILLWAY_PRIVATE_FILES": str(own)})):
            world = self.room / name
            for folder, mode in (("locked", 0o755), ("free", 0o777), ("sticky", 0o1777)):
                (world / folder).mkdir()
                (world / folder / "file").write_text("root's")
                (world / folder).chmod(mode)
            (world / "free/closed").write_text("root's")
            (world / "free/closed").chmod(0o600)
            before = contents(world)
            outcome = subprocess.run(["/usr/bin/python3", "-c", script], cwd=world, text=True, user=65534,
                                     group=65534, extra_groups=[], capture_output=True, timeout=120,
                                     env=clean_environment(**variables), check=False)
            self.assertEqual(outcome.stderr, "")
            told.append(outcome.stdout.splitlines())
            self.assertEqual(contents(world) == before, name == "seen")
        self.assertEqual(told[1], told[0])
        self.assertEqual(told[0][:2], ["('locked/new',) 13", "('locked/new',) 2"])


class WhatStaysShared(PrivateFilesCase):
    def diverted(self, command, **variables):
        folder = self.world("seen")
        variables.setdefault("SPILLWAY_PRIVATE_FILES", str(self.own_files()))
        code, output, errors = self.run_in(folder, command, LD_PRELOAD=PRELOAD, **variables)
        self.assertEqual((code, output, errors), (0, "", ""))
        return folder

    def test_is_what_ranks_of_open_mpi_meet_in(self):
        folder = self.diverted(["bash", "-c", "echo x >>sub/met; echo x >>private; mkdir sub/folder"],
                                  PMIX_SERVER_TMPDIR=str(self.room / "seen/sub"))
        self.assertEqual(sorted(path.name for path in (folder / "sub").iterdir()),
                         ["folder", "inner", "met"])
        self.assertFalse((folder / "private").exists())

    def test_is_memory_that_processes_share(self):
        name = f"/dev/shm/spillway-test-{os.getpid()}"
        self.diverted(["bash", "-c", f"echo shared >{name}"])
        self.addCleanup(os.remove, name)
        self.assertEqual(pathlib.Path(name).read_text(), "shared\n")

    def test_are_pipes_and_what_is_open(self):
        with open(self.room / "open", "w+") as file:
            outcome = subprocess.run(
                ["bash", "-c", f"echo open >&{file.fileno()}; echo link >/proc/self/fd/{file.fileno()};"
                 "mkfifo pipe; cat pipe & echo through >pipe; wait"], text=True,
                pass_fds=[file.fileno()], cwd=self.world("seen"), capture_output=True, timeout=120,
                env=clean_environment(LD_PRELOAD=PRELOAD, SPILLWAY_PRIVATE_FILES=str(self.own_files())))
        self.assertEqual((outcome.returncode, outcome.stdout), (0, "through\n"))
        self.assertEqual((self.room / "open").read_text(), "link\n")


if __name__ == "__main__":
    unittest.main()
