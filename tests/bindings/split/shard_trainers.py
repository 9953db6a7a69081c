"""Trainers that know which shard they are: python3 shard_trainers.py SHARD SHARDS one|whole NAME[,WORD]... ...

With `whole` one process trains all shards, one after the other in each step, and gives all of them the mean
of their gradients, added up in the order of shards: what ranks with --shards have to do. Each prints what
shard 0 sees."""
import sys

import torch
from python_trainers import WIDTH, layers, tell_model
from torch import nn
from torch.nn import functional


class Program:
    """What one shard trains, with random numbers of its own."""

    def __init__(self, shard, make_model, make_optimizer):
        self.shard = shard
        torch.manual_seed(1000 + shard)
        self.model = make_model()
        self.optimizer = make_optimizer(self.model.parameters())
        self.random = torch.get_rng_state()

    def say(self, *words):
        if self.shard == 0:
            print(*words)

    def backward(self, step, micro_batches, zeroing):
        self.optimizer.zero_grad(**zeroing)
        for _ in range(micro_batches):
            inputs, targets = torch.randn(8, WIDTH), torch.randn(8, 4)
            value = functional.mse_loss(self.model(inputs), targets) / micro_batches
            value.backward()
            self.say("loss", step, value.item().hex())

    def update(self, clip):
        if clip is not None:
            self.say("norm", nn.utils.clip_grad_norm_(self.model.parameters(), clip).item().hex())
        self.optimizer.step()


def give_all_the_first_parameters(programs):
    with torch.no_grad():
        for program in programs[1:]:
            for mine, first in zip(program.model.parameters(), programs[0].model.parameters()):
                mine.copy_(first)


def give_all_the_mean(programs):
    for same in zip(*(program.model.parameters() for program in programs)):
        if same[0].grad is None:
            continue
        mean = same[0].grad.clone()
        for other in same[1:]:
            mean += other.grad
        mean *= 1.0 / len(same)
        for parameter in same:
            parameter.grad.copy_(mean)


def programs_of(make_model, make_optimizer):
    """All of them with the parameters of the first, which --shards sees to."""
    programs = [Program(number, make_model, make_optimizer) for number in (range(SHARDS) if IS_WHOLE else [SHARD])]
    give_all_the_first_parameters(programs)
    return programs


def train(make_model, make_optimizer, steps=3, micro_batches=2, clip=None, updates=True, **zeroing):
    programs = programs_of(make_model, make_optimizer)
    for step in range(steps):
        for program in programs:
            torch.set_rng_state(program.random)
            program.backward(step, micro_batches, zeroing)
            program.random = torch.get_rng_state()
        if IS_WHOLE:
            give_all_the_mean(programs)
        for program in programs:
            if IS_WHOLE or updates:
                program.update(clip)
    first = programs[0]
    if first.shard == 0:
        tell_model(first.model, first.optimizer)
    torch.save({"model": first.model.state_dict(), "optimizer": first.optimizer.state_dict()}, f"{NAME}.pt")


def sgd_of(parameters):
    return torch.optim.SGD(parameters, 0.1)


# What shards have to do together


def sgd(micro_batches="2", width="0"):
    """No clipping, no moments: a gradient of the wrong scale shows. A wide layer's gradients go alone."""
    def model():
        wide = [nn.Linear(WIDTH, int(width)), nn.ReLU(), nn.Linear(int(width), WIDTH)] if int(width) else []
        return nn.Sequential(*wide, layers())
    train(model, sgd_of, micro_batches=int(micro_batches))


def adamw(how, micro_batches="2"):
    train(lambda: layers(6, nn.Dropout(0.1)), lambda parameters: torch.optim.AdamW(parameters, 1e-2, **{how: True}),
          micro_batches=int(micro_batches))


def clipped():
    train(layers, lambda parameters: torch.optim.AdamW(parameters, 1e-2), clip=0.1)


def kept_gradients():
    train(layers, lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9), set_to_none=False)


def batch_norm():
    """Its running statistics are each shard's own."""
    train(lambda: layers(2, nn.BatchNorm1d(WIDTH)), sgd_of)


def tied():
    def model():
        made = layers()
        made[2].weight = made[0].weight
        return made
    train(model, sgd_of)


def bfloat16():
    def model():
        made = layers().bfloat16()
        made.register_forward_pre_hook(lambda _, given: given[0].bfloat16())
        made.register_forward_hook(lambda _, given, result: result.float())
        return made
    train(model, sgd_of)


def update_in_backward():
    """One process has to see all gradients first; nothing reads a parameter behind its own gradient."""
    def model():
        made = layers()
        for parameter in made.parameters() if not IS_WHOLE else ():
            optimizer = sgd_of([parameter])
            parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
        return made
    train(model, sgd_of, micro_batches=1, updates=False)


def one_flat_gradient():
    """More gradients in a storage than shards announce at once."""
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.ParameterList([nn.Parameter(torch.randn(WIDTH)) for _ in range(70)])
            flat = torch.zeros(70 * WIDTH)
            for number, row in enumerate(self.rows):
                row.grad = flat[number * WIDTH:(number + 1) * WIDTH]

        def forward(self, inputs):
            return functional.linear(inputs, torch.stack(list(self.rows))[:4]) + self.rows[69].sum()

    train(Rows, sgd_of, set_to_none=False)


def archived():
    """A checkpoint of gradients behind backward."""
    programs = programs_of(layers, sgd_of)
    for program in programs:
        torch.set_rng_state(program.random)
        program.backward(0, 2, {})
    if IS_WHOLE:
        give_all_the_mean(programs)
    torch.save([parameter.grad for parameter in programs[0].model.parameters()], f"{NAME}.pt")


def looked_at():
    """The program sees the mean by a number and by a pointer."""
    programs = programs_of(layers, sgd_of)
    for program in programs:
        torch.set_rng_state(program.random)
        program.backward(0, 2, {})
    if IS_WHOLE:
        give_all_the_mean(programs)
    for program in programs:
        first, *_, last = program.model.parameters()
        program.say("looked at", first.grad.sum().item().hex(), *(value.hex() for value in last.grad.numpy().tolist()))


# What they must not do


def train_apart(differs, steps=3):
    """`differs(program, step)` does what shards do in different ways, and returns a loss or nothing."""
    program = Program(SHARD, layers, sgd_of)
    for step in range(steps):
        program.optimizer.zero_grad()
        value = differs(program, step)
        if value is not None:
            value.backward()
            program.optimizer.step()


def loss_of(model):
    return functional.mse_loss(model(torch.randn(8, WIDTH)), torch.randn(8, 4))


def gradient_in_one_shard():
    def differs(program, step):
        program.model[4].weight.requires_grad_(step == 0 or SHARD == 0)
        return loss_of(program.model)
    train_apart(differs)


def fewer_batches():
    train_apart(lambda program, step: loss_of(program.model) if SHARD == 0 or step < 2 else None)


def skipped_update():
    train_apart(lambda program, step: loss_of(program.model) if SHARD == 0 or step != 1 else None)


def other_sizes():
    model = nn.Linear(WIDTH, 4 + SHARD)
    model(torch.randn(8, WIDTH)).sum().backward()


def data_with_gradients():
    train_apart(lambda program, step: program.model(torch.randn(8, WIDTH).requires_grad_()).sum(), steps=10)


def gradients_of_its_own():
    program = Program(SHARD, layers, sgd_of)
    for _ in range(2):
        loss_of(program.model).backward()
        for parameter, gradient in zip(program.model.parameters(),
                                       torch.autograd.grad(loss_of(program.model), program.model.parameters())):
            with torch.no_grad():
                parameter -= 0.1 * gradient
        program.optimizer.zero_grad()


def updates_of_others_in_backward():
    program = Program(SHARD, layers, sgd_of)
    first, *others = program.model.parameters()
    first.register_post_accumulate_grad_hook(lambda _: sgd_of(others).step())
    loss_of(program.model).backward()


def sparse():
    model = nn.Embedding(8, 4, sparse=True)
    model(torch.arange(4)).sum().backward()
    sgd_of(model.parameters()).step()


if __name__ == "__main__":
    SHARD, SHARDS, IS_WHOLE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "whole"
    for argument in sys.argv[4:]:
        NAME, *words = argument.split(",")
        print(argument)
        globals()[NAME](*words)
