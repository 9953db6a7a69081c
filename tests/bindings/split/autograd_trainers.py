"""Trainers that use autograd in unusual ways, or look at what it makes. Run by python_trainers.py."""

import torch
from torch import nn
from torch.nn import functional
from trainer_parts import WIDTH, layers, loss_of, tell, tell_model, train, train_and_tell


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
