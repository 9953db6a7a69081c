#!/usr/bin/env python3
"""Trains a small model in Python, plain and under the runtime, and requires the same bytes.

The interpreter is the one that SPILLWAY_TEST_PYTHON names, or the one that this file is given to.
Exit status 77 (skipped) where it cannot import a torch that the command serves.
"""
import argparse
import os
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "bindings/awkward"), str(TESTS / "support")]
import run_case  # noqa: E402  pylint: disable=wrong-import-position
from clean_environment import clean_environment  # noqa: E402  pylint: disable=wrong-import-position
import torch_of_python  # noqa: E402  pylint: disable=wrong-import-position
import trainer_script  # noqa: E402  pylint: disable=wrong-import-position


def digest_of(tensor):
    import hashlib
    # Through numpy: bytes() of a storage asks for its elements one by one, which takes minutes.
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def counted_calls():
    """A mode that counts the operators it sees, as counters of FLOPs do."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountedCalls(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    return CountedCalls()


def train(seed, threads):
    """The trainer itself; knows nothing of Spillway. Returns named results."""
    import io
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    kept = model[3].weight.detach().numpy()  # Shares memory with the parameter.
    lines = []
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        with counted_calls() as calls:
            hidden = model[:6](torch.randn(512, 1024))
        lines.append(f"calls {calls.count}")
        loss = torch.nn.functional.mse_loss(model[6:](hidden), torch.randn(512, 1024))
        loss.backward()
        optimizer.step()
        kept[step] *= 0.5
        lines.append(f"loss {loss.item().hex()}")
        lines.append(f"kept {float(kept.sum()).hex()}")
        if step == 1:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
    for name, parameter in model.named_parameters():
        lines.append(f"{name} {digest_of(parameter)}")
        lines.append(f"{name}.grad {digest_of(parameter.grad)}")
        lines.append(f"{name}.exp_avg {digest_of(optimizer.state[parameter]['exp_avg'])}")
    return lines


def run_trainer(train_it, arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args(arguments)
    options.out.write_text("\n".join(train_it(options.seed, options.threads)) + "\n")


def compare(options, script):
    class Session(run_case.Session):
        def program(self, name):
            words = super().program(name)
            return [sys.executable, script, "--train", *words[1:]]

    options.case, options.program = pathlib.Path(script).stem, pathlib.Path(script)
    try:
        run_case.compare_runtime(Session(options))
    except run_case.Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)


def main(train_it, script):
    if sys.argv[1:2] == ["--train"]:
        run_trainer(train_it, sys.argv[2:])
        return
    named = os.environ.get("SPILLWAY_TEST_PYTHON", "")
    if named and named != sys.executable:
        os.execvpe(named, [named, *sys.argv], clean_environment())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spillway", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    run_case.add_run_options(parser)
    options = parser.parse_args()
    options.percent = options.percent or [50, 25]
    reason = torch_of_python.reason_to_skip(sys.executable, options.spillway)
    if reason:
        print("skipped: " + reason)
        sys.exit(trainer_script.SKIPPED)
    compare(options, script)


if __name__ == "__main__":
    main(train, __file__)
