"""A trainer that closes all descriptors and opens its own files, by mapper and store."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment

COMMAND = pathlib.Path(os.environ["SPILLWAY_TEST_COMMAND"])
TRAINER = pathlib.Path(os.environ["SPILLWAY_TEST_CLOSING_TRAINER"])
LINKED_TRAINER = pathlib.Path(os.environ["SPILLWAY_TEST_LINKED_TRAINER"])
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
MAPPERS = ["userfaultfd", "userfaultfd-user", "signal", "copy"]
STORES = ["posix", "io_uring"]
BUDGET = "20MiB"  # Of some 60.
ABSENT = ["userfaultfd cannot be opened", "userfaultfd is missing", "needs privilege",
          "Linux 6.8 or newer", "io_uring is"]


class ClosedDescriptors(unittest.TestCase):
    """Same results as plain, and no byte in a file of the program; which it finds out itself."""

    @classmethod
    def setUpClass(cls):
        WORK.mkdir(parents=True, exist_ok=True)
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=WORK, prefix="run-")).resolve()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        plain = cls.run_in("plain", [TRAINER])
        assert plain.returncode == 0, plain.stderr
        cls.results = (cls.root / "plain" / "results").read_text()

    @classmethod
    def run_in(cls, name, command, **variables):
        folder = cls.root / name
        (folder / "spill").mkdir(parents=True)
        return subprocess.run([str(word) for word in command], cwd=folder, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, timeout=120, check=False,
                              env=clean_environment(HOME=str(cls.root), **variables),
                              capture_output=True)

    def command(self, *options, spill="spill"):
        return [COMMAND, "run", "--budget", BUDGET, "--nvme", spill, "--stats", "stats.json",
                *options, "--", TRAINER]

    def require_equal(self, name, command, **variables):
        run = self.run_in(name, command, **variables)
        if run.returncode != 0 and any(words in run.stderr for words in ABSENT):
            self.skipTest(run.stderr.strip())
        self.assertEqual(run.returncode, 0, run.stderr)
        folder = self.root / name
        self.assertEqual((folder / "results").read_text(), self.results, run.stderr)
        statistics = json.loads((folder / "stats.json").read_text())
        self.assertGreater(statistics["spilled_bytes"], 0)
        self.assertGreater(statistics["fetched_bytes"], 0)

    def test_keep_their_bytes_under_every_mapper_and_store(self):
        for mapper in MAPPERS:
            for store in STORES:
                with self.subTest(mapper=mapper, store=store):
                    self.require_equal(f"{mapper}_{store}",
                                       self.command("--mapper", mapper, "--store", store))

    def test_keep_their_bytes_with_two_directories_and_checksums(self):
        second = self.root / "second"
        second.mkdir()
        self.require_equal("both", self.command("--store", "posix", "--verify",
                                                spill=f"spill,{second}"))

    def test_keep_their_bytes_with_the_runtime_linked_in(self):
        settings = {"BUDGET": BUDGET, "NVME": "spill", "STATS": "stats.json",
                    "MAPPER": "signal", "STORE": "posix"}
        self.require_equal("linked", [LINKED_TRAINER],
                           **{f"SPILLWAY_{name}": value for name, value in settings.items()})

    def test_are_not_those_that_are_printed_to_when_nothing_was_open_at_first(self):
        closed = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
        for mapper, store in [("userfaultfd", "io_uring"), ("signal", "posix")]:
            with self.subTest(mapper=mapper, store=store):
                self.require_equal(f"unopened_{store}",
                                   [*closed, *self.command("--mapper", mapper, "--store", store),
                                    "only-trains"])


if __name__ == "__main__":
    unittest.main()
