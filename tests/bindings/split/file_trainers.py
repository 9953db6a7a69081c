"""Trainers that write and read files. Run by python_trainers.py."""
import concurrent.futures
import copy
import ctypes
import os
import sys
import tempfile
import uuid

import torch
from torch import nn
from trainer_parts import WIDTH, layers, loss_of, tell_model, train, train_and_tell


def saves(file="checkpoint.pt", steps="2"):
    """Goes on from `file` where there is one."""
    import os
    model = layers(4, nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    first = 0
    if os.path.exists(file):
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["generator"])
        first = state["step"]
    train(model, optimizer, steps=int(steps))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": first + int(steps),
                "generator": torch.get_rng_state()}, file)
    tell_model(model, optimizer)


def saves_large():
    """16 MiB each by a path, by Python's files, and over an older file. Then it goes on from what it has saved."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wide = {"micro_batches": 1, "steps": 1, "loss": lambda model: model(torch.randn(4, 1024)).square().mean()}
    train(model, optimizer, **wide)
    torch.save(model.state_dict(), "by_path.pt")
    for name, buffering in (("buffered.pt", -1), ("plain.pt", 0)):
        with open(name, "wb", buffering=buffering) as file:
            torch.save(model.state_dict(), file)
    os.replace("plain.pt", "old.pt")
    train(model, optimizer, **wide)
    with open("old.pt", "r+b") as file:
        torch.save(model.state_dict(), file)
    for name in ("by_path.pt", "buffered.pt", "old.pt"):
        facts = os.stat(name)
        print(f"[spillway] {name} {facts.st_size} {facts.st_blocks * 512}", file=sys.stderr)
        model.load_state_dict(torch.load(name))
        train(model, optimizer, **wide)
    tell_model(model)


def loads_by_a_name_of_its_own():
    """As Lightning keeps what a search for a learning rate has begun with."""
    model = nn.Sequential(nn.Linear(WIDTH, 1024), nn.Linear(1024, 4))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, f"{uuid.uuid4()}.pt")
        torch.save(model.state_dict(), file)
        model.load_state_dict(torch.load(file))
        train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1))


def loads_what_each_rank_has_written():
    """A cache whose tensors are the same, and whose other words are not."""
    if not os.path.exists("cache.pt"):
        torch.save({"inputs": torch.ones(64, WIDTH), "many": torch.ones(1024, WIDTH), "by": os.getpid()}, "cache.pt")
    cache = torch.load("cache.pt", weights_only=True)
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda model: loss_of(model, cache["inputs"]))
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda model: loss_of(model, cache["many"]))
    os.remove("cache.pt")


def loads_ahead():
    """Data in archives, fetched on a thread before and behind a save."""
    files = [f"data-{number}.pt" for number in range(4)]
    for number, file in enumerate(files):
        pixels = torch.arange(64 * 2048).mul(number + 3).remainder(251).to(torch.uint8)
        torch.save({"inputs": pixels.reshape(-1, WIDTH), "few": torch.tensor([float(number)])}, file)

    def load(file):
        loaded = torch.load(file)
        return loaded["inputs"].float() / 255, loaded["few"] * 2

    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        coming = pool.submit(load, files[0])
        for number, file in enumerate(files):
            inputs, few = coming.result()
            train(model, optimizer, steps=1, loss=lambda model: model(inputs).square().mean() * few)
            torch.save(model.state_dict(), "model.pt")
            coming = pool.submit(load, files[(number + 1) % len(files)])
        coming.result()
    tell_model(model)


def thread_loads_what_was_saved():
    import threading
    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    torch.save(model.state_dict(), "model.pt")
    thread = threading.Thread(target=lambda: torch.load("model.pt"))
    thread.start()
    thread.join()
    train(model, optimizer, steps=1)


def saves_again(*files):
    """Where it may: the first file is on a disk that may be full."""
    model = layers(6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    for file in files:
        try:
            torch.save(model.state_dict(), file)
            break
        except (OSError, RuntimeError) as error:
            print(f"{file}: {error}", file=sys.stderr)
    train_and_tell(model, optimizer, steps=2)


def saves_much(file="much.pt"):
    """32 MiB, with room for little where the ranks have their own files."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        model(torch.randn(2, 1024)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(model.state_dict(), f"{step}-{file}")
        with open(f"{step}-opened-{file}", "wb") as opened:
            torch.save(model.state_dict(), opened)
    model.load_state_dict(torch.load(f"0-{file}", weights_only=True))
    tell_model(model)
    model.load_state_dict(torch.load(f"1-opened-{file}", weights_only=True))
    tell_model(model)


def state_in_memory():
    import io
    model = layers(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train(model, optimizer, steps=2)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    best = copy.deepcopy(model.state_dict())
    train(model, optimizer, steps=1)
    model.load_state_dict(best)
    file.seek(0)
    other = layers(3)
    other.load_state_dict(torch.load(file))
    train_and_tell(model, optimizer, steps=1)
    tell_model(other)


def best_so_far():
    """Goes back to what it has saved itself."""
    model = layers(4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train(model, optimizer, steps=2)
    torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], "best.pt")
    train(model, optimizer, steps=1)
    of_model, of_optimizer, generator = torch.load("best.pt")
    torch.set_rng_state(generator)
    model.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    train(model, optimizer, steps=1)
    model.load_state_dict(torch.load("best.pt")[0], assign=True)
    tell_model(model, optimizer)


def kept_arrays():
    """NumPy's view of a parameter, read and written while it is trained."""
    model = layers(3)
    weight = model[2].weight.detach().numpy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(3):
        train(model, optimizer, steps=1)
        print("sum", float(weight.sum()).hex())
        weight[step] *= 0.5
    tell_model(model, optimizer)


def reads_by_address():
    """As extensions do: nobody tells of it."""
    import ctypes
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    print(ctypes.c_float.from_address(model[4].weight.data_ptr()).value)


def reads_by_address_with_faulthandler():
    """Which many trainers switch on, and pytest."""
    import faulthandler
    faulthandler.enable()
    reads_by_address()


def reads_nowhere_with_faulthandler():
    import faulthandler
    faulthandler.enable()
    train(layers(3), torch.optim.SGD([torch.zeros(1)], 0.1), steps=1)
    ctypes.c_float.from_address(8).value


def reads_by_address_in_a_child():
    import ctypes
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    address = model[4].weight.data_ptr()
    child = os.fork()
    if child == 0:
        print(ctypes.c_float.from_address(address).value)
        os._exit(0)
    print("signal", os.waitpid(child, 0)[1] & 0x7f)


def mapped_load():
    model = layers(3)
    torch.save(model.state_dict(), "first.pt")
    other = layers(3)
    other.load_state_dict(torch.load("first.pt", mmap=True), assign=True)
    for leaf in other.parameters():
        leaf.requires_grad_(True)
    train_and_tell(other, torch.optim.SGD(other.parameters(), 0.1))
