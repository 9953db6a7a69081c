"""What trainers are made of. Each prints what it has seen and, as whole numbers, the bits of what it has made."""
import copy
import os
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

WIDTH = 32


def bits(tensor):
    """A number that hangs on each bit of a tensor and on where it stands."""
    values = tensor.detach().cpu().contiguous().flatten()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    numbers = values.view(whole).to(torch.int64)
    return (numbers * (2 * torch.arange(numbers.numel(), device="cpu") + 1)).sum().item()


def tell(name, *tensors):
    print(name, *(bits(tensor) for tensor in tensors))


def tell_model(model, optimizer=None):
    for name, tensor in model.state_dict().items():
        tell(name, tensor)
    for state in (optimizer.state.values() if optimizer else ()):
        tell("state", *(value for value in state.values() if isinstance(value, torch.Tensor)))


def layers(count=6, *between):
    made = []
    for _ in range(count):
        made += [nn.Linear(WIDTH, WIDTH), nn.GELU(), *(copy.deepcopy(layer) for layer in between)]
    return nn.Sequential(*made, nn.Linear(WIDTH, 4))


def loss_of(model, inputs=None):
    inputs = torch.randn(8, WIDTH) if inputs is None else inputs
    return functional.mse_loss(model(inputs), torch.randn(len(inputs), 4))


def train(model, optimizer, steps=3, micro_batches=2, loss=loss_of, clip=None, **zeroing):
    for step in range(steps):
        optimizer.zero_grad(**zeroing)
        for _ in range(micro_batches):
            value = loss(model) / micro_batches
            value.backward()
            print("loss", step, value.item().hex())
        if clip is not None:
            print("norm", nn.utils.clip_grad_norm_(model.parameters(), clip).item().hex())
        optimizer.step()


def train_and_tell(model, optimizer, **more):
    train(model, optimizer, **more)
    tell_model(model, optimizer)


def fit(model, optimizer, inputs, targets):
    """A step towards the targets."""
    optimizer.zero_grad()
    value = functional.mse_loss(model(inputs), targets)
    value.backward()
    optimizer.step()
    print("loss", value.item().hex())


def step_on(model, optimizer, batch):
    """No moments: the gradient of the first layer shows."""
    optimizer.zero_grad()
    value = model(batch).square().mean()
    value.backward()
    optimizer.step()
    return value


def rank_here():
    """0 alone, too. Programs are not to know it."""
    return int(os.environ.get("SPILLWAY_LAUNCHER_PMI_RANK")
               or os.environ.get("SPILLWAY_LAUNCHER_OMPI_COMM_WORLD_RANK") or 0)


def main(trainers):
    """On an emulated GPU where EMU_OPERATORS names the library that it needs."""
    warnings.simplefilter("ignore")
    if operators := os.environ.get("EMU_OPERATORS"):
        torch.ops.load_library(operators)
        torch.set_default_device("cuda")
    for words in sys.argv[1:]:
        name, *arguments = words.split(",")
        print(name)
        torch.manual_seed(7)
        trainers[name](*arguments)
