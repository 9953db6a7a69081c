"""Trainers with optimizers of all kinds. Run by python_trainers.py."""

import torch
from torch import nn
from torch.nn import functional
from trainer_parts import WIDTH, layers, loss_of, tell_model, train, train_and_tell


def adamw(**how):
    model = layers(6, nn.Dropout(0.1))
    train_and_tell(model, torch.optim.AdamW(model.parameters(), 1e-2, **how), clip=0.1)


def adamw_plain():
    adamw(foreach=False)


def adamw_foreach():
    adamw(foreach=True)


def adamw_fused():
    adamw(fused=True)


def wide_adamw(how):
    """16 MiB of parameters, and as much for gradients and for each moment."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **{how: True})
    for _ in range(2):
        optimizer.zero_grad()
        value = model(torch.randn(4, 1024)).square().mean()
        value.backward()
        optimizer.step()
        print("loss", value.item().hex())


def sgd_accumulating(micro_batches="4"):
    """No clipping, no moments: a gradient of the wrong scale shows."""
    model = layers()
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1), micro_batches=int(micro_batches))


def sgd_foreach_kept_gradients():
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01, foreach=True)
    train_and_tell(model, optimizer, set_to_none=False)


def sgd_fused():
    model = layers()
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True))


def many_optimizers():
    for kind in ("Adagrad", "Adamax", "RMSprop", "NAdam", "RAdam", "Adadelta", "Rprop", "ASGD"):
        print(kind)
        model = layers(2)
        train_and_tell(model, getattr(torch.optim, kind)(model.parameters()), steps=2)


def lbfgs():
    model = layers(3)
    inputs, targets = torch.randn(8, WIDTH), torch.randn(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = functional.mse_loss(model(inputs), targets)
        value.backward()
        return value

    for _ in range(2):
        print("loss", optimizer.step(closure).item().hex())
    tell_model(model)


def two_optimizers():
    """Two models, trained against each other."""
    makes, judges = nn.Sequential(layers(3), nn.Linear(4, WIDTH)), layers(3)
    of_makes = torch.optim.Adam(makes.parameters(), 1e-3)
    of_judges = torch.optim.SGD(judges.parameters(), 1e-2)
    for _ in range(3):
        of_judges.zero_grad()
        made = makes(torch.randn(8, WIDTH))
        value = judges(torch.randn(8, WIDTH)).mean() - judges(made.detach()).mean()
        value.backward()
        of_judges.step()
        of_makes.zero_grad()
        other = judges(made).mean()
        other.backward()
        of_makes.step()
        print("losses", value.item().hex(), other.item().hex())
    tell_model(makes, of_makes)
    tell_model(judges)


def learning_rates():
    model = layers(4)
    optimizer = torch.optim.AdamW([{"params": model[:4].parameters(), "lr": 1e-3},
                                   {"params": model[4:].parameters(), "weight_decay": 0.0}])
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    for _ in range(3):
        train(model, optimizer, steps=1)
        rates.step()
    tell_model(model, optimizer)


def scaled():
    """Steps with gradients that are not finite are left out."""
    model = layers(6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10, growth_interval=2)
    for step in range(6):
        optimizer.zero_grad()
        loss = loss_of(model)
        if step == 3:
            loss = loss * model[0].bias[0].exp().mul(float("inf"))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        print("norm", nn.utils.clip_grad_norm_(model.parameters(), 1.0).item().hex())
        scaler.step(optimizer)
        scaler.update()
        print("scale", scaler.get_scale())
    tell_model(model)


def wide_scaled():
    """16 MiB of parameters."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 1024)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print("loss", loss.item().hex())
