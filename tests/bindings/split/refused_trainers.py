"""Trainers that cannot be split, or that go apart or end too early. Run by python_trainers.py."""
import concurrent.futures
import io
import os
import random
import sys

import torch
from torch import nn
from trainer_parts import WIDTH, layers, loss_of, rank_here, step_on, train, train_and_tell


def thread_writes_what_is_used():
    import threading
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.randn(64, WIDTH)
    print(len(batch.tolist()))
    for _ in range(2):
        step_on(model, optimizer, batch)
        thread = threading.Thread(target=lambda: batch.copy_(torch.ones(64, WIDTH)))
        thread.start()
        thread.join()


def seeded_by_chance():
    import os
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=20)


def steered_by_rank():
    """As by a clock or a host's name."""
    import os
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    if rank_here() == 1:
        model[0].weight.data.mul_(0.5)
    train(model, optimizer, steps=50)


def saves_on_rank(rank):
    """As scripts for one process a rank do."""
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    if rank_here() == int(rank):
        torch.save(model.state_dict(), os.path.join(os.environ["TMPDIR"], "own.pt"))
    train_and_tell(model, optimizer, steps=2)


def wide_model():
    return nn.Sequential(nn.Linear(WIDTH, 1024), nn.Dropout(0.1), nn.Linear(1024, 4))


def archive_of(number):
    """Of a few rows, as data sets keep them."""
    archive = io.BytesIO()
    torch.save(torch.full((8, WIDTH), float(number)), archive)
    return archive.getvalue()


def loaded_beside(file):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(torch.load, file).result()


def sample(name: str) -> torch.Tensor:
    return torch.full((64, WIDTH), float(name[2]))


def differs_by_rank(what, *files):
    """In what no operator of the program's thread shows."""
    import threading
    rank = rank_here()
    model = wide_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if what == "draws" and rank == 1:
        thread = threading.Thread(target=torch.rand, args=(1,))
        thread.start()
        thread.join()
    elif what == "threads":
        torch.set_num_threads(1 + rank)
    elif what in ("loaded beside", "named"):
        samples = list(range(4))
        for number in samples:
            torch.save(torch.full((1024, WIDTH), float(number)), f"{number}.pt")
        samples.sort(reverse=rank == 1)
        take = loaded_beside if what == "loaded beside" else torch.library.custom_op(
            "spillway_test::sample", sample, mutates_args=())
        train_and_tell(model, optimizer, steps=4, micro_batches=1,
                       loss=lambda model: loss_of(model, take(f"./{samples.pop()}.pt")))
        return
    elif what == "archives":
        samples = [archive_of(number) for number in range(4)]
        samples.sort(reverse=rank == 1)
        train_and_tell(model, optimizer, steps=4, micro_batches=1,
                       loss=lambda model: loss_of(model, torch.load(io.BytesIO(samples.pop()))))
        return
    elif what == "weights":
        model.load_state_dict(torch.load(files[rank], weights_only=True))
    train_and_tell(model, optimizer, steps=20)


def writes_weights(file, seed):
    torch.manual_seed(int(seed))
    torch.save(wide_model().state_dict(), file)


def trains_on_a_thread():
    import threading
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    thread = threading.Thread(target=train, args=(model, optimizer))
    thread.start()
    thread.join()


def leaves_in_mid_step():
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    loss_of(model).backward()
    print("leaves", flush=True)
    sys.exit(3)


def leaves_behind_a_save():
    """Without destructors and functions at exit, as programs do that have had hanging threads."""
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    torch.save(model.state_dict(), "last.pt")
    sys.stdout.flush()
    os._exit(0)


def leaves_on_one_rank():
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    if rank_here() == 1:
        sys.exit(0)
    train(model, optimizer, steps=50)


def fails_on_rank(number, way):
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    print("rank", rank_here(), "trains", file=sys.stderr, flush=True)
    if rank_here() == int(number):
        if way == "leaves":
            os._exit(4)
        if way != "raises":
            os.kill(os.getpid(), int(way))
        raise RuntimeError("this rank has had enough")
    train(model, optimizer, steps=50)


def goes_apart(seed):
    """At a moment and in a way that a seed draws, on a rank that it draws."""
    drawn = random.Random(int(seed))
    rank, step, micro_batch = drawn.randrange(2), drawn.randrange(5), drawn.randrange(3)
    way = drawn.choice(("operator", "argument", "more", "less", "leaves", "raises"))
    print("goes apart", way, "on rank", rank, "in step", step, "at micro-batch", micro_batch, flush=True)
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for now in range(12):
        optimizer.zero_grad()
        for of_step in range(3):
            is_it = (rank_here(), now, of_step) == (rank, step, micro_batch)
            value = loss_of(model)
            if is_it and way == "operator":
                value = value.abs()
            elif is_it and way == "argument":
                value = value * 3
            elif not is_it and way in ("operator", "argument"):
                value = value * 2
            elif is_it and way == "more":
                value = value + 1
            elif is_it and way == "leaves":
                sys.exit(0)
            elif is_it and way == "raises":
                raise RuntimeError("this rank has had enough")
            if not (is_it and way == "less"):
                value.backward()
        optimizer.step()


def fails_for_a_value():
    """An operator that throws for its values, which its owner alone has."""
    table = nn.Embedding(16, WIDTH)
    model = nn.Sequential(table, *layers(3))
    train(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda _: loss_of(model, torch.randint(16, (8,))))
    loss_of(model, torch.tensor([3, 99])).backward()
