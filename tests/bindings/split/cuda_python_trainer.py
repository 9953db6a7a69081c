"""Trains a small model on a GPU as users do in Python: dropout, mixed precision, optimizers of lists and fused ones, an
archive at the end. Prints the bits of its losses. EMU_OPERATORS names the library that an emulated GPU needs."""
import os

import torch

torch.ops.load_library(os.environ["EMU_OPERATORS"])
torch.set_num_threads(1)
torch.manual_seed(5)
layers = []
for _ in range(4):
    layers += [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)]
model = torch.nn.Sequential(*layers).cuda()
parameters = list(model.parameters())
half = len(parameters) // 2
optimizers = [torch.optim.AdamW(parameters[:half], 1e-3, foreach=True),
              torch.optim.AdamW(parameters[half:], 1e-3, fused=True)]
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
for step in range(3):
    batch = torch.randn(256, 256).pin_memory().cuda(non_blocking=True)
    model.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.mse_loss(model(batch).float(), batch)
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    print(step, loss.item().hex())
torch.save({"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "numbers": torch.cuda.get_rng_state()}, "saved.pt")
