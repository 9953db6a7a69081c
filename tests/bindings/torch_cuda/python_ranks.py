#!/usr/bin/env python3
"""A trainer of several processes with a GPU each, started by torchrun; knows nothing of Spillway. Writes what two runs
must have in common: `python_ranks.py FORM BACKEND FOLDER`, FORM being ddp, hook or sharded. EMU_OPERATORS as in
python_cases.py.
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist

import python_cases

STEPS = 5


def wrapped(form, model, device):
    if form == "sharded":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    parallel = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[device.index], bucket_cap_mb=0.6, gradient_as_bucket_view=form == "hook")
    if form == "hook":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return parallel


class Lists:
    """Collectives that take lists of tensors, some of them lists of lists. What they use has been made long before, and
    the trainer goes on beside them."""

    def __init__(self, device):
        made = [torch.full((64, python_cases.WIDTH), float(i + 1), device=device) for i in range(10)]
        self.gathered, self.all, self.scattered, self.summands = made[:2], made[2:4], made[4:6], made[6:8]
        self.part, self.sum = made[8:]
        # A flat buffer that is larger than all room, of which a slice is in use.
        flat = torch.empty(6 << 10, python_cases.WIDTH, device=device)
        self.slice = flat.narrow(0, 128, 64 * dist.get_world_size())
        self.part_of_slice = flat.narrow(0, 4 << 10, 64)

    def start(self, loss):
        for tensor in (*self.scattered, *self.summands):
            tensor.mul_(loss.detach())
        self.slice.copy_(self.summands[0].repeat(dist.get_world_size(), 1))
        first = dist.get_rank() == 0
        self.works = [dist.all_gather(self.all, self.summands[0], async_op=True),
                      dist.gather(self.summands[1], self.gathered if first else None, async_op=True),
                      dist.scatter(self.part, self.scattered if first else None, async_op=True),
                      dist.reduce_scatter(self.sum, self.summands, async_op=True),
                      dist.reduce_scatter_tensor(self.part_of_slice, self.slice, async_op=True)]

    def end(self):
        for work in self.works:
            work.wait()
        results = [*self.gathered, *self.all, self.part, self.sum, self.part_of_slice]
        return [f"list {python_cases.digest_of(result)}" for result in results]


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def main(form, backend, folder):
    if "EMU_OPERATORS" in os.environ:
        torch.ops.load_library(os.environ["EMU_OPERATORS"])
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group(backend)
    torch.manual_seed(1)
    model = wrapped(form, python_cases.net(dropout=0).to(device), device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.Generator().manual_seed(10 + dist.get_rank())
    lines = []
    for number in range(STEPS):
        optimizer.zero_grad()
        lists = Lists(device) if form == "ddp" else None
        parts = 2 if form != "sharded" and number == 2 else 1
        for part in range(parts):
            x = torch.randn(python_cases.BATCH, python_cases.WIDTH, generator=data).pin_memory().to(
                device, non_blocking=True)
            synchronised = part + 1 == parts
            if not synchronised:
                with model.no_sync():
                    torch.nn.functional.mse_loss(model(x), x).backward()
                continue
            loss = torch.nn.functional.mse_loss(model(x), x)
            loss.backward()
        if lists:
            lists.start(loss)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        lines += lists.end() if lists else []
        lines += [f"loss {loss.item().hex()}", f"mean {mean.item().hex()}", f"norm {whole(norm).item().hex()}"]
    for name, parameter in model.named_parameters():
        lines.append(f"{name} {python_cases.digest_of(whole(parameter))}")
    pathlib.Path(folder, f"rank{dist.get_rank()}").write_text("\n".join(lines) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
