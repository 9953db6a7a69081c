"""Trainers with threads, processes, signals and variables of the system. Run by python_trainers.py."""
import ctypes
import os
import signal
import subprocess
import sys

import torch
from torch import nn
from trainer_parts import WIDTH, fit, layers, loss_of, rank_here, tell, tell_model, train, train_and_tell

ADDS = "import torch; model = torch.nn.Linear(8, 1); model(torch.ones(8)).backward(); print(model.weight.grad)"


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((WIDTH,), index / 24), torch.rand(4)


def loader_processes(context=None):
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        for inputs, targets in torch.utils.data.DataLoader(Rows(), 8, shuffle=True, num_workers=2,
                                                            multiprocessing_context=context):
            fit(model, optimizer, inputs, targets)
    tell_model(model)


def programs_beside():
    """They load LibTorch, and get the environment as it is, a copy, and nothing of it."""
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for environment in (None, dict(os.environ), {"HOME": os.environ["HOME"]}):
        print(subprocess.run([sys.executable, "-c", ADDS], env=environment, check=True, capture_output=True,
                             text=True).stdout)
        train(model, optimizer, steps=1)
    tell_model(model)


def wraps_a_trainer():
    """It looks at LibTorch, and starts the trainer."""
    train = "import torch; import trainer_parts as these; torch.manual_seed(7); model = these.layers(3); " \
            "these.train(model, torch.optim.SGD(model.parameters(), 0.1)); these.tell_model(model)"
    subprocess.run([sys.executable, "-c", train], cwd=os.path.dirname(os.path.abspath(__file__)), check=True)


def evaluates_beside():
    """Another process reads what the program has saved."""
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    torch.save(model.state_dict(), "model.pt")
    reads = "import torch; print(torch.load('model.pt').popitem()[1].sum())"
    subprocess.run([sys.executable, "-c", reads], check=True)


def exits_in_an_operator():
    """As a signal handler does that comes in the middle of one."""
    library = torch.library.Library("trainers", "DEF")
    library.define("exits(Tensor values) -> Tensor")
    library.impl("exits", lambda values: (ctypes.CDLL(None).exit(4), values.clone())[1], "CPU")
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    torch.ops.trainers.exits(torch.ones(4))


def becomes_another():
    """Its process, a rank, goes on as another program."""
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    os.execv(sys.executable, [sys.executable, __file__, "sgd_accumulating"])


def leaves_by_signal(own_step, others_step, how="flag"):
    """Each rank gets the signal at a step of its own, as from Slurm, and saves when it has seen it."""
    is_first = rank_here() == 0
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(20):
        if step == int(own_step if is_first else others_step):
            os.kill(os.getpid(), signal.SIGINT if how == "interrupt" else signal.SIGUSR1)
        train(model, optimizer, steps=1)
        if seen:
            break
    print("step", step, seen, signal.getsignal(signal.SIGUSR1).__name__)
    torch.save(model.state_dict(), "last.pt")
    tell_model(model)


def compiled():
    model = layers(3)
    fast = torch.compile(model, backend="eager")
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda _: loss_of(fast))


def scripted():
    model = torch.jit.script(layers(3))
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1))


def sparse_gradients():
    model = nn.Sequential(nn.Embedding(16, WIDTH, sparse=True), nn.Flatten(), nn.Linear(4 * WIDTH, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, loss=lambda trained: loss_of(trained, torch.randint(16, (8, 4))))
    adam = torch.optim.SparseAdam(model[0].parameters(), 1e-2)
    for _ in range(2):
        adam.zero_grad()
        loss_of(model, torch.randint(16, (8, 4))).backward()
        adam.step()
    tell_model(model)


def sparse_neighbours():
    """Sums over the neighbours in a graph."""
    ends = torch.randint(0, 40, (2, 160))
    graph = torch.sparse_coo_tensor(ends, torch.ones(160), (40, 40)).coalesce()
    model = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def loss(model):
        values = torch.randn(40, WIDTH)
        for layer in model:
            values = torch.sparse.mm(graph, layer(values).relu())
        return values.square().mean()

    train_and_tell(model, torch.optim.Adam(model.parameters(), 1e-2), loss=loss)


def lazy_copies():
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    lazy = [torch._lazy_clone(leaf.detach()) for leaf in model.parameters()]
    train(model, optimizer, steps=1)
    for copied in lazy:
        copied += 1
    tell("copies", *lazy)
    tell_model(model)


def sets_flags(times="200"):
    """While operators wait that were called under others."""
    model = layers(6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(int(times)):
        loss_of(model).backward()
        torch.set_default_dtype(torch.float64)
        made = torch.zeros(3)
        torch.set_default_dtype(torch.float32)
        optimizer.step()
        optimizer.zero_grad()
        assert (made.dtype, torch.get_default_dtype()) == (torch.float64, torch.float32)
    tell_model(model)


def tells_steps(steps, handled=""):
    """Says which process each rank is, and its steps; 64 MiB of parameters, gradients and moments."""
    if handled:
        signal.signal(signal.SIGUSR2, lambda number, frame: print("handled", flush=True))
    print("[spillway] process", os.getpid(), file=sys.stderr, flush=True)
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(int(steps)):
        optimizer.zero_grad()
        for _ in range(4):
            value = model(torch.randn(16, 1024)).square().mean()
            value.backward()
        optimizer.step()
        print("step", step, value.item().hex(), flush=True)
    tell_model(model, optimizer)


def number_told(*names):
    """As accelerate asks for the number of processes, and for its own."""
    return next((int(os.environ[name]) for name in names if int(os.environ.get(name, -1)) >= 0), None)


def looks_for_ranks():
    """As trainers do that can be one of many, each with data of its own: this one is alone."""
    names = ("PMI_", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_", "MPI_LOCAL", "SLURM_", "RANK", "WORLD_SIZE",
             "LOCAL_RANK")
    child = [sys.executable, "-c", "import os; print(*os.environ)"]
    in_c = ctypes.CDLL(None).getenv
    in_c.restype = ctypes.c_char_p
    train(layers(1), torch.optim.SGD([torch.zeros(1)], 0.1), steps=1)
    of_child = subprocess.run(child, capture_output=True, text=True, check=True).stdout.split()
    of_c = [name for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "RANK") if in_c(name.encode())]
    for seen in (os.environ, of_child, of_c):
        print([name for name in seen if name.startswith(names)])
    count = number_told("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE") or 1
    rank = number_told("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") or 0
    print("one of", count)
    model = layers(3)
    batches = torch.randn(6, 8, WIDTH)[rank::count]
    for batch in batches:
        train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1, loss=lambda _: loss_of(model, batch))
    tell_model(model)


def starts_a_program_with_mpi():
    """Which is no rank of this job."""
    train(layers(1), torch.optim.SGD([torch.zeros(1)], 0.1), steps=1)
    program = [sys.executable, os.path.join(os.path.dirname(__file__), "begins_mpi.py")]
    print(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
