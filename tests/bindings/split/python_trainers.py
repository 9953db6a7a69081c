"""Small trainers in Python that know nothing of Spillway: python3 python_trainers.py NAME[,WORD]... ...

Each prints what it has seen and, as whole numbers, the bits of what it has made."""
import concurrent.futures
import copy
import ctypes
import os
import random
import signal
import subprocess
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

WIDTH = 32


def bits(tensor):
    """A number that hangs on each bit of a tensor and on where it stands."""
    values = tensor.detach().contiguous().flatten()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    numbers = values.view(whole).to(torch.int64)
    return (numbers * (2 * torch.arange(numbers.numel()) + 1)).sum().item()


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


# Optimizers


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


# Models


def batch_norm():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3),
                          nn.BatchNorm2d(8, momentum=None), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                          nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(16, 4))
    images = torch.randn(16, 3, 16, 16)
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
                   loss=lambda trained: loss_of(trained, images))
    model.eval()
    with torch.no_grad():
        tell("evaluated", model(images))


def lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = nn.Embedding(16, WIDTH)
            self.cells = nn.LSTM(WIDTH, WIDTH, num_layers=3, dropout=0.1, batch_first=True)
            self.write = nn.Linear(WIDTH, 16)

        def forward(self, text):
            return self.write(self.cells(self.read(text))[0])

    model = Model()

    def loss(trained):
        text = torch.randint(16, (4, 9))
        return functional.cross_entropy(trained(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    train_and_tell(model, torch.optim.Adam(model.parameters(), 1e-2), loss=loss, clip=1.0)


class Transformer(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.read = nn.Embedding(16, WIDTH)
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True, norm_first=True), 3,
            enable_nested_tensor=False)
        self.write = nn.Linear(WIDTH, 16, bias=False)
        if tied:
            self.write.weight = self.read.weight

    def forward(self, text):
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        return self.write(self.blocks(self.read(text), mask=mask, is_causal=True))


def text_loss(model):
    text = torch.randint(16, (4, 9))
    return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def transformer():
    model = Transformer(tied=False)
    train_and_tell(model, torch.optim.AdamW(model.parameters(), 1e-2), loss=text_loss, clip=1.0)
    model.eval()
    with torch.inference_mode():
        tell("evaluated", model(torch.randint(16, (4, 9))))


def tied_embedding():
    model = Transformer(tied=True)
    train_and_tell(model, torch.optim.AdamW(model.parameters(), 1e-2), loss=text_loss, clip=1.0)


def work_before_parameters(steps="16", kind="adamw"):
    """Its work lies at its begin, and its parameters lie at its end."""
    torch.manual_seed(3)
    convolutions = [layer for _ in range(4) for layer in (nn.LazyConv2d(32, 3, padding=1), nn.BatchNorm2d(32),
                                                           nn.ReLU())]
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 1000), nn.Dropout(0.1),
                          nn.Linear(1000, 1000))
    model(torch.zeros(2, 3, 64, 64))
    if kind == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, foreach=kind == "foreach")
    for _ in range(int(steps)):
        optimizer.zero_grad(set_to_none=kind != "foreach")
        for _ in range(4):
            loss = functional.cross_entropy(model(torch.randn(4, 3, 64, 64)), torch.randint(0, 1000, (4,)))
            (loss / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(loss.item(), flush=True)
    tell_model(model, optimizer)


def equal_layers(count="4", micro_batches="8", steps="4", norm=""):
    """Few operators that take long, so that the program is ahead of them, and one look at the losses of a step. With
    `norm`, layers have running statistics, and losses are summed before their backward."""
    layers = [nn.Linear(768, 768) for _ in range(int(count))]
    if norm:
        layers = [nn.Sequential(layer, nn.BatchNorm1d(768)) for layer in layers]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(int(steps)):
        optimizer.zero_grad()
        total = 0
        for _ in range(int(micro_batches)):
            loss = model(torch.randn(256, 768)).square().mean() / int(micro_batches)
            if norm:
                total = total + loss.detach()
            loss.backward()
            if not norm:
                total = total + loss.detach()
        optimizer.step()
        print("loss", step, total.item().hex())
    tell_model(model)


def hidden_state(micro_batches="4"):
    """Backward goes no further than a micro-batch, as is usual for long texts."""
    model = nn.LSTM(16, 32, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(4):
        optimizer.zero_grad()
        state = None
        for _ in range(int(micro_batches)):
            output, state = model(torch.randn(5, 3, 16), state)
            state = tuple(one.detach() for one in state)
            output.square().mean().backward()
        optimizer.step()
        print("state", step, state[0].sum().item().hex())
    tell_model(model)


def gradients_in_inputs():
    """Each second forward is of an input that the first one's gradient has changed."""
    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(3):
            inputs = torch.randn(8, WIDTH, requires_grad=True)
            loss_of(model, inputs).backward()
            loss_of(model, (inputs + 0.1 * inputs.grad.sign()).detach()).backward()
        optimizer.step()
    tell_model(model)


def other_counts():
    """Steps with more and with fewer micro-batches than the ones before."""
    model = layers(7)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for count in (4, 4, 6, 2, 8, 8, 3, 1):
        optimizer.zero_grad()
        for _ in range(count):
            loss_of(model).backward()
        optimizer.step()
    tell_model(model)


def adds_in_place():
    """A value of an earlier layer is changed by a later one, and read by a third."""
    torch.manual_seed(4)
    embedding, position = nn.Embedding(64, 64), nn.Parameter(torch.zeros(16, 64))
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    parameters = [*embedding.parameters(), position, *layers.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    for _ in range(8):
        optimizer.zero_grad()
        hidden = embedding(torch.randint(0, 64, (8, 16)))
        hidden += position
        for layer in layers:
            hidden = torch.relu(layer(hidden))
        hidden.square().mean().backward()
        optimizer.step()
    tell("parameters", *parameters)


def one_layer():
    torch.manual_seed(5)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    tell_model(model)


def models_by_turns():
    """Two that train by turns, and then one more."""
    torch.manual_seed(6)

    def made():
        model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())))
        return model, torch.optim.SGD(model.parameters(), 0.1)

    def train(model, optimizer):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()

    both = [made(), made()]
    for _ in range(10):
        for model, optimizer in both:
            train(model, optimizer)
    for model, _optimizer in both:
        tell_model(model)
    del both, model, optimizer, _optimizer
    model, optimizer = made()
    for _ in range(8):
        train(model, optimizer)
    tell_model(model)


def frozen_parts():
    model = layers()
    for index in (0, 4, 6):
        for parameter in model[index].parameters():
            parameter.requires_grad_(False)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), 1e-2)
    train(model, optimizer)
    for parameter in model[0].parameters():
        parameter.requires_grad_(True)
    optimizer.add_param_group({"params": list(model[0].parameters())})
    train_and_tell(model, optimizer, steps=2)


def moving_average():
    model = layers()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    by_hand = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        train(model, optimizer, steps=1)
        average.update_parameters(model)
        with torch.no_grad():
            for kept, new in zip(by_hand.parameters(), model.parameters()):
                kept.mul_(0.9).add_(new, alpha=0.1)
    tell_model(average)
    tell_model(by_hand)


def evaluation_between():
    model = layers(5, nn.Dropout(0.2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(3):
        train(model, optimizer, steps=1)
        model.eval()
        with torch.inference_mode() if step == 1 else torch.no_grad():
            outputs = model(torch.randn(16, WIDTH))
            print("right", (outputs.argmax(1) == torch.randint(4, (16,))).sum().item(), outputs.max().item().hex())
        model.train()
    tell_model(model, optimizer)


def weight_norm():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)), nn.Tanh(),
                          nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)), nn.Tanh(),
                          nn.Linear(WIDTH, 4))
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1))


def forwards_before_backwards():
    """All micro-batches go forward before one goes back."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for value in [loss_of(model) for _ in range(3)]:
            value.backward()
            print("loss", value.item().hex())
        optimizer.step()
    tell_model(model)


# Autograd


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, value, scale):
        context.save_for_backward(value, scale)
        return value * scale.tanh()

    @staticmethod
    def backward(context, gradient):
        value, scale = context.saved_tensors
        return gradient * scale.tanh(), (gradient * value / scale.cosh() ** 2).sum(0)


class ScaledLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, value):
        return Scaled.apply(value, self.scale)


def custom_function():
    model = layers(4, ScaledLayer())
    train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1))


def checkpointed():
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential
    model = layers(6, nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for reentrant in (True, False):
        def loss(trained, reentrant=reentrant):
            inputs = torch.randn(8, WIDTH, requires_grad=True)
            middle = checkpoint(trained[:6], inputs, use_reentrant=reentrant)
            outputs = checkpoint_sequential(trained[6:], 2, middle, use_reentrant=reentrant)
            return functional.mse_loss(outputs, torch.randn(8, 4))
        train(model, optimizer, loss=loss)
    tell_model(model)


def retained_graph():
    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        outputs = model(torch.randn(8, WIDTH))
        outputs.sum().backward(retain_graph=True)
        (outputs ** 2).mean().backward(retain_graph=True)
        tell("gradient", *torch.autograd.grad(outputs.std(), [model[0].weight, model[4].weight]))
        optimizer.step()
    tell_model(model)


def double_backward():
    model = layers(4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        inputs = torch.randn(8, WIDTH, requires_grad=True)
        outputs = model(inputs)
        slope, = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        value = outputs.pow(2).mean() + (slope.norm(2, 1) - 1).pow(2).mean()
        value.backward()
        print("loss", value.item().hex())
        optimizer.step()
    tell_model(model)


def hooks():
    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    norms = []
    model[2].register_forward_hook(lambda module, inputs, output: output * 1.5)
    model[4].register_full_backward_hook(lambda module, ins, outs: (ins[0] * 0.5,))
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    model[6].weight.register_post_accumulate_grad_hook(lambda leaf: norms.append(leaf.grad.norm().item()))
    train(model, optimizer)
    print(*(norm.hex() for norm in norms))
    tell_model(model)


def update_in_backward():
    model = layers(4)
    updates = {leaf: torch.optim.SGD([leaf], 0.1, momentum=0.9) for leaf in model.parameters()}

    def update(leaf):
        updates[leaf].step()
        updates[leaf].zero_grad()

    for leaf in model.parameters():
        leaf.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        value = loss_of(model)
        value.backward()
        print("loss", value.item().hex())
    tell_model(model)


def functional_calls():
    model = layers(3)
    parameters = dict(model.named_parameters())

    def loss(values, inputs, targets):
        return functional.mse_loss(torch.func.functional_call(model, values, (inputs,)), targets)

    for _ in range(2):
        gradients = torch.func.grad(loss)(parameters, torch.randn(8, WIDTH), torch.randn(8, 4))
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter -= 0.1 * gradients[name]
    tell_model(model)
    by_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    tell("by row", *by_row(parameters, torch.randn(4, WIDTH), torch.randn(4, 4)).values())


def autocast():
    model = layers(5)

    def loss(trained):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(trained)

    train_and_tell(model, torch.optim.AdamW(model.parameters(), 1e-2), loss=loss)


def bfloat16_and_master():
    model = layers(4).to(torch.bfloat16)
    masters = [leaf.detach().clone().float() for leaf in model.parameters()]
    for _ in range(3):
        model.zero_grad()
        value = functional.mse_loss(model(torch.randn(8, WIDTH).bfloat16()), torch.randn(8, 4).bfloat16())
        value.backward()
        print("loss", value.item().hex())
        with torch.no_grad():
            for master, leaf in zip(masters, model.parameters()):
                master -= 0.1 * leaf.grad.float()
                leaf.copy_(master)
    tell_model(model)


def anomaly_mode():
    model = layers(3)
    with torch.autograd.detect_anomaly():
        train_and_tell(model, torch.optim.SGD(model.parameters(), 0.1), steps=2)


# What a program looks at


def looks():
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    weight = model[2].weight
    print(weight)
    print(float(weight[1, 2]), bool((weight > 0).any()), weight.argmax().item(), int(weight.sum() * 100))
    if weight.grad.norm() > 0.001:
        print("steep")
    print(weight.isnan().any(), weight.nonzero().shape, weight[weight > 0.1].shape, torch.equal(weight, weight.T))
    print(torch.unique(weight.sign()), torch.allclose(weight, weight + 1e-9))
    rows = [row for row in weight[:2, :2].unbind()]
    print(rows, f"{weight.max():.4f}", weight.grad.abs().topk(2, 0).indices.shape)
    weight.data[weight.data.abs() < 0.01] = 0
    tell_model(model)


def numpy_reads():
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    print(model[0].weight.detach().numpy().sum(), model[4].weight.detach().numpy()[3, :2])
    outputs = model(torch.randn(8, WIDTH)).detach()
    print(outputs.numpy().tolist())
    model[2].weight.data.copy_(torch.from_numpy(model[2].weight.detach().numpy() * 0.5))
    model[4].bias.detach().numpy()[:] = 0.25
    train_and_tell(model, optimizer, steps=2)


def lists():
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=2)
    print(model[0].bias.tolist(), model[4].weight[0].tolist())
    print(model(torch.randn(2, WIDTH)).argmax(1).tolist())


# Files


def saves(file="checkpoint.pt", steps="2"):
    """Goes on from `file` where there is one."""
    import os
    model = layers(4, nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    first = 0
    if os.path.exists(file):
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["generator"])
        first = state["step"]
    train(model, optimizer, steps=int(steps))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": first + int(steps),
                "generator": torch.get_rng_state()}, file)
    tell_model(model, optimizer)


def saves_large():
    """16 MiB each by a path, by Python's files, and over an older file. Then it goes on from what it has saved."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wide = {"micro_batches": 1, "steps": 1, "loss": lambda model: model(torch.randn(4, 1024)).square().mean()}
    train(model, optimizer, **wide)
    torch.save(model.state_dict(), "by_path.pt")
    for name, buffering in (("buffered.pt", -1), ("plain.pt", 0)):
        with open(name, "wb", buffering=buffering) as file:
            torch.save(model.state_dict(), file)
    os.replace("plain.pt", "old.pt")
    train(model, optimizer, **wide)
    with open("old.pt", "r+b") as file:
        torch.save(model.state_dict(), file)
    for name in ("by_path.pt", "buffered.pt", "old.pt"):
        facts = os.stat(name)
        print(f"[spillway] {name} {facts.st_size} {facts.st_blocks * 512}", file=sys.stderr)
        model.load_state_dict(torch.load(name))
        train(model, optimizer, **wide)
    tell_model(model)


def loads_ahead():
    """Data in archives, fetched on a thread before and behind a save."""
    files = [f"data-{number}.pt" for number in range(4)]
    for number, file in enumerate(files):
        pixels = torch.arange(64 * 2048).mul(number + 3).remainder(251).to(torch.uint8)
        torch.save({"inputs": pixels.reshape(-1, WIDTH), "few": torch.tensor([float(number)])}, file)

    def load(file):
        loaded = torch.load(file)
        return loaded["inputs"].float() / 255, loaded["few"] * 2

    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        coming = pool.submit(load, files[0])
        for number, file in enumerate(files):
            inputs, few = coming.result()
            train(model, optimizer, steps=1, loss=lambda model: model(inputs).square().mean() * few)
            torch.save(model.state_dict(), "model.pt")
            coming = pool.submit(load, files[(number + 1) % len(files)])
        coming.result()
    tell_model(model)


def thread_loads_what_was_saved():
    import threading
    model = layers(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    torch.save(model.state_dict(), "model.pt")
    thread = threading.Thread(target=lambda: torch.load("model.pt"))
    thread.start()
    thread.join()
    train(model, optimizer, steps=1)


def saves_again(*files):
    """Where it may: the first file is on a disk that may be full."""
    model = layers(6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=2)
    for file in files:
        try:
            torch.save(model.state_dict(), file)
            break
        except (OSError, RuntimeError) as error:
            print(f"{file}: {error}", file=sys.stderr)
    train_and_tell(model, optimizer, steps=2)


def saves_much(file="much.pt"):
    """32 MiB, with room for little where the ranks have their own files."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        model(torch.randn(2, 1024)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(model.state_dict(), f"{step}-{file}")
        with open(f"{step}-opened-{file}", "wb") as opened:
            torch.save(model.state_dict(), opened)
    model.load_state_dict(torch.load(f"0-{file}", weights_only=True))
    tell_model(model)
    model.load_state_dict(torch.load(f"1-opened-{file}", weights_only=True))
    tell_model(model)


def state_in_memory():
    import io
    model = layers(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train(model, optimizer, steps=2)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    best = copy.deepcopy(model.state_dict())
    train(model, optimizer, steps=1)
    model.load_state_dict(best)
    file.seek(0)
    other = layers(3)
    other.load_state_dict(torch.load(file))
    train_and_tell(model, optimizer, steps=1)
    tell_model(other)


def best_so_far():
    """Goes back to what it has saved itself."""
    model = layers(4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    train(model, optimizer, steps=2)
    torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], "best.pt")
    train(model, optimizer, steps=1)
    of_model, of_optimizer, generator = torch.load("best.pt")
    torch.set_rng_state(generator)
    model.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    train(model, optimizer, steps=1)
    model.load_state_dict(torch.load("best.pt")[0], assign=True)
    tell_model(model, optimizer)


def kept_arrays():
    """NumPy's view of a parameter, read and written while it is trained."""
    model = layers(3)
    weight = model[2].weight.detach().numpy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(3):
        train(model, optimizer, steps=1)
        print("sum", float(weight.sum()).hex())
        weight[step] *= 0.5
    tell_model(model, optimizer)


def reads_by_address():
    """As extensions do: nobody tells of it."""
    import ctypes
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    print(ctypes.c_float.from_address(model[4].weight.data_ptr()).value)


def reads_by_address_with_faulthandler():
    """Which many trainers switch on, and pytest."""
    import faulthandler
    faulthandler.enable()
    reads_by_address()


def reads_nowhere_with_faulthandler():
    import faulthandler
    faulthandler.enable()
    train(layers(3), torch.optim.SGD([torch.zeros(1)], 0.1), steps=1)
    ctypes.c_float.from_address(8).value


def reads_by_address_in_a_child():
    import ctypes
    model = layers(3)
    train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    address = model[4].weight.data_ptr()
    child = os.fork()
    if child == 0:
        print(ctypes.c_float.from_address(address).value)
        os._exit(0)
    print("signal", os.waitpid(child, 0)[1] & 0x7f)


def mapped_load():
    model = layers(3)
    torch.save(model.state_dict(), "first.pt")
    other = layers(3)
    other.load_state_dict(torch.load("first.pt", mmap=True), assign=True)
    for leaf in other.parameters():
        leaf.requires_grad_(True)
    train_and_tell(other, torch.optim.SGD(other.parameters(), 0.1))


# Threads and processes


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
            optimizer.zero_grad()
            value = functional.mse_loss(model(inputs), targets)
            value.backward()
            optimizer.step()
            print("loss", value.item().hex())
    tell_model(model)


ADDS = "import torch; model = torch.nn.Linear(8, 1); model(torch.ones(8)).backward(); print(model.weight.grad)"


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
    train = "import torch; import python_trainers as these; torch.manual_seed(7); model = these.layers(3); " \
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


# Initialisers


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
            optimizer.zero_grad()
            value = functional.mse_loss(model(inputs), targets)
            value.backward()
            optimizer.step()
            print("loss", value.item().hex())
    tell_model(model)


def large_model():
    """400 MiB of parameters, initialised, and none of them used more than a little."""
    model = nn.Sequential(*(nn.Linear(2560, 2560) for _ in range(16)))
    for layer in model:
        nn.init.trunc_normal_(layer.weight, std=0.02)
    value = model(torch.randn(1, 2560)).mean()
    print("loss", value.item().hex())
    tell("last", model[-1].weight[:4])


# Memory that the program writes by hand


def write(address, array):
    """Past the operators, as a system call or a decoder does."""
    ctypes.memmove(address, array.ctypes.data, array.nbytes)


def wide_layers():
    """They take far longer to compute than the program takes to ask for it."""
    return nn.Sequential(nn.Linear(WIDTH, 512), *(nn.Linear(512, 512) for _ in range(5)), nn.Linear(512, 4))


def rows_by_hand(count, rows=64):
    return [torch.randn(rows, WIDTH).numpy() for _ in range(count)]


def step_on(model, optimizer, batch):
    """No moments: the gradient of the first layer shows."""
    optimizer.zero_grad()
    value = model(batch).square().mean()
    value.backward()
    optimizer.step()
    return value


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
        optimizer.zero_grad()
        value = functional.mse_loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        print("loss", value.item().hex())
    tell_model(model)


# What cannot be split


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


def differs_by_rank(what, *files):
    """In what no operator of the program's thread shows."""
    import threading
    rank = int(os.environ.get("PMI_RANK", "0"))
    model = wide_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if what == "draws" and rank == 1:
        thread = threading.Thread(target=torch.rand, args=(1,))
        thread.start()
        thread.join()
    elif what == "threads":
        torch.set_num_threads(1 + rank)
    elif what == "weights":
        model.load_state_dict(torch.load(files[rank], weights_only=True))
    train_and_tell(model, optimizer, steps=20)


def writes_weights(file, seed):
    torch.manual_seed(int(seed))
    torch.save(wide_model().state_dict(), file)


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
    import os
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    if rank_here() == 1:
        sys.exit(0)
    train(model, optimizer, steps=50)


def rank_here():
    """0 alone, too. Programs are not to know it."""
    return int(os.environ.get("SPILLWAY_LAUNCHER_PMI_RANK")
               or os.environ.get("SPILLWAY_LAUNCHER_OMPI_COMM_WORLD_RANK") or 0)


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


def number_told(*names):
    """As accelerate asks for the number of processes, and for its own."""
    return next((int(os.environ[name]) for name in names if int(os.environ.get(name, -1)) >= 0), None)


def looks_for_ranks():
    """As trainers do that can be one of many, each with data of its own: this one is alone."""
    names = ("PMI_", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_", "MPI_LOCAL", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    child = [sys.executable, "-c", "import os; print(*os.environ)"]
    in_c = ctypes.CDLL(None).getenv
    in_c.restype = ctypes.c_char_p
    train(layers(1), torch.optim.SGD([torch.zeros(1)], 0.1), steps=1)
    for seen in (os.environ, subprocess.run(child, capture_output=True, text=True, check=True).stdout.split(),
                 [name for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "RANK") if in_c(name.encode())]):
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


def fails_for_a_value():
    """An operator that throws for its values, which its owner alone has."""
    table = nn.Embedding(16, WIDTH)
    model = nn.Sequential(table, *layers(3))
    train(model, torch.optim.SGD(model.parameters(), 0.1), loss=lambda _: loss_of(model, torch.randint(16, (8,))))
    loss_of(model, torch.tensor([3, 99])).backward()


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


def main(trainers):
    warnings.simplefilter("ignore")
    for words in sys.argv[1:]:
        name, *arguments = words.split(",")
        print(name)
        torch.manual_seed(7)
        trainers[name](*arguments)


if __name__ == "__main__":
    main(globals())
