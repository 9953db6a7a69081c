"""LibTorch's allocator under another name forwards each function that LibTorch's has: one that is left out would
refuse, or do nothing."""
import os
import pathlib
import re
import unittest

INCLUDE = pathlib.Path(os.environ["SPILLWAY_TEST_TORCH_INCLUDE"])
OURS = pathlib.Path(__file__).resolve().parents[3] / "bindings/torch_cuda/forwarding_allocator.h"
# From the root down to what LibTorch's allocator of CUDA is.
CLASSES = (("c10/core/Allocator.h", "struct C10_API Allocator {"),
           ("c10/core/CachingDeviceAllocator.h", "struct C10_API DeviceAllocator :"),
           ("c10/cuda/CUDACachingAllocator.h", "class CUDAAllocator :"))
VIRTUAL = re.compile(r"\bvirtual\s+(?!~)[^;{(]*?(\w+)\s*\(")
# "name(arguments) override { return native_.name(", where an argument may have a default {0, 0}.
FORWARDED = re.compile(r"\b(\w+)\((?:[^{}]|\{0, 0\})*\)(?: const)? override \{\s*(?:return )?native_\.(\w+)\(")


def body_of(text, beginning):
    """What lies between the braces of a class."""
    start = text.index("{", text.index(beginning))
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 1:end]
    raise AssertionError(f"no end of {beginning}")


class ForwardingAllocator(unittest.TestCase):
    def test_forwards_each_function(self):
        forwarded = FORWARDED.findall(OURS.read_text(encoding="utf-8"))
        self.assertEqual([pair for pair in forwarded if pair[0] != pair[1]], [])
        for file, beginning in CLASSES:
            functions = VIRTUAL.findall(body_of((INCLUDE / file).read_text(encoding="utf-8"), beginning))
            self.assertGreaterEqual(len(functions), 4, file)
            self.assertEqual(set(functions) - {name for name, _ in forwarded}, set(), file)


if __name__ == "__main__":
    unittest.main()
