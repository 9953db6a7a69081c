"""Trainers that write memory by hand, past all operators. Run by python_trainers.py."""
import ctypes
import os
import random

import torch
from torch import nn
from trainer_parts import WIDTH, fit, layers, step_on, tell, tell_model


def write(address, array):
    """Past the operators, as a system call or a decoder does."""
    ctypes.memmove(address, array.ctypes.data, array.nbytes)


def wide_layers():
    """They take far longer to compute than the program takes to ask for it."""
    return nn.Sequential(nn.Linear(WIDTH, 512), *(nn.Linear(512, 512) for _ in range(5)), nn.Linear(512, 4))


def rows_by_hand(count, rows=64):
    return [torch.randn(rows, WIDTH).numpy() for _ in range(count)]


def one_buffer():
    """Each step's batch is written over the one before, while that may still be in use elsewhere."""
    model = wide_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.empty(256, WIDTH)
    losses = []
    for rows in rows_by_hand(6, rows=256):
        write(batch.data_ptr(), rows)
        losses.append(step_on(model, optimizer, batch))
    tell("losses", *losses)
    tell("gradient", model[0].weight.grad)
    tell_model(model)


def one_buffer_with_a_gradient():
    """As one_buffer, of inputs whose gradients are wanted: forces, saliency, attacks."""
    model = wide_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = [step_on(model, optimizer, torch.randn(256, WIDTH))]
    batch = torch.empty(256, WIDTH, requires_grad=True)
    for rows in rows_by_hand(6, rows=256):
        write(batch.data_ptr(), rows)
        losses.append(step_on(model, optimizer, batch))
        batch.grad = None
    tell("losses", *losses)
    tell_model(model)


def two_buffers():
    """A thread fills one by operators while the other one is trained on."""
    import queue
    import threading
    model = wide_layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    buffers = [torch.empty(256, WIDTH), torch.empty(256, WIDTH)]
    arrays = rows_by_hand(8, rows=256)
    free, full = queue.Queue(), queue.Queue()

    def fill():
        for array in arrays:
            buffer = buffers[free.get()]
            buffer.copy_(torch.from_numpy(array))
            full.put(buffer)

    for number in (0, 1):
        free.put(number)
    thread = threading.Thread(target=fill)
    thread.start()
    losses = []
    for step in range(len(arrays)):
        losses.append(step_on(model, optimizer, full.get()))
        free.put(step % 2)
    thread.join()
    tell("losses", *losses)
    tell_model(model)


def kept_address():
    """An address that was taken before operators filled the tensor."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    others = []
    for fill in ("zero_", "uniform_", "fill_", "copy_"):
        batch = torch.empty(64, WIDTH)
        address = batch.data_ptr()
        getattr(batch, fill)(*{"fill_": [0.5], "copy_": [torch.randn(64, WIDTH)]}.get(fill, []))
        others.append(torch.zeros(64, WIDTH).add_(len(others)))
        write(address, rows_by_hand(1, rows=32)[0])
        print("loss", step_on(model, optimizer, batch).item().hex())
    tell("others", *others)
    tell_model(model)


def views_from_the_begin():
    """Operators that count from where the storage of a view begins, over memory that is copied for them."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = torch.arange(512.0)
    numbers = kept.numpy()
    for step in range(4):
        optimizer.zero_grad()
        placed = torch.as_strided_scatter(kept[16:304], model(torch.randn(8, WIDTH)), (8, 4), (4, 1), 20)
        shown = torch.as_strided_copy(kept[16:304], (8, WIDTH), (WIDTH, 1), 40) / 512
        value = placed.square().mean() / 1e4 + model(shown).mean()
        value.backward()
        optimizer.step()
        numbers[step] += 1
        print("loss", value.item().hex())
    tell_model(model)


def own_times():
    """What differs between ranks, and what nobody has filled, where the model has no part in it."""
    import os
    import time
    import numpy
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    held = torch.empty(64, 2 * WIDTH)
    write(held.data_ptr(), numpy.frombuffer(os.urandom(held.nbytes), dtype=numpy.uint8))
    for rows in rows_by_hand(4):
        begun = torch.tensor([time.time(), time.perf_counter()])
        held[:, :WIDTH] = torch.from_numpy(rows)
        print("loss", step_on(model, optimizer, held[:, :WIDTH]).item().hex())
        times = torch.stack([begun, torch.tensor([time.time(), time.perf_counter()])])
        print("times", (times[1] - times[0]).isnan().any().item(), times.diff(dim=0).shape)
    tell_model(model)


def order_by(kind, steps="20"):
    """Trains on rows in the order that `kind` gives them."""
    import os
    import random
    import numpy
    order = list(range(32))
    if kind == "random":
        random.shuffle(order)
    elif kind == "numpy":
        order = numpy.random.permutation(32).tolist()
    elif kind == "device":
        order.sort(key=lambda _: os.urandom(8))
    elif kind == "set":
        order = [int(word.split()[1]) for word in {f"row {row}" for row in order}]
    elif kind == "seeded":
        random.Random(3).shuffle(order)
        order = numpy.random.RandomState(4).permutation(order).tolist()
    table = numpy.linspace(-1, 1, 32 * WIDTH, dtype=numpy.float32).reshape(32, WIDTH)
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(int(steps)):
        chosen = order[step % 4 * 8:][:8]
        inputs = torch.from_numpy(table[chosen])
        targets = torch.tensor([[row / 32] * 4 for row in chosen])
        fit(model, optimizer, inputs, targets)
    tell_model(model)
