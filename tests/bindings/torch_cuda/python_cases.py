#!/usr/bin/env python3
"""Trainers in Python that do one awkward thing of CUDA each; they know nothing of Spillway. Prints what two runs must
have in common: `python_cases.py CASE...`. EMU_OPERATORS names the library of operators that an emulated GPU needs.
"""
import ctypes
import hashlib
import io
import os
import sys
import threading

import torch

WIDTH = 256  # 256 KiB in a weight and in an activation.
BATCH = 256


def digest_of(tensor):
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def note(name, value):
    if isinstance(value, torch.Tensor):
        value = value.item().hex() if value.numel() == 1 else digest_of(value)
    print(name, value)


def note_model(model):
    for name, parameter in model.named_parameters():
        note(name, parameter)


def net(layers=6, dropout=0.1):
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Dropout(dropout)]
    return torch.nn.Sequential(*parts)


def batch(device="cuda"):
    return torch.randn(BATCH, WIDTH).to(device)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), x)
    loss.backward()
    optimizer.step()
    return loss.detach()


def plain():
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(4):
        note("loss", step(model, optimizer, batch()))
    note_model(model)


def streams():
    """Batches come on one stream, a copy follows on another one, and the step itself is not on the default one."""
    model = net().cuda()
    average = net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    copies, side, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    main.wait_stream(torch.cuda.current_stream())
    side.wait_stream(torch.cuda.current_stream())
    losses = []

    def fetch():
        with torch.cuda.stream(copies):
            x = torch.randn(BATCH, WIDTH).pin_memory().cuda(non_blocking=True)
            x = x * 0.5 + 0.1
            come = copies.record_event()
        return x, come

    ahead = fetch()
    for _ in range(4):
        x, come = ahead
        ahead = fetch()
        with torch.cuda.stream(main):
            main.wait_event(come)
            x.record_stream(main)
            main.wait_stream(side)
            losses.append(step(model, optimizer, x))
            del x
        side.wait_stream(main)
        with torch.cuda.stream(side), torch.no_grad():
            for to, parameter in zip(average.parameters(), model.parameters()):
                to.lerp_(parameter, 0.1)
            norm = sum(parameter.square().sum() for parameter in average.parameters())
            norm.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
        note("norm", norm)
    torch.cuda.synchronize()
    for loss in losses:
        note("loss", loss)
    note_model(average)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * BATCH

    def __getitem__(self, index):
        return torch.sin(torch.arange(WIDTH) * 0.01 * (index + 1))


def loader():
    """Children are forked while CUDA is in use, and their batches are pinned by a thread."""
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for workers in (2, 0):
        batches = torch.utils.data.DataLoader(Samples(), BATCH, shuffle=True, num_workers=workers, pin_memory=True,
                                              generator=torch.Generator().manual_seed(3))
        for x in batches:
            note("pinned", x.is_pinned())
            note("loss", step(model, optimizer, x.cuda(non_blocking=True)))
    note_model(model)


def memory_functions():
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    torch.cuda.set_per_process_memory_fraction(0.9)
    for number in range(4):
        torch.cuda.reset_peak_memory_stats()
        note("loss", step(model, optimizer, batch()))
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()
        note("live MiB", round(torch.cuda.memory_allocated() / 2**20, 1))
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
        assert torch.cuda.memory_reserved() >= 0
        assert "Allocated memory" in torch.cuda.memory_summary(abbreviated=number % 2 == 0)
        assert torch.cuda.memory_stats()["allocation.all.current"] > 20
        assert isinstance(torch.cuda.memory_snapshot(), list)
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total
    torch.cuda.memory._record_memory_history(max_entries=1000)
    note("loss", step(model, optimizer, batch()))
    assert torch.cuda.memory._snapshot()["segments"]
    torch.cuda.memory._record_memory_history(enabled=None)
    note_model(model)


def checkpointing():
    """Runs segments again, with the random numbers that they had."""
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential
    first, second, third = net(2).cuda(), net(2).cuda(), net(4).cuda()
    parameters = [*first.parameters(), *second.parameters(), *third.parameters()]
    optimizer = torch.optim.SGD(parameters, 1e-2, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        x = batch().requires_grad_()
        y = checkpoint(first, x, use_reentrant=True)
        y = checkpoint(second, y, use_reentrant=False)
        y = checkpoint_sequential(third, 2, y, use_reentrant=False)
        loss = torch.nn.functional.mse_loss(y, x.detach())
        loss.backward()
        optimizer.step()
        note("loss", loss)
        note("x.grad", x.grad)
    note_model(third)


def saved_on_cpu():
    model = net(dropout=0).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for pinned in (True, False, True):
        optimizer.zero_grad()
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
            x = batch()
            loss = torch.nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        note("loss", loss)
    note_model(model)


def save_and_resume():
    file = io.BytesIO()
    states = {}
    for part in range(3):
        model = net().cuda()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        if part:
            file.seek(0)
            where = {1: "cuda", 2: "cpu"}[part]
            state = torch.load(file, map_location=where, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            torch.cuda.set_rng_state(states["cuda"])
            torch.set_rng_state(states["cpu"])
        for _ in range(2):
            note("loss", step(model, optimizer, batch()))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        states = {"cuda": torch.cuda.get_rng_state(), "cpu": torch.get_rng_state()}
        note("random", states["cuda"])
    note_model(model)


def overflowing_amp():
    """The first steps overflow and are left out."""
    model = net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=2, backoff_factor=2.0**-8)
    for _ in range(6):
        optimizer.zero_grad()
        x = batch()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.mse_loss(model(x).float(), x)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        note("loss", loss)
        note("scale", scaler.get_scale())
    note_model(model)


def moving_model():
    """The model goes to the host and back between steps."""
    model = net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for number in range(3):
        note("loss", step(model, optimizer, batch()))
        model.cpu()
        if number == 1:
            note("loss on the host", step(model, optimizer, batch("cpu")))
        note_model(model)
        model.cuda()
    note("loss", step(model, optimizer, batch()))
    note_model(model)


def storage_exchange():
    """What sharding does with parameters: storages emptied, filled, flat, and views of them."""
    model = net(4, dropout=0).cuda()
    whole = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    for _ in range(3):
        for parameter, kept in zip(model.parameters(), whole):
            parameter.untyped_storage().resize_(0)
        more = [torch.randn(BATCH, WIDTH, device="cuda") for _ in range(12)]
        note("more", sum(each.sum() for each in more))
        for parameter, kept in zip(model.parameters(), whole):
            parameter.untyped_storage().resize_(kept.nbytes)
            with torch.no_grad():
                parameter.copy_(kept)
        x = batch()
        loss = torch.nn.functional.mse_loss(model(x), x)
        loss.backward()
        flat = torch.nn.utils.parameters_to_vector([parameter.grad for parameter in model.parameters()])
        note("flat", flat)
        at = 0
        for parameter in model.parameters():
            parameter.grad = flat.narrow(0, at, parameter.numel()).view_as(parameter)
            at += parameter.numel()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        whole = [(kept - parameter.grad.cpu()) for parameter, kept in zip(model.parameters(), whole)]
        model.zero_grad()
    for kept in whole:
        note("kept", kept)


def optimizers():
    forms = [(torch.optim.Adam, {"foreach": False}), (torch.optim.Adam, {"foreach": True}),
             (torch.optim.AdamW, {"fused": True, "amsgrad": True}), (torch.optim.AdamW, {"capturable": True}),
             (torch.optim.SGD, {"momentum": 0.9, "fused": True}), (torch.optim.RMSprop, {"foreach": True})]
    for kind, form in forms:
        model = net(4).cuda()
        optimizer = kind(model.parameters(), 1e-3, **form)
        for _ in range(3):
            note("loss", step(model, optimizer, batch()))
        note_model(model)


def mirrored(forms=((torch.optim.Adam, {"foreach": True}),
                    (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
                    (torch.optim.SGD, {"momentum": 0.9, "fused": True, "weight_decay": 0.01}),
                    (torch.optim.Adagrad, {"fused": False, "foreach": True, "weight_decay": 0.01}))):
    """Gradients update copies on the CPU, too, which the CPU's kernels give the bits that the GPU's tensors have."""
    for kind, form in forms:
        model = net(6, dropout=0).cuda()
        copies = [parameter.detach().cpu().requires_grad_() for parameter in model.parameters()]
        optimizer, of_copies = (kind(parameters, 1e-2, **form) for parameters in (model.parameters(), copies))
        for _ in range(4):
            optimizer.zero_grad()
            x = batch()
            loss = torch.nn.functional.mse_loss(model(x), x)
            loss.backward()
            for parameter, copy in zip(model.parameters(), copies):
                copy.grad = parameter.grad.cpu()
            optimizer.step()
            of_copies.step()
            note("loss", loss)
        note_model(model)
        for parameter, copy in zip(model.parameters(), copies):
            assert torch.equal(parameter.cpu(), copy)
            for name, value in of_copies.state[copy].items():
                assert torch.equal(optimizer.state[parameter][name].cpu(), value), name


def mirrored_adam():
    mirrored(((torch.optim.Adam, {"foreach": True}),))


def mirrored_tensors():
    mirrored(((torch.optim.Adam, {"foreach": False}),
              (torch.optim.SGD, {"momentum": 0.9, "foreach": False, "weight_decay": 0.01})))


def mirrored_masters(forms=((torch.optim.Adam, {"foreach": True}, "cast"),
                            (torch.optim.AdamW, {"fused": True}, "lists"),
                            (torch.optim.SGD, {"momentum": 0.9, "foreach": False}, "kept"))):
    """A model in bf16 whose trainer keeps fp32 masters; the same update of copies on the CPU has the same bits."""
    for kind, form, way in forms:
        model = net(6, dropout=0).cuda().bfloat16()
        parameters = list(model.parameters())
        masters = [parameter.detach().float().requires_grad_() for parameter in parameters]
        copies = [parameter.detach().cpu().float().requires_grad_() for parameter in parameters]
        optimizer, of_copies = (kind(tensors, 1e-2, **form) for tensors in (masters, copies))
        for number in range(4):
            x = batch().bfloat16()
            loss = torch.nn.functional.mse_loss(model(x), x)
            loss.backward()
            for parameter, copy in zip(parameters, copies):
                copy.grad = parameter.grad.cpu().float()
            with torch.no_grad():
                if way == "cast" or number == 0:
                    for parameter, master in zip(parameters, masters):
                        master.grad = parameter.grad.float()
                elif way == "lists":
                    torch._foreach_copy_([each.grad for each in masters], [each.grad for each in parameters])
                else:
                    for parameter, master in zip(parameters, masters):
                        master.grad.copy_(parameter.grad)
            optimizer.step()
            of_copies.step()
            with torch.no_grad():
                if way == "lists":
                    torch._foreach_copy_(parameters, masters)
                else:
                    for parameter, master in zip(parameters, masters):
                        parameter.copy_(master)
            model.zero_grad()
            note("loss", loss.float())
        for parameter, master, copy in zip(parameters, masters, copies):
            note("master", master)
            assert torch.equal(master.cpu(), copy)
            assert torch.equal(parameter.cpu(), copy.bfloat16())
            for name, value in of_copies.state[copy].items():
                assert torch.equal(optimizer.state[master][name].cpu(), value), name


def autocast_steps(validates=False):
    """Weights of the optimizer in fp32, copies of them in bf16 for forward."""
    model = net(4, dropout=0).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=True)
    for x in [batch() for _ in range(3)]:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x).float(), x)
        loss.backward()
        with torch.no_grad():  # Around both: no operator between them has gradients on, nor has a cast without cache.
            optimizer.step()
            with torch.autocast("cuda", torch.bfloat16, enabled=validates, cache_enabled=False):
                assert not validates or torch.isfinite(torch.nn.functional.mse_loss(model(x).float(), x))
        note("loss", loss)
    note_model(model)


def autocast_validation():
    autocast_steps(validates=True)


def small_results():
    """Between backward and update, weights of 48 KiB are read by operators whose results have up to 24 KiB."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 48), torch.nn.Linear(48, WIDTH)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        x = batch()
        torch.nn.functional.mse_loss(model(x), x).backward()
        with torch.no_grad():
            for weight in (model[0].weight, model[1].weight):
                note("narrow", weight.to(torch.bfloat16).float())
                note("wide", weight[:8].to(torch.float64))
                note("view", weight[:8].add(1))
                note("empty", weight[:0].add(1).add(weight[len(weight):].mul_(2)))
            for each in torch._foreach_add([model[0].weight[:8], model[0].weight], 1):
                note("list", each)
        optimizer.step()
    note_model(model)


def wide():
    """Tensors of 2 MiB."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8 * WIDTH), torch.nn.Linear(8 * WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=True)
    for _ in range(2):
        note("loss", step(model, optimizer, batch()))


def threads():
    """Two trainers in one process, each on a stream of its own."""
    torch.zeros(1, device="cuda")
    results = [None, None]

    def train(number, model, optimizer, generator):
        stream = torch.cuda.Stream()
        losses = []
        with torch.cuda.stream(stream):
            for _ in range(3):
                x = torch.randn(BATCH, WIDTH, generator=generator).cuda()
                losses.append(step(model, optimizer, x))
            stream.synchronize()
        results[number] = losses

    models = [net(4, dropout=0).cuda() for _ in range(2)]
    torch.cuda.synchronize()
    workers = [threading.Thread(target=train, args=(
        number, model, torch.optim.Adam(model.parameters(), 1e-3), torch.Generator().manual_seed(number)))
        for number, model in enumerate(models)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for losses, model in zip(results, models):
        for loss in losses:
            note("loss", loss)
        note_model(model)


def note_copies(x, other):
    """As they are, by a kernel that converts, and by one that goes by strides."""
    strided = torch.empty(WIDTH, BATCH, device=other).t()
    for copy in (x.to(other), x.to(other, torch.float64), strided.copy_(x, non_blocking=True)):
        note("copy", copy)


def two_devices():
    """One model, half of it on each GPU."""
    torch.cuda.manual_seed_all(5)
    first, second = net(5).to("cuda:0"), net(5).to("cuda:1")
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], 1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        x = batch("cuda:0")
        y = second(first(x).to("cuda:1"))
        loss = torch.nn.functional.mse_loss(y, x.to("cuda:1", non_blocking=True))
        loss.backward()
        optimizer.step()
        note("loss", loss)
        note_copies(x, "cuda:1")
        note_copies(y, "cuda:0")
    note_model(first)
    note_model(second)
    second.to("cuda:0")
    note_model(second)


def crossing_copies():
    """Two threads copy between two GPUs, the other way round: each needs most of both."""
    rows = 12 * BATCH  # 3 MiB.
    sums = {}

    def copy(source, target):
        mine = torch.ones(rows, WIDTH, device=source)
        for turn in range(8):
            theirs = torch.zeros(rows, WIDTH, device=target)
            theirs.copy_(mine)
            mine.copy_(theirs.add_(1))
            mine = mine.to(target).to(source)
        sums[source] = mine.sum()

    threads = [threading.Thread(target=copy, args=pair) for pair in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for source in sorted(sums):
        note("sum", sums[source])


def smaller_batch():
    """Halves a batch until it fits."""
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rows = int(os.environ.get("ROWS", "65536"))
    while rows > BATCH:
        try:
            step(model, optimizer, torch.ones(rows, WIDTH, device="cuda"))
        except torch.OutOfMemoryError as error:
            print(rows, "rows:", error, file=sys.stderr)
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            rows //= 4
            continue
        break
    torch.manual_seed(1)
    again = net().cuda()
    optimizer = torch.optim.Adam(again.parameters(), 1e-3)
    for _ in range(3):
        note("loss", step(again, optimizer, batch()))
    note_model(again)


def private_pool():
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    pool = torch.cuda.MemPool()
    kept = []
    for _ in range(4):
        with torch.cuda.use_mem_pool(pool):
            kept.append(torch.randn(BATCH, WIDTH, device="cuda"))
        note("loss", step(model, optimizer, kept[-1]))
    for each in kept:
        note("kept", each)
    del kept
    note_model(model)


def graphs():
    """Whole steps are captured and replayed, and so are the passes of a model that is called as ever; a third model
    has no graph."""
    captured, called, plainly = net(2).cuda(), net(2).cuda(), net(4).cuda()
    x = batch()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in (captured, called, plainly)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            note("loss", step(captured, optimizers[0], x))
    torch.cuda.current_stream().wait_stream(side)
    optimizers[0].zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(captured, optimizers[0], x)
    called = torch.cuda.make_graphed_callables(called, (x.clone(),))
    # LibTorch writes a graph's seeds on the stream of the capture, and at a launch on that of the launch, unordered.
    torch.cuda.synchronize()
    for _ in range(4):
        x.copy_(batch())
        graph.replay()
        note("captured loss", loss)
        note("called loss", step(called, optimizers[1], batch()))
        note("plain loss", step(plainly, optimizers[2], batch()))
    for model in (captured, called, plainly):
        note_model(model)


def full_cache():
    """LibTorch's own cache has much of the card: many small tensors lived for a while."""
    small = [torch.zeros(4096, device="cuda") for _ in range(int(os.environ.get("SMALL", "256")))]
    del small
    plain()


def too_large():
    torch.zeros(1 << 26, device="cuda")


def anomaly():
    torch.autograd.set_multithreading_enabled(False)
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with torch.autograd.detect_anomaly(check_nan=True):
        for _ in range(2):
            note("loss", step(model, optimizer, batch()))
        try:
            (model(batch()) - 100).sqrt().mean().backward()
        except RuntimeError as error:
            note("error", str(error).splitlines()[0])
    optimizer.zero_grad()
    note("loss", step(model, optimizer, batch()))
    note_model(model)


def own_streams():
    """Memory made past the operators on streams of the program's own, which are gone when it is freed."""
    runtime = ctypes.CDLL("libcudart.so.13")
    for _ in range(8):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
        with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
            storage = torch.UntypedStorage(1 << 20, device="cuda")
        torch.cuda.synchronize()
        assert runtime.cudaStreamDestroy(handle) == 0
        del storage
    plain()


def exported():
    """Another library, or one more tensor of ours, by the pointer that DLPack hands on."""
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    shared = torch.randn(BATCH, WIDTH, device="cuda")
    other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(shared))
    for _ in range(3):
        note("loss", step(model, optimizer, batch()))
        other.mul_(0.5)
        note("shared", shared)
        shared.add_(1)
        note("other", other)


def raw_kernels():
    """Work past the operators goes by Python's pointers: each taken anew, as Triton does, or once and kept."""
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaMemsetAsync.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    runtime.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                        ctypes.c_void_p]
    device_to_device = 3
    model = net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    written, copied, shown, exported = (torch.randn(BATCH, WIDTH, device="cuda") for _ in range(4))
    torch.utils.dlpack.to_dlpack(exported)  # Nobody is asked for the pointer of a storage.
    kept = (shown.__cuda_array_interface__["data"][0], exported.untyped_storage().data_ptr())
    for number in range(3):
        note("loss", step(model, optimizer, batch()))
        stream = torch.cuda.current_stream().cuda_stream
        half = written.nbytes // 2
        assert runtime.cudaMemsetAsync(written.data_ptr(), number + 1, half, stream) == 0
        for pointer in kept:
            assert runtime.cudaMemsetAsync(pointer, number + 5, half, stream) == 0
        weight = next(model.parameters())
        size = min(weight.nbytes, copied.nbytes)
        assert runtime.cudaMemcpyAsync(copied.data_ptr(), weight.data_ptr(), size, device_to_device, stream) == 0
        note("loss", step(model, optimizer, batch()))
        for tensor in (written, copied, shown, exported):
            note("tensor", tensor)


def too_many_pointers():
    tensors = [torch.full((1 << 18,), float(i), device="cuda") for i in range(8)]
    try:
        print(len({tensor.data_ptr() for tensor in tensors}))
    except torch.OutOfMemoryError as error:
        print(type(error).__name__, "find no room in the budget of 4.00 MiB of cuda:0" in str(error) or str(error))
    last = tensors.pop()
    tensors.clear()  # What the others have is free again.
    note("last", last)


def convolutions():
    """Channels last, bfloat16, batch norm."""
    layers = []
    for _ in range(4):
        layers += [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True)]
    model = torch.nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    for _ in range(3):
        x = torch.randn(8, 16, 32, 32).cuda().contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x).float(), x)
        loss.backward()
        optimizer.step()
        note("loss", loss)
    note_model(model)


def main(names):
    if "EMU_OPERATORS" in os.environ:
        torch.ops.load_library(os.environ["EMU_OPERATORS"])
    torch.set_num_threads(1)
    for name in names:
        torch.manual_seed(1)
        print("case", name)
        globals()[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
