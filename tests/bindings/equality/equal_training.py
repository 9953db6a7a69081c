#!/usr/bin/env python3
"""Trains an example under several budgets and requires the losses and the model of the plain run.

  equal_training.py NAME --program TRAINER --spillway S --work FOLDER [--data PATH]... -- FLAG...

The flags after -- size the trainer. Exit status: 0 all equal, 1 not, 77 a --data path, which the
trainer reads, is not on this machine.
"""
import argparse
import hashlib
import pathlib
import shutil
import signal
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "bindings/awkward"), str(TESTS / "support")]
import run_case  # noqa: E402  pylint: disable=wrong-import-position
import trainer_script  # noqa: E402  pylint: disable=wrong-import-position

PERCENT = [75, 50, 35, 25, 1]  # The last one is raised to the smallest that works.
MAY_RAISE = 24  # No share that is named above, then.
RESUMED = ("plain", "budget_25", "budget_1")  # Runs from whose checkpoint one more step is done.


class Training(run_case.Session):
    """Makes runs whose results are the losses of the trainer and the bytes of its model.

    A plain run does one more step from the checkpoints of some of them, which shows what optimizer
    and generator hold. Their bytes cannot be compared: LibTorch writes addresses into the archive
    of an optimizer."""

    after_resuming = None  # Results of one more step from the checkpoint of the plain run.

    def losses(self, name):
        return self.options.work / f"{name}.losses"

    def folder(self, name):
        # torch::save writes the stem of the file name into the archive: all runs use the same one.
        folder = self.options.work / name
        folder.mkdir(exist_ok=True)
        return folder

    def model(self, name):
        return self.folder(name) / "trained.model"

    def checkpoint(self, name):
        return self.folder(name) / "trained.checkpoint"

    def training(self, name, steps, *flags):
        return [str(self.options.program), *self.options.flags,
                "--steps", str(steps), "--seed", str(self.options.seed),
                "--threads", str(self.options.threads), "--losses", str(self.losses(name)),
                "--save-model", str(self.model(name)), *flags]

    def program(self, name):
        flags = ["--checkpoint", str(self.checkpoint(name))] if name in RESUMED else []
        return self.training(name, self.options.steps, *flags)

    def start(self, name, command):
        run = super().start(name, command)
        if self.losses(name).exists() and self.model(name).exists():
            run.digest = self.results(name)
            run.digest_file.write_text(run.digest)
            if name in RESUMED:
                self.compare_one_more_step(run)
        return run

    def results(self, name):
        model = hashlib.sha256(self.model(name).read_bytes()).hexdigest()
        return f"{self.losses(name).read_text()}model {model}\n"

    def compare_one_more_step(self, run):
        checkpoint, name = self.checkpoint(run.name), f"{run.name}_resumed"
        more = super().start(name, self.training(name, self.options.steps + 1,
                                                 "--resume", str(checkpoint)))
        if more.status == 0:
            more.digest = self.results(name)
            more.digest_file.write_text(more.digest)
        if self.after_resuming is None:
            self.after_resuming = more
        more.require_same(self.after_resuming)
        checkpoint.unlink()  # As large as the model and its optimizer, once for each run.


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s [options] case -- trainer flags")
    parser.add_argument("case")
    trainer_script.add_trainer_options(parser)
    parser.add_argument("--spillway", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    run_case.add_run_options(parser)
    parser.set_defaults(room=8192, timeout=900, may_raise=MAY_RAISE)
    options = trainer_script.parse(parser, sys.argv[1:])
    options.percent = options.percent or PERCENT
    if trainer_script.tell_missing_data(options):
        return trainer_script.SKIPPED
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        run_case.compare_runtime(Training(options))
    except run_case.Failure as failure:
        print(f"FAILED: {options.case}: {failure}")
        return 1
    for left in options.work.glob("*/trained.model"):
        shutil.rmtree(left.parent)
    shutil.rmtree(options.work / "scratch", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
