"""Trainers whose parameters begin in unusual ways. Run by python_trainers.py."""
import copy

import torch
from torch import nn
from torch.nn import functional
from trainer_parts import WIDTH, fit, layers, loss_of, tell, tell_model, train, train_and_tell


def make_by_init(width=64):
    """A parameter from each of torch.nn.init, and some by hand."""
    init = nn.init
    ways = [lambda w: init.uniform_(w, -0.2, 0.3), lambda w: init.normal_(w, 0.1, 0.2),
            lambda w: init.constant_(w, 0.02), init.ones_, init.zeros_, init.eye_,
            lambda w: init.trunc_normal_(w, std=0.3, a=-0.4, b=0.4), init.xavier_uniform_,
            init.xavier_normal_, lambda w: init.kaiming_uniform_(w, a=5 ** 0.5), init.kaiming_normal_,
            init.orthogonal_, lambda w: init.sparse_(w, 0.3)]
    made = []
    for way in ways:
        made.append(nn.Parameter(torch.empty(width, width)))
        way(made[-1])
    with torch.no_grad():
        made.append(nn.Parameter(torch.randn(width, width) * 0.02))
        made.append(nn.Parameter((torch.rand(width, width) - 0.5).t().contiguous()))
        made.append(nn.Parameter(torch.empty(width, width)))
        made[-1].normal_().clamp_(-1, 1).mul_(0.1)
        made[-1][3].fill_(0.25)
        made[-1][:, 5:9].uniform_()
        copied = made[0].detach().clone()
        made[0].mul_(0.5)  # What the copy was made of changes.
        made.append(nn.Parameter(copied))
        other = torch.empty(width, width)
        other.uniform_()
        made.append(nn.Parameter(other + made[1].detach()))
        other.normal_()  # The sum was of what was there before.
        made.append(nn.Parameter(other))
    kernel = nn.Parameter(torch.empty(width, width, 3))
    init.dirac_(kernel)
    return made, kernel


class Initialised(nn.Module):
    def __init__(self):
        super().__init__()
        made, self.kernel = make_by_init()
        self.layers = nn.ParameterList(made)
        self.register_buffer("shift", torch.linspace(0, 1, 64 * 64).view(64, 64) - torch.zeros(64, 64))
        self.register_buffer("mask", torch.ones(64, 64).triu(1).bool())

    def forward(self, inputs):
        value = inputs
        for layer in self.layers:
            value = value + torch.tanh(value @ (layer + self.shift).masked_fill(self.mask, 0.0)) / 8
        return functional.conv1d(value.t()[None], self.kernel, padding=1)[0].t()


def initialised():
    model = Initialised()
    average = copy.deepcopy(model)
    tell("generator", torch.get_rng_state())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            inputs, targets = torch.randn(64, 64), torch.rand(64, 64)
            keep = torch.rand(64, 64) < 0.9
            value = functional.mse_loss(functional.dropout(model(inputs) * keep, 0.1), targets)
            value.backward()
            print("loss", step, value.item().hex())
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters()):
                kept.mul_(0.9).add_(new, alpha=0.1)
    states = [kept.state_dict() for kept in (model, average, optimizer)]
    torch.save([*states, torch.get_rng_state()], "initialised.pt")
    tell_model(model, optimizer)
    tell_model(average)


def seeds_between():
    """Generators of their own, and new seeds, between initialisers that nobody has needed so far."""
    own = torch.Generator().manual_seed(3)
    parts = []
    for seed in range(3):
        parts.append(nn.Linear(64, 64))
        with torch.no_grad():
            parts[-1].weight.normal_(generator=own)
            torch.manual_seed(seed)
            parts[-1].bias.uniform_()
        parts.append(nn.Tanh())
        torch.set_default_dtype(torch.float64)
        parts[-2].register_buffer("wide", torch.zeros(64, 64))
        parts[-2].register_buffer("drawn", torch.rand(64, 64, generator=own))
        torch.set_default_dtype(torch.float32)
    model = nn.Sequential(*parts)
    model[4].weight = model[0].weight
    print(model[2].drawn.dtype, model[2].drawn[3, 4].item().hex())
    torch.save(model.state_dict(), "initial.pt")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    state = torch.get_rng_state()
    batches = [torch.randn(16, 64) for _ in range(4)]
    for batch in batches:
        optimizer.zero_grad()
        value = (model(batch) + model[2].drawn.mean()).square().mean()
        value.backward()
        optimizer.step()
        print("loss", value.item().hex())
    torch.set_rng_state(state)
    print(torch.equal(torch.randn(16, 64), batches[0]))
    tell_model(model, optimizer)


def walks():
    """A long row of calls, each of which needs the one before."""
    state = torch.zeros(64, 64)
    states = []
    for step in range(700):
        state = state * 0.9 + torch.randn(64, 64)
        if step % 100 == 0:
            states.append(state.clone())
        state.mul_(0.5)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda _: model(states[2]).square().mean())
    tell("states", *states, state)


def data_in_memory():
    """Processes of a data loader read what this one has drawn."""
    rows = torch.utils.data.TensorDataset(torch.randn(64, WIDTH), torch.rand(64, 4))
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        for inputs, targets in torch.utils.data.DataLoader(rows, 16, shuffle=True, num_workers=2):
            fit(model, optimizer, inputs, targets)
    tell_model(model)


def large_model():
    """400 MiB of parameters, initialised, and none of them used more than a little."""
    model = nn.Sequential(*(nn.Linear(2560, 2560) for _ in range(16)))
    for layer in model:
        nn.init.trunc_normal_(layer.weight, std=0.02)
    value = model(torch.randn(1, 2560)).mean()
    print("loss", value.item().hex())
    tell("last", model[-1].weight[:4])


def mapped_parameters(behind_loading=""):
    """Parameters are views of a file, as safetensors has them."""
    torch.save(layers(4).state_dict(), "model.pt")
    with torch.device("meta"):
        model = layers(4)
    model.load_state_dict(torch.load("model.pt", mmap=True), assign=True)
    if behind_loading == "copied":
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    train(model, torch.optim.AdamW(model.parameters(), 1e-2))
    tell_model(model)


def array_parameters():
    """NumPy's memory is the parameter's."""
    import numpy
    model = layers(3)
    model[2].weight = nn.Parameter(torch.from_numpy(numpy.random.RandomState(1).rand(WIDTH, WIDTH).astype("f")))
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    tell_model(model)


def validated_first():
    model = layers(4)
    with torch.no_grad():
        print("validation", loss_of(model).item().hex())
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    tell_model(model)
