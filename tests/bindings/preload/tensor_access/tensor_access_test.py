"""What a program reads past the operators is announced to the core before it is read."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

from clean_environment import clean_environment
from torch_of_python import reason_to_skip

HERE = pathlib.Path(__file__).parent
TRAINER = pathlib.Path(os.environ["SPILLWAY_TEST_TRAINER"])
CORE = pathlib.Path(os.environ["SPILLWAY_TEST_CORE"])
LINKED_CORE = pathlib.Path(os.environ["SPILLWAY_TEST_LINKED_CORE"])
LIBTORCH = pathlib.Path(os.environ["SPILLWAY_TEST_LIBTORCH"])
MINOR = int(CORE.stem.rpartition(".")[2])
PRELOAD = CORE.parent / "libspillway_preload.so"
PYTHON = os.environ.get("SPILLWAY_TEST_PYTHON", sys.executable)


def lines_of(*command):
    """What a program says: for each way to read, what was announced and what it then read."""
    environment = clean_environment(LD_PRELOAD=str(PRELOAD), ABSENT_CORE=str(CORE))
    outcome = subprocess.run([str(word) for word in command], env=environment, text=True, check=False,
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    if outcome.returncode != 0:
        raise AssertionError(f"exit code {outcome.returncode}:\n{outcome.stdout}{outcome.stderr}")
    return dict(line.split(": ", 1) for line in outcome.stdout.splitlines())


def skip_without_python(case):
    reason = reason_to_skip(PYTHON, TRAINER)
    if reason:
        case.skipTest(reason)


def exported_by(library):
    listing = subprocess.run([os.environ["SPILLWAY_TEST_NM"], "-D", "--defined-only", str(library)],
                             text=True, capture_output=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in listing.stdout.splitlines()}


class Symbols(unittest.TestCase):
    """The functions that stand before LibTorch's."""

    OF_PYTHON = {"_ZN5torch5utils15tensor_to_numpyERKN2at6TensorEb",
                 "_ZN5torch7tensors26initialize_python_bindingsEv"}

    @staticmethod
    def is_of_another_release(name):
        """Whether this LibTorch has no function of that name."""
        if "const_data_ptrI" in name and (MINOR == 11) != ("Li0E" in name):
            return True
        if name.endswith(("DLTensorb", "toDLPackVersionedReadOnlyERKNS_6TensorE")):
            return MINOR < 14
        if name.endswith("DLTensor"):
            return MINOR >= 14
        return MINOR < 14 and "complexINS2_8BFloat16E" in name

    @staticmethod
    def taken_by(library):
        return {name for name in exported_by(library)
                if re.match(r"_ZNK?(2at|3c10|5torch|6caffe2)|aoti_|torch_", name)}

    def test_all_typed_pointers_are_taken(self):
        pointers = re.compile(r"_ZNK2at10TensorBase\d+(const_|mutable_)?data_ptrI")
        typed = {name for name in exported_by(LIBTORCH) if pointers.match(name)}
        self.assertGreater(len(typed), 100)
        self.assertEqual(typed - exported_by(PRELOAD), set())

    def test_each_is_in_libtorch_or_known_to_be_absent(self):
        taken = self.taken_by(PRELOAD) - self.OF_PYTHON
        there = exported_by(LIBTORCH) | exported_by(LIBTORCH.parent / "libc10.so")
        self.assertEqual(taken - there, {name for name in taken if self.is_of_another_release(name)})

    def test_the_python_part_has_its_own(self):
        skip_without_python(self)
        folder = subprocess.run([PYTHON, "-c", "import torch; print(torch.__path__[0])"], text=True,
                                capture_output=True, check=True).stdout.strip()
        library = pathlib.Path(folder) / "lib/libtorch_python.so"
        self.assertEqual(self.OF_PYTHON - exported_by(library), set())
        self.assertEqual(self.OF_PYTHON - exported_by(PRELOAD), set())

    def test_a_core_that_is_linked_in_takes_the_same(self):
        missing = self.taken_by(PRELOAD) - exported_by(LINKED_CORE)
        loading = {"_ZN3c1015GetCPUAllocatorEv",
                   "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE"}
        self.assertEqual(missing, loading)


class Programs(unittest.TestCase):
    """Memory that may not be touched before it has been announced."""

    maxDiff = None

    def test_in_cpp_announce_what_they_read(self):
        self.assertEqual(lines_of(TRAINER), {
            "data_ptr<float>": "x to write -> 1.5",
            "mutable_data_ptr<float>": "x to write -> 1.5",
            "const_data_ptr<float>": "x to read -> 1.5",
            "const_data_ptr<const float>": "x to read -> 1.5",
            "accessor<float>": "x to write -> 1.5",
            "accessor<const float>": "x to read -> 1.5",
            "packed_accessor64<float>": "x to write -> 1.5",
            "of a view": "x to write -> 1.5",
            "of another type": "x to write -> refused by LibTorch",
            "refused": " -> it is nowhere",
            "toDLPack": "x to write -> 1.5",
            "toDLPackVersioned": "x to write -> 1.5",
            "toDLPackNonOwning": "x to write -> 1.5",
            "aoti_torch_get_data_ptr": "x to write -> 1.5",
            "torch_get_mutable_data_ptr": "x to write -> 1.5",
            "torch_get_const_data_ptr": "x to read -> 1.5",
            "untyped pointers": " -> equal",
            "item": "x by aten::item -> 1.5",
            "operator<<": "x by aten::_to_copy -> 1.5",
            "save of a tensor": "x as a tensor -> the same bytes",
            "save of a view": "x as a tensor -> the same bytes",
            "pickle_save": "x as a tensor -> the same bytes",
            "save of a module": "weight as a tensor; bias as a tensor -> the same bytes",
            "save of an optimizer": "exp_avg as a tensor -> the same bytes",
            "save that is refused": " -> it is nowhere",
        })

    def test_in_python_announce_what_they_read(self):
        skip_without_python(self)
        self.assertEqual(lines_of(PYTHON, "-W", "ignore", HERE / "absent_program.py"), {
            "numpy": "x to write -> 1.5",
            "numpy of a view": "x to write -> 1.5",
            "numpy by force": "x to write -> 1.5",
            "array": "x to write -> 1.5",
            "dlpack": "x to write -> 1.5",
            "old dlpack": "x to write -> 1.5",
            "tolist": "x to read -> 1.5",
            "tolist of conjugates": "x by aten::clone -> (1.5-1.5j)",
            "item": "x by aten::item -> 1.5",
            "float": "x by aten::item -> 1.5",
            "format": "x by aten::item -> 1.5",
            "repr": "x by aten::isfinite -> tensor([1.5000",
            "deepcopy": "x by aten::copy_ -> 1.5",
            "share_memory_": "x by aten::copy_ -> 1.5",
            "storage": "x by aten::item -> 1.5",
            "pointers as numbers": " -> True",
            "numpy that is refused": " -> it is nowhere",
            "save": "x as 24 bytes -> the same bytes",
            "save to a file": "x as 24 bytes -> the same bytes",
            "save of a view": "x as 24 bytes -> the same bytes",
            "save of a module": "x as 24 bytes -> the same bytes",
            "save of an optimizer": "exp_avg as 24 bytes -> the same bytes",
            "save of a script": "x as a tensor -> the same bytes",
            "save that is refused": " -> it is nowhere",
        })
