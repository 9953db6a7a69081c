"""Trainers whose models, parameters or data come and go: python3 model_trainers.py NAME[,WORD]... ..."""
import gc

import torch
from trainer_parts import WIDTH, layers, loss_of, main, rank_here, tell, tell_model, train_and_tell
from torch import nn


def physics(steps="6"):
    """A net that solves an equation, with gradients of gradients at points, new in each step or kept."""
    blocks = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), *blocks, nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    edge = torch.rand(16, 1).requires_grad_(True)
    for _ in range(int(steps)):
        optimizer.zero_grad()
        time, place = (torch.rand(32, 1, requires_grad=True) for _ in range(2))
        value = model(torch.cat([time, place], 1))
        by_time, by_place = torch.autograd.grad(value.sum(), (time, place), create_graph=True)
        twice, = torch.autograd.grad(by_place.sum(), place, create_graph=True)
        at_edge = model(torch.cat([edge, torch.zeros_like(edge)], 1)) - torch.sin(edge)
        loss = (by_time - 0.1 * twice).square().mean() + at_edge.square().mean()
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())
    tell_model(model, optimizer)
    tell("edge", edge.grad)


def penalty(steps="6"):
    """Two nets against each other; the gradients of one are held at a norm of 1 between their data."""
    makes, judges = nn.Sequential(layers(4), nn.Linear(4, WIDTH)), layers(4)
    of_makes, of_judges = (torch.optim.Adam(net.parameters(), 1e-3, betas=(0.5, 0.9)) for net in (makes, judges))
    for step in range(int(steps)):
        of_judges.zero_grad()
        real, made = torch.randn(8, WIDTH), makes(torch.randn(8, WIDTH)).detach()
        share = torch.rand(8, 1)
        between = (share * real + (1 - share) * made).requires_grad_(True)
        slope, = torch.autograd.grad(judges(between).sum(), between, create_graph=True)
        loss = judges(made).mean() - judges(real).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()
        loss.backward()
        of_judges.step()
        print("loss", loss.item().hex())
        if step % 3 == 2:
            of_makes.zero_grad()
            judges(makes(torch.randn(8, WIDTH))).mean().neg().backward()
            of_makes.step()
    tell_model(makes, of_makes)
    tell_model(judges, of_judges)


def attacked(steps="4"):
    """Trains on inputs that were moved to where the loss is large, in place or by new ones."""
    model = layers(6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(int(steps)):
        inputs = torch.randn(8, WIDTH)
        shift = torch.zeros_like(inputs, requires_grad=True)
        with torch.no_grad():
            shift.uniform_(-0.1, 0.1)
        for _ in range(3):
            slope, = torch.autograd.grad(model(inputs + shift).square().mean(), shift)
            if step % 2 == 0:
                with torch.no_grad():
                    shift.add_(0.05 * slope.sign()).clamp_(-0.1, 0.1)
            else:
                shift = (shift + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach().requires_grad_(True)
        optimizer.zero_grad()
        loss = loss_of(model, inputs + shift.detach())
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())
    tell_model(model)


def replaced_parameters(steps="8", micro_batches="2"):
    """Updates by hand, which put other tensors in the place of parameters."""
    model = layers(6)
    for _ in range(int(steps)):
        model.zero_grad()
        for _ in range(int(micro_batches)):
            loss = loss_of(model)
            loss.backward()
        for leaf in model.parameters():
            leaf.data = leaf.data - 0.1 * leaf.grad
        print("loss", loss.item().hex())
    tell_model(model)


def only_forward(batches="3000"):
    """Nobody asks for gradients, and nobody switches them off."""
    model = layers(6)
    total = torch.zeros(8, 4)
    for _ in range(int(batches)):
        total += model(torch.randn(8, WIDTH)).detach()
    tell("total", total)


def models_in_a_row(kind="initialised", count="4"):
    """One after the other; each is held by a cycle of references, and ends when the collector comes by, which is
    another time on each rank."""
    rank = rank_here()
    gc.disable()
    for number in range(int(count)):
        model = layers(3 + number)
        if kind == "bare":
            for layer in model:
                for name, leaf in list(layer.named_parameters()):
                    setattr(layer, name, nn.Parameter(torch.randn(leaf.shape) * 0.1))
        if (number + rank) % 3 == 0:
            gc.collect()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        model.held = [model]
        for step in range(5):
            if step == rank + 1:
                gc.collect()
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
        print("loss", number, loss.item().hex())
        tell_model(model, optimizer)
    gc.enable()


if __name__ == "__main__":
    main(globals())
