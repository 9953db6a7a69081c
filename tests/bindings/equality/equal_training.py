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
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "bindings/awkward"), str(TESTS / "support")]
import run_case  # noqa: E402  pylint: disable=wrong-import-position
import trainer_script  # noqa: E402  pylint: disable=wrong-import-position

PERCENT = [75, 50, 35, 25, 1]  # The last one is raised to the smallest that works.


class Training(run_case.Session):
    """Makes runs whose results are the losses of the trainer and the bytes of its model."""

    def losses(self, name):
        return self.options.work / f"{name}.losses"

    def model(self, name):
        # torch::save writes the stem of the file name into the archive: all runs use the same one.
        folder = self.options.work / name
        folder.mkdir(exist_ok=True)
        return folder / "trained.model"

    def program(self, name):
        return [str(self.options.program), *self.options.flags,
                "--steps", str(self.options.steps), "--seed", str(self.options.seed),
                "--threads", str(self.options.threads),
                "--losses", str(self.losses(name)), "--save-model", str(self.model(name))]

    def start(self, name, command):
        run = super().start(name, command)
        if self.losses(name).exists() and self.model(name).exists():
            model = hashlib.sha256(self.model(name).read_bytes()).hexdigest()
            run.digest = f"{self.losses(name).read_text()}model {model}\n"
            run.digest_file.write_text(run.digest)
        return run


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s [options] case -- trainer flags")
    parser.add_argument("case")
    trainer_script.add_trainer_options(parser)
    parser.add_argument("--spillway", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    run_case.add_run_options(parser)
    parser.set_defaults(room=8192, timeout=900)
    options = trainer_script.parse(parser, sys.argv[1:])
    options.percent = options.percent or PERCENT
    if trainer_script.tell_missing_data(options):
        return trainer_script.SKIPPED
    try:
        run_case.compare_runtime(Training(options))
    except run_case.Failure as failure:
        print(f"FAILED: {options.case}: {failure}")
        return 1
    for left in options.work.glob("*/trained.model"):
        left.unlink()
        left.parent.rmdir()
    shutil.rmtree(options.work / "scratch", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
