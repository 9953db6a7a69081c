"""Trainers of nets of all kinds, and of parts of them. Run by python_trainers.py."""
import copy

import torch
from torch import nn
from torch.nn import functional
from trainer_parts import WIDTH, layers, loss_of, tell, tell_model, train, train_and_tell


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
