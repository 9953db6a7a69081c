"""What a user gets who gives a GPU too little, or has a GPU that can or does not do its part: a sentence and an end, or
the same bits."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import golden
from clean_environment import clean_environment
from small_gpu import SMALL_GPU

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "src/cmake/setup"))
from budget_text import as_option, smallest_budget_in  # noqa: E402  pylint: disable=wrong-import-position

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_CUDA_TRAINER"]
COMPILER = os.environ["SPILLWAY_TEST_COMPILER"]
LIBRARIES = os.environ["SPILLWAY_TEST_EMULATED"] + "/nvidia/cu13/lib"
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
MIB = 1 << 20
LITTLE = 14 * MIB  # What the largest operator of the convolutional net needs, and little more.
TRAINING = ("conv_net", "3")
# What a process with the wheel of another CUDA sees: no runtime of 13, and one of 12 that tells its release.
OLDER_RUNTIME = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int cudaRuntimeGetVersion(int* version) { *version = 12080; return 0; }
void* dlopen(const char* name, int flags) {
  void* (*next)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  return name && !strcmp(name, "libcudart.so.13") ? 0 : next(name, flags);
}
"""


class CudaRefusals(unittest.TestCase):
    def setUp(self):
        WORK.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, before, training, settings):
        """A hang fails: nothing here takes minutes."""
        return subprocess.run([*before, TRAINER, *training], capture_output=True, text=True, check=False,
                              env={**clean_environment(), **SMALL_GPU, **settings}, timeout=300)

    def run_with(self, budget, ram="16MiB", limit="", training=TRAINING, **settings):
        return self.start([COMMAND, "run", "--budget", f"cuda={as_option(budget)},cpu=4GiB", "--min-storage", "32KiB",
                           "--nvme", f"ram:{ram},{self.folder}{limit}", "--stats", str(self.statistics_file())],
                          training, settings)

    def run_by_shell(self, training):
        """It does not tell that its program uses GPUs: what is wrong shows at the first tensor there."""
        return self.start([COMMAND, "run", "--budget", "cuda=16GiB,cpu=4GiB", "--nvme", self.folder, "--", "/bin/sh",
                           "-c", 'exec "$0" "$@"'], training, {})

    def statistics_file(self):
        return self.folder / "statistics.json"

    def check_told(self, *runs, more=()):
        """The errors, and warnings of GPUs, of this case are those of its part of texts/told.txt."""
        told = [line for run in runs for line in run.stderr.splitlines()]
        # The folder first: a temporary name may have "cuda" in it.
        told, more = ([golden.masked(text, (str(self.folder), "FOLDER")) for text in texts] for texts in (told, more))
        lines = [line for line in told if re.search(r"\] (error: |warning: .*cuda)", line, re.IGNORECASE)]
        golden.check_part(self, *lines, *more)

    def assert_refused(self, run):
        """It has ended by itself, and trained no step wrongly."""
        self.assertNotEqual(run.returncode, 0, run.stderr)
        plain = self.start([], TRAINING, {}).stdout
        self.assertTrue(plain.startswith(run.stdout), f"{run.stdout} is not how this begins:\n{plain}")

    def assert_equal_though_paged(self, run):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, self.start([], TRAINING, {}).stdout)
        gpu, = json.loads(self.statistics_file().read_text(encoding="utf-8"))["devices"]
        self.assertGreater(gpu["fetched_bytes"], 0)

    def assert_one_line(self, run, code=2, written=""):
        self.assertEqual((run.returncode, run.stdout), (code, written), run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)

    def test_a_budget_larger_than_the_card(self):
        runs = [self.run_with(16 << 30)]
        self.assert_one_line(runs[0])
        # What the program has written until then, and what it does at its end, is not lost.
        for training, written, code in ((TRAINING, "", 2), (("writing",), "begun\nat exit\n", 2),
                                        (("catching",), "begun\ncaught\nat exit\n", 3)):
            runs.append(self.run_by_shell(training))
            if written:
                self.assert_one_line(runs[-1], code, written)
            self.assertEqual((runs[-1].returncode, runs[-1].stdout), (code, written), runs[-1].stderr)
        self.check_told(*runs)

    def test_a_budget_of_a_gpu_that_is_not_there(self):
        """It is refused before the start, not told when hours have passed."""
        run = self.start([COMMAND, "run", "--budget", "cuda=48MiB,cuda:5=32MiB,cpu=4GiB", "--nvme", self.folder],
                         TRAINING, {"EMU_CUDA_DEVICES": "2"})
        self.assert_one_line(run)
        self.check_told(run)

    def test_more_ranks_than_gpus_share_them_out_where_all_see_the_same(self):
        """Of torchrun, which tells no process what the others use."""
        ranks = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "::1",
                 "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "none"}
        origins = []
        warning = "where some share cuda:0, each takes 7.00 GiB of it for its own"
        set_by_wrapper = ("/bin/sh", "-c", 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec "$@"', "sh")
        below_wrapper = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
        for gpus, before, is_warned in (("4", (), False), ("2", (), False), ("2", below_wrapper, False),
                                        ("4", set_by_wrapper, True)):
            run = self.start([*before, COMMAND, "run", "--budget", "cuda=auto,cpu=4GiB", "--nvme", self.folder,
                              "--stats", self.statistics_file()], TRAINING, {"EMU_CUDA_DEVICES": gpus, **ranks})
            self.assertEqual(run.returncode, 0, run.stderr)
            gpu, = json.loads(self.statistics_file().read_text(encoding="utf-8"))["devices"]
            origins.append(gpu["budget_origin"])
            self.assertEqual(warning in run.stderr, is_warned, run.stderr)
        golden.check_part(self, *origins)

    def test_no_gpu_that_can_be_used(self):
        """The trainer takes the CPU then, as it does without the command."""
        runs = []
        for settings in ({"EMU_CUDA_DRIVER": "0"}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "9"}):
            plain = self.start([], TRAINING, settings)
            self.assertEqual(plain.returncode, 0, plain.stderr)
            self.assertNotIn("peak", plain.stderr)
            run = self.run_with(LITTLE, training=TRAINING, **settings)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stdout, plain.stdout)
            self.assertNotIn("error", run.stderr)
            runs.append(run)
            statistics = json.loads(self.statistics_file().read_text(encoding="utf-8"))
            self.assertEqual(statistics["devices"], [])
        self.check_told(*runs)

    def test_a_libtorch_for_another_cuda(self):
        runtime = self.folder / "libcudart.so.12"
        subprocess.run([COMPILER, "-shared", "-fPIC", f"-Wl,-soname,{runtime.name}", "-o", runtime, "-x", "c", "-"],
                       input=OLDER_RUNTIME, text=True, check=True)
        # What opens libraries now is not LibTorch, which knows where they are.
        run = self.run_with(LITTLE, LD_PRELOAD=str(runtime), LD_LIBRARY_PATH=LIBRARIES)
        self.assert_refused(run)
        self.check_told(run)

    def test_gpus_in_another_order(self):
        run = self.run_with(LITTLE, EMU_CUDA_DEVICES="2", CUDA_VISIBLE_DEVICES="1,0")
        self.assert_equal_though_paged(run)
        gpu, = json.loads(self.statistics_file().read_text(encoding="utf-8"))["devices"]
        self.assertEqual((gpu["device"], gpu["device_name"]), ("cuda:0", "Emulated GPU 1"))

    def test_a_gpu_that_is_older_than_cuda(self):
        run = self.run_with(LITTLE, EMU_CUDA_CC="7.0")
        self.assert_refused(run)
        self.check_told(run)

    def test_a_tensor_for_other_processes(self):
        run = self.run_with(LITTLE, training=("shared",))
        self.assert_refused(run)
        golden.check_part(self, run.stderr[run.stderr.index("Spillway moves"):].splitlines()[0])

    def test_a_core_without_its_part_for_cuda(self):
        """A budget of a GPU is refused; without one the trainer runs, and the warning tells what to build."""
        for folder in ("bin", "lib"):
            (self.folder / folder).mkdir()
        command = self.folder / "bin/spillway"
        command.hardlink_to(COMMAND)  # A link of names would lead to the libraries beside the real one.
        for library in (pathlib.Path(COMMAND).parents[1] / "lib").glob("libspillway_*.so"):
            if not library.name.endswith("_cuda.so"):
                (self.folder / "lib" / library.name).symlink_to(library)
        run = self.start([command, "run", "--budget", "cuda=48MiB"], TRAINING, {})
        self.assert_refused(run)
        unlimited = self.start([command, "run"], TRAINING, {})
        self.assertEqual((unlimited.returncode, unlimited.stdout), (0, self.start([], TRAINING, {}).stdout))
        said = subprocess.run([command, "doctor", "--skip-disks", "--json", "--", TRAINER], capture_output=True,
                              text=True, check=False, env=clean_environment())
        self.assertEqual(said.returncode, 1, said.stdout + said.stderr)
        check, = (each for each in json.loads(said.stdout)["checks"] if each["subject"] == "CUDA tensors")
        self.assertEqual(check["verdict"], "problem", check)
        self.check_told(run, unlimited, more=(check["value"], check["mend"]))

    def test_a_budget_too_small_for_any_gpu_is_told_before_the_start(self):
        run = self.run_with(16384)
        self.assert_one_line(run)
        self.check_told(run)

    def test_a_gpu_without_virtual_memory(self):
        run = self.run_with(LITTLE, EMU_CUDA_VIRTUAL="0")
        self.assert_refused(run)
        self.check_told(run)

    def test_a_budget_that_the_largest_operator_exceeds_and_the_one_that_is_named(self):
        refused = self.run_with(3 * MIB)
        self.assert_refused(refused)
        self.check_told(refused)
        self.assertNotIn("piece by piece", refused.stderr)
        smallest, said = 0, refused
        while said.returncode != 0:  # Larger operators may follow the one that was refused.
            self.assertGreater(smallest_budget_in(said.stderr), smallest)
            smallest = smallest_budget_in(said.stderr)
            said = self.run_with(smallest)
        self.assert_equal_though_paged(said)

    def test_host_memory_that_cannot_be_pinned(self):
        run = self.run_with(LITTLE, EMU_CUDA_PINNED="8MiB")
        self.check_told(run)
        self.assert_equal_though_paged(run)

    def test_a_full_disk_behind_full_host_memory(self):
        run = self.run_with(LITTLE, ram="4MiB", limit=":2MiB")
        self.assert_refused(run)
        run.stderr = golden.without(run.stderr, (r"needed for aten::\w+\(.*?\)\.", "needed for OPERATOR."))
        self.check_told(run)

    def test_a_gpu_that_is_lost(self):
        run = self.run_with(LITTLE, training=(*TRAINING, "1"))
        self.assert_refused(run)
        self.assertIn("ECC", run.stderr)


if __name__ == "__main__":
    unittest.main()
