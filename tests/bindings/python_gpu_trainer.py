#!/usr/bin/env python3
"""Trains a small model in Python on a GPU as users do, with automatic mixed precision and the optimizer's kernels for
many tensors at once, plain and under the runtime, and requires the same bytes. As python_trainer.py. EMU_OPERATORS
names the library of operators that an emulated GPU needs.
"""
import os

import python_trainer


def parts_of(model):
    """What is trained and how: one half by kernels that take a list of tensors, one by fused ones."""
    import torch
    layers = list(model)
    middle = len(layers) // 2
    for layers_of_half, kind in ((layers[:middle], "foreach"), (layers[middle:], "fused")):
        parameters = [parameter for layer in layers_of_half for parameter in layer.parameters()]
        yield torch.optim.AdamW(parameters, 1e-3, **{kind: True})


def train(seed, threads):
    """The trainer itself; knows nothing of Spillway. Returns named results."""
    import torch
    if "EMU_OPERATORS" in os.environ:
        torch.ops.load_library(os.environ["EMU_OPERATORS"])
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizers = list(parts_of(model))
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
    lines = []
    for _ in range(7):  # A plan waits for the times of the GPU, which come a step late.
        batch = torch.randn(256, 256).pin_memory().cuda(non_blocking=True)
        model.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.mse_loss(model(batch).float(), batch)
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        lines.append(f"loss {loss.item().hex()} scale {scaler.get_scale()}")
    for name, parameter in model.named_parameters():
        lines.append(f"{name} {python_trainer.digest_of(parameter.cpu())}")
        lines.append(f"{name}.grad {python_trainer.digest_of(parameter.grad.cpu())}")
        state = next(optimizer.state[parameter] for optimizer in optimizers if parameter in optimizer.state)
        lines.append(f"{name}.exp_avg {python_trainer.digest_of(state['exp_avg'].cpu())}")
    return lines


if __name__ == "__main__":
    python_trainer.main(train, __file__)
