"""Reads tensors past the operators in each way that Python has, under a core whose tensors are
absent. Prints a line for each: the way, what was announced, and what the program then read."""
import copy
import ctypes
import io
import os
import tempfile

import numpy
import torch

CORE = ctypes.CDLL(os.environ["ABSENT_CORE"], mode=os.RTLD_NOLOAD | os.RTLD_NOW)
CORE.absent_memory.restype = ctypes.c_void_p
CORE.absent_memory.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_float]
CORE.announcements.restype = ctypes.c_char_p
COUNT = 6


def absent(name="x", value=1.5):
    memory = CORE.absent_memory(name.encode(), COUNT * 4, value)
    return torch.frombuffer((ctypes.c_float * COUNT).from_address(memory), dtype=torch.float32)


def announced():
    return CORE.announcements().decode()


def report(way, element):
    """Reads an element of an absent tensor."""
    tensor = absent()
    value = element(tensor)
    print(f"{way}: {announced()} -> {value}")


def compare(way, tensors, save):
    """Writes an archive twice: while the tensors are absent, and while they are there."""
    absent_then = save(tensors)
    told = announced()
    CORE.bring_in_all()
    same = save(tensors) == absent_then
    print(f"{way}: {told} -> {'the same' if same else 'other'} bytes")


def refuse(way, act):
    try:
        print(f"{way}: not refused: {act(absent('refused'))}")
    except RuntimeError as error:
        print(f"{way}: {announced()} -> {error}")


def saved(given):
    archive = io.BytesIO()
    torch.save(given, archive)
    return archive.getvalue()


def saved_to_file(given):
    """Archives carry the name of their file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "archive.pt")
        torch.save(given, path)
        with open(path, "rb") as archive:
            return archive.read()


class Holder(torch.nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("x", tensor)

    def forward(self):
        return self.x


def scripted(module):
    archive = io.BytesIO()
    torch.jit.save(module, archive)
    return archive.getvalue()


def optimizer_of(tensor):
    parameter = torch.nn.Parameter(torch.ones(COUNT))
    optimizer = torch.optim.Adam([parameter])
    parameter.sum().backward()
    optimizer.step()
    optimizer.state[parameter]["exp_avg"] = tensor
    return optimizer.state_dict()


def main():
    report("numpy", lambda x: x.numpy()[1])
    report("numpy of a view", lambda x: x.view(2, 3).numpy()[1, 1])
    report("numpy by force", lambda x: x.requires_grad_().numpy(force=True)[1])
    report("array", lambda x: numpy.asarray(x)[1])
    report("dlpack", lambda x: numpy.from_dlpack(x)[1])
    report("old dlpack", lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))[1].item())
    report("tolist", lambda x: x.tolist()[1])
    report("tolist of conjugates", lambda x: torch.view_as_complex(x.view(3, 2)).conj().tolist()[1])
    report("item", lambda x: x[1].item())
    report("float", lambda x: float(x[1]))
    report("format", lambda x: f"{x[1]:.1f}")
    report("repr", lambda x: repr(x)[:14])
    report("deepcopy", lambda x: copy.deepcopy(x)[1].item())
    report("share_memory_", lambda x: x.share_memory_()[1].item())
    report("storage", lambda x: x.storage()[1])
    report("pointers as numbers", lambda x: x.data_ptr() == x.untyped_storage().data_ptr())
    refuse("numpy that is refused", lambda x: x.numpy())
    compare("save", absent(), saved)
    compare("save to a file", absent(), saved_to_file)
    compare("save of a view", absent()[2:4], saved)
    compare("save of a module", Holder(absent()).state_dict(), saved)
    compare("save of an optimizer", optimizer_of(absent("exp_avg")), saved)
    compare("save of a script", torch.jit.script(Holder(absent())), scripted)
    refuse("save that is refused", saved)


main()
