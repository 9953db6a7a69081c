"""Trainers that know which shard they are: python3 shard_trainers.py SHARD SHARDS one|whole NAME[,WORD]... ...

With `whole` one process trains all shards, one after the other in each step, and gives all of them the mean
of their gradients, added up in the order of shards: what ranks with --shards have to do. Each prints what
shard 0 sees."""
import sys

import torch
from trainer_parts import WIDTH, layers, tell_model
from torch import nn
from torch.nn import functional


class Program:
    """What one shard trains, with random numbers of its own."""

    def __init__(self, shard, make_model, make_optimizer, seed=0):
        self.shard = shard
        torch.manual_seed(1000 + 100 * seed + shard)
        self.model = make_model()
        self.optimizer = make_optimizer(self.model.parameters())
        self.random = torch.get_rng_state()

    def say(self, *words):
        if self.shard == 0:
            print(*words)

    def backward(self, step, micro_batches, zeroing, loss_of):
        self.optimizer.zero_grad(**zeroing)
        for number in range(micro_batches):
            value = loss_of(self, step, number) / micro_batches
            value.backward()
            self.say("loss", step, value.item().hex())

    def update(self, clip):
        if clip is not None:
            self.say("norm", nn.utils.clip_grad_norm_(self.model.parameters(), clip).item().hex())
        self.optimizer.step()


def loss_of_random_data(program, *_):
    return functional.mse_loss(program.model(torch.randn(8, WIDTH)), torch.randn(8, 4))


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


def programs_of(make_model, make_optimizer, seed=0):
    """All of them with the parameters of the first, which --shards sees to."""
    programs = [Program(number, make_model, make_optimizer, seed)
                for number in (range(SHARDS) if IS_WHOLE else [SHARD])]
    give_all_the_first_parameters(programs)
    return programs


def train(make_model, make_optimizer, steps=3, micro_batches=2, clip=None, updates=True, loss_of=loss_of_random_data,
          **zeroing):
    programs = programs_of(make_model, make_optimizer)
    for step in range(steps):
        for program in programs:
            torch.set_rng_state(program.random)
            program.backward(step, micro_batches, zeroing, loss_of)
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


def clipped(micro_batches="2"):
    train(layers, lambda parameters: torch.optim.AdamW(parameters, 1e-2), clip=0.1, micro_batches=int(micro_batches))


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


class Heads(nn.Module):
    """Which of two heads of one shape a batch goes through, it says itself."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.scales = nn.ParameterList([nn.Parameter(torch.tensor(1.0 + number)) for number in range(2)])
        self.heads = nn.ModuleList([nn.Linear(WIDTH, 4) for _ in range(2)])

    def forward(self, inputs, task):
        chosen = task.item()
        return self.heads[chosen](self.trunk(inputs)) * self.scales[chosen]


def loss_by_task(program, task):
    value = functional.mse_loss(program.model(torch.randn(8, WIDTH), torch.tensor(task)), torch.randn(8, 4))
    assert value.isfinite().item()  # The program waits for its forward.
    return value


def chosen_heads():
    """Each step uses both, in one order or the other."""
    train(Heads, lambda parameters: torch.optim.AdamW(parameters, 1e-2), clip=0.1,
          loss_of=lambda program, step, number: loss_by_task(program, (program.shard + step + number) % 2))


def chosen_heads_of_one_order():
    """In the first step all shards begin with another one than they were made in."""
    train(Heads, sgd_of, loss_of=lambda program, step, number: loss_by_task(program, (step + number + 1) % 2))


def adversarial():
    """Each batch is trained on as its own gradient makes it worse."""
    def loss_of(program, *_):
        inputs, targets = torch.randn(8, WIDTH).requires_grad_(), torch.randn(8, 4)
        kept = [parameter.grad for parameter in program.model.parameters()]
        functional.mse_loss(program.model(inputs), targets).backward()
        program.say("gradient", inputs.grad.square().sum().item().hex())
        worse = (inputs + 0.1 * inputs.grad.sign()).detach()
        for parameter, gradient in zip(program.model.parameters(), kept):
            parameter.grad = gradient
        return functional.mse_loss(program.model(worse), targets)

    train(layers, sgd_of, micro_batches=1, loss_of=loss_of)


def saliency():
    """The loss has the gradient of the batch in it."""
    def loss_of(program, *_):
        inputs = torch.randn(8, WIDTH, requires_grad=True)
        value = functional.mse_loss(program.model(inputs), torch.randn(8, 4))
        return value + torch.autograd.grad(value, inputs, create_graph=True)[0].square().sum()

    train(lambda: layers(4, nn.Tanh()), sgd_of, loss_of=loss_of)


def scaled():
    """Numbers of one shard overflow in the second step, so none makes it."""
    def loss_of(program, step, _):
        inputs = torch.randn(8, WIDTH)
        if step == 1 and program.shard == SHARDS - 1:
            inputs *= float("inf")
        return program.scaler.scale(functional.mse_loss(program.model(inputs), torch.randn(8, 4)))

    def update(program, _):
        program.scaler.step(program.optimizer)
        program.scaler.update()
        program.say("scale", program.scaler.get_scale())

    Program.scaler = property(lambda program: program.__dict__.setdefault(
        "own_scaler", torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)))
    kept, Program.update = Program.update, update
    train(layers, lambda parameters: torch.optim.AdamW(parameters, 1e-2), loss_of=loss_of)
    Program.update = kept


def by_turns():
    """Two models with an optimizer each; what one learns goes through the other."""
    makers = programs_of(lambda: layers(2), sgd_of, seed=1)
    critics = programs_of(lambda: nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)),
                          lambda parameters: torch.optim.Adam(parameters, 1e-2), seed=2)
    for step in range(6):
        trained = makers if step % 2 else critics
        for maker, critic in zip(makers, critics):
            torch.set_rng_state(maker.random)
            for one in (maker, critic):
                one.optimizer.zero_grad()
            made = maker.model(torch.randn(8, WIDTH))
            if trained is critics:
                value = critic.model(made.detach()).mean() - critic.model(torch.randn(8, 4)).mean()
            else:
                value = -critic.model(made).mean()
            value.backward()
            maker.say("loss", step, value.item().hex())
            maker.random = torch.get_rng_state()
        if IS_WHOLE:
            give_all_the_mean(trained)
        for program in trained:
            program.update(None)
    for one in (makers[0], critics[0]):
        if one.shard == 0:
            tell_model(one.model, one.optimizer)


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


def programs_behind_backward():
    programs = programs_of(layers, sgd_of)
    for program in programs:
        torch.set_rng_state(program.random)
        program.backward(0, 2, {}, loss_of_random_data)
    if IS_WHOLE:
        give_all_the_mean(programs)
    return programs


def archived():
    """A checkpoint of gradients behind backward."""
    programs = programs_behind_backward()
    torch.save([parameter.grad for parameter in programs[0].model.parameters()], f"{NAME}.pt")


def looked_at():
    """The program sees the mean by a number and by a pointer."""
    for program in programs_behind_backward():
        first, *_, last = program.model.parameters()
        program.say("looked at", first.grad.sum().item().hex(), *(value.hex() for value in last.grad.numpy().tolist()))


# What they must not do


def train_apart(differs, steps=3, model=layers):
    """`differs(program, step)` does what shards do in different ways, and returns a loss or nothing."""
    program = Program(SHARD, model, sgd_of)
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


def one_head_each():
    train_apart(lambda program, step: loss_by_task(program, SHARD), model=Heads)


def one_head_each_later():
    """Both in the first step, so all know them."""
    train_apart(lambda program, step: loss_by_task(program, 0) + loss_by_task(program, 1) if step == 0
                else loss_by_task(program, SHARD), model=Heads)


def more_tensors_in_one_shard():
    kept = [nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(SHARD)]
    train_apart(lambda program, step: loss_of(program.model))
    del kept


def made_in_forward():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(WIDTH, 4)
            self.adapters = nn.ModuleDict()

        def forward(self, inputs):
            made = self.first(inputs)
            name = f"of {SHARD}"
            if name not in self.adapters:
                self.adapters[name] = nn.Linear(4, 4)
            return self.adapters[name](made)

    train_apart(lambda program, step: loss_of(program.model), model=Adapted)


def bare_tensors():
    weight = torch.randn(4, WIDTH, requires_grad=True)
    functional.linear(torch.randn(8, WIDTH), weight).sum().backward()
    sgd_of([weight]).step()


def memory_of_numpy():
    model = nn.Linear(WIDTH, 4)
    model.weight = nn.Parameter(torch.from_numpy(torch.randn(4, WIDTH).numpy().copy()))
    model(torch.randn(8, WIDTH)).sum().backward()
    sgd_of(model.parameters()).step()


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
