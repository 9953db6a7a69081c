"""Trainers in Python that go on from an archive, and know nothing of Spillway:
python3 resume_trainers.py NAME[,WORD]... ...

They find `state.pt` beside their folder: `write` has made it. Its tensors are large enough to be left in
the file until they are needed."""
import os
import sys
import threading

import torch
from torch import nn
from trainer_parts import main, tell, tell_model

FILE = "../state.pt"
WIDTH = 160


def made(width=WIDTH, count=6, **how):
    model = nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(width, width), nn.Tanh())))
    return model, torch.optim.AdamW(model.parameters(), 1e-3, **how)


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        value = model(torch.randn(2, model[0].in_features)).square().mean()
        value.backward()
        print("loss", value.item().hex())
        optimizer.step()


def write(width=WIDTH, count=6):
    model, optimizer = made(int(width), int(count))
    train(model, optimizer, 1)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "state.pt")


def go_on(model, optimizer, state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer)
    tell_model(model, optimizer)


def resume(**how):
    model, optimizer = made()
    go_on(model, optimizer, torch.load(FILE, **how))


def resume_mapped():
    resume(mmap=True)


def resume_large(update):
    """No rank has room for all of it."""
    model, optimizer = made(1280, 16, foreach=update == "foreach", fused=update == "fused")
    state = torch.load(FILE)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print("output", model(torch.randn(2, 1280)).square().mean().item().hex())
    if update != "nothing":
        train(model, optimizer, 1)
    print(len(state["model"]))  # It is kept to the end.


def resume_by_assignment():
    model, optimizer = made()
    model.load_state_dict(torch.load(FILE)["model"], assign=True)
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    tell_model(model)


def resume_twice():
    model, optimizer = made()
    state = torch.load(FILE)
    model.load_state_dict(state["model"])
    for name, loaded in torch.load(FILE)["model"].items():
        model.state_dict()[name].copy_(loaded)
    go_on(model, optimizer, state)
    go_on(model, optimizer, state)  # The optimizer has changed the state that it was given.


def resume_what_the_program_changes():
    model, optimizer = made()
    state = torch.load(FILE)
    weights = list(state["model"].values())
    model.load_state_dict(state["model"])  # Of the bytes before.
    for change in (lambda one: one.mul_(0.5), lambda one: one[3].fill_(0.25), lambda one: one.zero_()):
        change(weights.pop(0))
        weights.pop(0)
    weights[0].numpy()[2] = 0.75
    weights[2].untyped_storage()[5] = 7
    tell("changed", *state["model"].values())
    go_on(model, optimizer, state)


def resume_what_the_program_looks_at():
    model, optimizer = made()
    state = torch.load(FILE)
    first, second = state["model"]["0.weight"], state["model"]["2.weight"]
    print(first[3, 4].item().hex(), bool(first.isnan().any()), torch.equal(first, second), first[0, :3])
    print(float(second.double().norm()).hex(), first.numpy().sum().item(), second[1, :4].tolist())
    model[0].weight.data.copy_(second.t())
    model[2].weight.data.copy_(first.double())
    model[4].weight.data[:80] = first[80:] * 2
    print(model[4].weight[3, 5].item().hex())
    halves = {name: value.half() for name, value in state["model"].items()}
    torch.save([halves, state], "copy.pt")
    go_on(model, optimizer, state)


def resume_views():
    whole = torch.arange(4 * WIDTH * WIDTH).float().view(4, WIDTH, WIDTH) / 1e5
    torch.save([whole[1], whole[2].t(), whole[:, 3], whole], "views.pt")
    model, optimizer = made(count=4)
    views = torch.load("views.pt")
    for layer, value in zip(model[::2], views[3]):
        layer.weight.data = value
    model[0].weight.data.copy_(views[0])
    model[2].weight.data.copy_(views[1])
    views[2].zero_()
    train(model, optimizer)
    tell_model(model, optimizer)
    tell("views", *views)


def resume_from_what_it_has_written():
    model, optimizer = made()
    train(model, optimizer, 1)
    for _ in range(2):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "own.pt")
        train(model, optimizer, 1)
        model, optimizer = made()
        state = torch.load("own.pt")
        tell("own", *(value * 2 for value in state["model"].values()))
        go_on(model, optimizer, state)


def resume_in_a_thread():
    model, optimizer = made()
    states = []

    def load():
        state = torch.load(FILE)
        print(state["model"]["0.weight"].sum().item().hex())
        state["model"]["2.weight"].mul_(2)
        state["model"]["4.weight"].numpy()[1] = 3
        states.append(state)
    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    go_on(model, optimizer, states[0])


def resume_in_training():
    model, optimizer = made()
    train(model, optimizer)
    resumed = torch.load(FILE)
    go_on(model, optimizer, resumed)
    with torch.no_grad():
        for leaf, loaded in zip(model.parameters(), torch.load(FILE)["model"].values()):
            leaf.lerp_(loaded, 0.25)
    train(model, optimizer)
    tell_model(model, optimizer)


def resume_read_by_other_means():
    """Files that Python opens, one that changes what it reads, and records as bytes."""
    class Inverse:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def readinto(self, memory):
            data = bytes(byte ^ 255 for byte in self.file.read(len(memory)))
            memory[:len(data)] = data
            return len(data)

        def read(self, size=-1):
            return bytes(byte ^ 255 for byte in self.file.read(size))
    model, optimizer = made()
    with open(FILE, "rb") as file:
        whole = file.read()
    with open("inverse", "wb") as file:
        file.write(bytes(byte ^ 255 for byte in whole))
    with open("behind", "wb") as file:
        file.write(bytes(1000) + whole)
    for opened, begin in ((Inverse(open("inverse", "rb")), 0), (open("behind", "rb"), 1000),
                          (open(FILE, "rb", buffering=0), 0)):
        opened.seek(begin)
        go_on(model, optimizer, torch.load(opened))
    reader = torch._C.PyTorchFileReader(FILE)
    print(sum(sum(reader.get_record(name)) for name in reader.get_all_records() if "/" in name))


def resume_and_replace(how):
    """The file goes while none of its bytes were read."""
    model, optimizer = made()
    with open(FILE, "rb") as source, open("own.pt", "wb") as target:
        target.write(source.read())
    state = torch.load("own.pt")
    if how == "overwrite":
        torch.save({"model": made()[0].state_dict()}, "own.pt")
    elif how == "rename":
        torch.save({"model": made()[0].state_dict()}, "new.pt")
        os.replace("new.pt", "own.pt")
    elif how == "remove":
        os.remove("own.pt")
    elif how == "save again":
        torch.save(state, "own.pt")
    elif how == "change":
        with open("own.pt", "r+b") as file:
            file.seek(os.path.getsize("own.pt") // 2)
            file.write(bytes(64))
    elif how == "truncate":
        os.truncate("own.pt", 100000)
    go_on(model, optimizer, state)


def resume_from_a_part():
    with open(FILE, "rb") as source, open("part.pt", "wb") as target:
        target.write(source.read()[:-70000])
    try:
        torch.load("part.pt")
    except RuntimeError as error:
        print(str(error).splitlines()[0])


if __name__ == "__main__":
    main(globals())
