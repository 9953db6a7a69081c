"""What `spillway doctor` says of GPUs, on the emulated CUDA."""
import json
import os
import pathlib
import subprocess
import unittest

import golden
from command_case import COMMAND, CommandCase
from mpi_launchers import RANKS_ALLOWED, mpi_launcher

EMULATED = pathlib.Path(os.environ["SPILLWAY_TEST_EMULATED"])
PROGRAM = os.environ["SPILLWAY_TEST_CUDA_PROGRAM"]
SUBJECTS = ["CUDA", "cuda:0", "cuda:1", "budget of cuda:0", "budget of cuda:1", "GPUDirect", "NCCL"]


class GpuDoctor(CommandCase):
    def checks(self, *words, **variables):
        """The findings about CUDA, by subject."""
        self.command = COMMAND  # Its core is a real one.
        self.status, output, errors = self.spillway("doctor", "--skip-disks", "--nvme", self.root / "work", "--json",
                                                    *words, **{"EMU_CUDA_DEVICES": "2", **variables})
        self.assertEqual(errors, "")
        return {check["subject"]: check for check in json.loads(output)["checks"]
                if check["subject"].lower().startswith(("cuda", "budget of cuda", "gpudirect", "nccl"))}

    def of_folder(self, **variables):
        return self.checks(SPILLWAY_LIBTORCH_DIR=str(EMULATED / "torch"), **variables)

    def test_lists_the_gpus_of_the_libtorch_that_was_found(self):
        found = self.of_folder(EMU_CUDA_MEMORY="3GiB", CUDA_VISIBLE_DEVICES="1,0")
        self.assertEqual(list(found), SUBJECTS)
        self.assertEqual(found["CUDA"]["value"], "13.0; the driver serves up to 13.0")
        self.check_told(found["GPUDirect"]["value"],
                        golden.without(found["NCCL"]["value"], (r"/\S*/libnccl.so.2$", "LIBRARY")))
        self.assertEqual(found["cuda:0"]["value"],
                         "Emulated GPU 1 (8.0), 3.00 GiB of 3.00 GiB free, 0000:02:00.0, reaches cuda:1 directly, "
                         "virtual memory")
        self.assertEqual({check["verdict"] for check in found.values()}, {"ok"})

    def test_lists_the_gpus_of_a_program(self):
        self.assertEqual(list(self.checks("--", PROGRAM)), SUBJECTS)

    def test_lists_the_gpus_of_a_trainer_in_python(self):
        self.assertEqual(list(self.checks("--", "python3", "train.py", PYTHONPATH=str(EMULATED))), SUBJECTS)

    def test_tells_the_budget_of_each_gpu(self):
        found = self.of_folder(EMU_CUDA_MEMORY="16GiB")
        self.assertEqual(found["budget of cuda:1"]["value"],
                         "15.0 GiB (auto: 16.0 GiB free of 16.0 GiB, less 1.00 GiB reserve)")
        found = self.checks("--budget", "cuda:0=4GiB", SPILLWAY_LIBTORCH_DIR=str(EMULATED / "torch"))
        self.assertEqual(found["budget of cuda:0"]["value"], "4.00 GiB (given)")

    def test_warns_ranks_that_are_more_than_the_gpus(self):
        words = [mpi_launcher(self, "MPICH"), "-n", "3", str(COMMAND), "doctor", "--skip-disks", "--nvme",
                 str(self.root / "work"), "--json"]
        variables = {"EMU_CUDA_DEVICES": "2", "SPILLWAY_LIBTORCH_DIR": str(EMULATED / "torch"), **RANKS_ALLOWED}
        mends = []
        for visible in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
            run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300,
                                 env=self.environment({**variables, **visible}))
            report = json.loads(run.stdout[run.stdout.index("{"):run.stdout.rindex("}") + 1])
            ranks, = (check for check in report["checks"] if check["subject"] == "ranks")
            mends.append(ranks["mend"])
        self.assertEqual(mends[1], "")
        self.check_told(golden.without(mends[0], golden.HOST))

    def test_tells_a_slice_of_a_gpu(self):
        found = self.of_folder(EMU_CUDA_DEVICES="1", EMU_CUDA_NAME="NVIDIA H100 MIG 1g.10gb")
        self.assertEqual(found["cuda:0"]["value"],
                         "NVIDIA H100 MIG 1g.10gb (8.0), 8.00 GiB of 8.00 GiB free, a MIG slice (NCCL may refuse ranks "
                         "on slices of one GPU), 0000:01:00.0, virtual memory")
        self.assertEqual(found["cuda:0"]["verdict"], "ok")

    def test_says_whether_gpus_move_files_themselves(self):
        proven = {"CUFILE_ALLOW_COMPAT_MODE": "false"}
        self.assertEqual(self.of_folder(**proven)["GPUDirect"]["value"],
                         "cuFile moves pages between GPUs and disks that it serves")
        self.assertEqual(self.of_folder(EMU_CUFILE_FAULTS="open", **proven)["GPUDirect"]["value"],
                         "off, pages go through host memory: libcufile.so.0 cannot be opened: its driver is not loaded "
                         "(nvidia-fs) (cuFile error 5001)")

    def test_knows_the_runtime_of_a_zip_archive_of_libtorch(self):
        folder = self.root / "zip/lib"
        folder.mkdir(parents=True)
        runtime = (EMULATED / "nvidia/cu13/lib/libcudart.so.13").read_bytes()
        renamed = folder / "libcudart-12.so"  # As long as the name that it has in itself.
        renamed.write_bytes(runtime.replace(b"libcudart.so.13\0", b"libcudart-12.so\0"))
        subprocess.run([os.environ["SPILLWAY_TEST_COMPILER"], "-shared", "-o", folder / "libtorch_cuda.so", "-x", "c",
                        "/dev/null", "-x", "none", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", renamed], check=True)
        (folder / "libtorch_cpu.so").symlink_to(EMULATED / "torch/lib/libtorch_cpu.so")
        found = self.checks(SPILLWAY_LIBTORCH_DIR=str(folder.parent))
        self.assertEqual(found["CUDA"]["value"], "13.0; the driver serves up to 13.0")
        self.assertEqual(list(found)[:3], ["CUDA", "cuda:0", "cuda:1"])

    def test_names_a_libtorch_for_another_cuda(self):
        folder = self.root / "cu12/lib"
        folder.mkdir(parents=True)
        compiler = [os.environ["SPILLWAY_TEST_COMPILER"], "-shared", "-x", "c", "/dev/null", "-x", "none"]
        runtime = folder / "libcudart.so.12"
        subprocess.run([*compiler, "-o", runtime, f"-Wl,-soname,{runtime.name}"], check=True)
        subprocess.run([*compiler, "-o", folder / "libtorch_cuda.so", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN",
                        runtime], check=True)
        (folder / "libtorch_cpu.so").symlink_to(EMULATED / "torch/lib/libtorch_cpu.so")
        found = self.checks(SPILLWAY_LIBTORCH_DIR=str(folder.parent))
        self.assertEqual(list(found), ["CUDA"])
        self.assertEqual(found["CUDA"]["verdict"], "warning")
        self.assertEqual(found["CUDA"]["value"], "no GPU can be used; trainers run on the CPU")
        self.assertEqual(found["CUDA"]["mend"], "the program uses libcudart.so.12, and this version of Spillway serves "
                         "CUDA 13: take a LibTorch that was built for CUDA 13 (cu130)")

    def test_gives_one_reason_where_there_are_none(self):
        reasons = []
        for variables in ({"EMU_CUDA_DRIVER": "0"}, {"EMU_CUDA_DRIVER": "12.8"}, {"EMU_CUDA_DEVICES": "0"},
                          {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "9"}):
            found = self.of_folder(**variables)
            self.assertEqual(list(found), ["CUDA"], variables)
            self.assertEqual(found["CUDA"]["verdict"], "warning")
            self.assertEqual(found["CUDA"]["value"], "no GPU can be used; trainers run on the CPU")
            reasons.append(found["CUDA"]["mend"])
        self.check_told(*reasons)

    def test_calls_it_a_problem_where_gpus_are_asked_for(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        torch = {"SPILLWAY_LIBTORCH_DIR": str(EMULATED / "torch")}
        of_cpu = {"SPILLWAY_LIBTORCH_DIR": os.environ["SPILLWAY_TEST_LIBTORCH"], "PATH": "/none"}
        values = []
        for words, variables in ((("--budget", "cuda=4GiB"), {**torch, "EMU_CUDA_DRIVER": "0"}),
                                 (("--budget", "cuda=4GiB"), {**torch, **hidden}),
                                 (("--", PROGRAM, "--device", "cuda:0"), {"EMU_CUDA_DRIVER": "12.8"}),
                                 (("--", PROGRAM), hidden), (("--budget", "cuda=4GiB"), of_cpu)):
            check = self.checks(*words, **variables)["CUDA"]
            self.assertEqual(check["verdict"], "problem", words)
            values.append(check["value"])
            self.assertNotEqual(check["mend"], "")
            self.assertEqual(self.status, 1)
        self.check_told(*values)
        for words in (("--", PROGRAM), ("--budget", "cpu=4GiB", "--", PROGRAM)):
            variables = {} if len(words) == 2 else hidden
            check = self.checks(*words, EMU_CUDA_DEVICES="0", **variables)["CUDA"]
            self.assertEqual(check["verdict"], "warning", words)

    def test_outlives_a_driver_that_crashes(self):
        check = self.of_folder(EMU_CUDA_GRAIN="odd")["CUDA"]  # Ends the process.
        self.assertEqual(check["verdict"], "problem")
        self.check_told(check["value"].replace(str(EMULATED), "EMULATED"), check["mend"])

    def test_says_nothing_of_cuda_where_libtorch_has_none(self):
        folder = pathlib.Path(os.environ["SPILLWAY_TEST_LIBTORCH"])
        self.assertEqual(self.checks(SPILLWAY_LIBTORCH_DIR=str(folder), PATH="/none"), {})


if __name__ == "__main__":
    unittest.main()
