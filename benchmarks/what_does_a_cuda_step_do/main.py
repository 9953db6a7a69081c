#!/usr/bin/env python3
"""What does a step of a trainer ask of CUDA, without Spillway and under it?

Counts calls on the emulated GPU, where the same program makes the same calls in each run. No times: there they
mean nothing.

  main.py            counts, and writes results.json and the table in README.md
  main.py --check    counts, and requires those figures of results.json that are the same in each run
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from measure.report import REPOSITORY, replace_between_markers, table  # noqa: E402
from budget_text import as_option  # noqa: E402
from clean_environment import clean_environment  # noqa: E402

# The data that they read, and flags. Sizes are those of tests/bindings/equality, where the largest operator is
# below a quarter of the need.
EXAMPLES = {
    "brain_unet": ("/usr/share/mricron/templates/ch2.nii.gz",
                   ("--preset", "tiny", "--patch", "32x32x32", "--kernel", "factored", "--convs", "3")),
    "photo_net": ("/usr/share/backgrounds",
                  ("--preset", "tiny", "--crop", "128x128", "--blocks", "6")),
    "text_gpt": ("/usr/share/common-licenses",
                 ("--preset", "tiny", "--batch", "1", "--context", "128", "--width", "192", "--warmup-steps", "5"))}
SURROUNDINGS = {"OMP_NUM_THREADS": "1", "EMU_CUDA_GRAIN": "64KiB", "CUBLAS_WORKSPACE_CONFIG": ":16:8",
                "EMU_CUDA_TRACE": "1"}
STEPS = (5, 7)  # What the longer run has more is that of two steps.
CALLS = re.compile(r"^emulated CUDA: +(\d+) calls of (\w+) by (.*)$", re.MULTILINE)
WAITS = re.compile(r"^cuda\w+Synchronize$|^cudaMemcpy$|^cudaFree(Host)?$")
SPILLWAY_THREAD = re.compile(r"^spill")
COUNTED = {
    "copies": re.compile(r"^cudaMemcpy(Peer)?Async$"),
    "events recorded": re.compile(r"^cudaEventRecordWithFlags$"),  # cudaEventRecord calls it.
    "streams that wait": re.compile(r"^cudaStreamWaitEvent$"),
    "mapped": re.compile(r"^cuMemMap$"),
    "unmapped": re.compile(r"^cuMemUnmap$"),
    "host functions": re.compile(r"^cudaLaunchHostFunc$"),
}
# Polled, so their number depends on how fast the rest is.
POLLED = re.compile(r"^cuda(Event|Stream)Query$")
WAYS = ("plain", "room", "50 %")


class Counter:
    def __init__(self, binaries, work):
        self.binaries, self.work = binaries, work

    def trainer(self, name, steps):
        _, flags = EXAMPLES[name]
        return [self.binaries / f"{name}_on_emulated_cuda", *flags, "--device", "cuda", "--threads", "1",
                "--steps", steps]

    def run(self, words, name):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                              env=clean_environment(**SURROUNDINGS, TMPDIR=str(self.work)))
        if done.returncode != 0:
            raise SystemExit(f"FAILED: {name}: exit status {done.returncode}\n"
                             f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stderr

    def once(self, name, budget, steps):
        """Calls by (function, is Spillway's thread), and statistics; budget None: without Spillway."""
        words, stats = self.trainer(name, steps), self.work / "stats.json"
        if budget is not None:
            words = [self.binaries / "spillway", "run", "--budget", f"cuda={budget},cpu=4GiB", "--min-storage", "32KiB",
                     "--planning", "at-once", "--recompute", "off", "--nvme", f"ram:64MiB,{self.work}",
                     "--stats", stats, "--", *words]
        calls = collections.Counter()
        for number, function, thread in CALLS.findall(self.run(words, name)):
            calls[function, bool(SPILLWAY_THREAD.match(thread))] += int(number)
        told = {} if budget is None else json.loads(stats.read_text(encoding="utf-8"))["devices"][0]
        return calls, told

    def per_step(self, name, budget):
        """(figures, need in bytes)"""
        (fewer, before), (more, after) = (self.once(name, budget, steps) for steps in STEPS)
        between = STEPS[1] - STEPS[0]

        def calls(pattern, of_spillway=(False, True)):
            return sum(more[key] - fewer[key] for key in more
                       if pattern.match(key[0]) and key[1] in of_spillway) / between

        figures = {what: calls(pattern) for what, pattern in COUNTED.items()}
        figures["waits of the program"] = calls(WAITS, (False,))
        figures["waits of Spillway's threads"] = calls(WAITS, (True,))
        figures["polls"] = calls(POLLED)
        for what, key in (("operators", "ops"), ("MiB out", "spilled_bytes"), ("MiB in", "fetched_bytes")):
            if after:
                figures[what] = (after[key] - before[key]) / between / (1 if key == "ops" else 1 << 20)
        return figures, after.get("needed_bytes", 0) + after.get("small_peak_bytes", 0)

    def example(self, name):
        ways = {"plain": self.per_step(name, None)[0]}
        ways["room"], needed = self.per_step(name, "4GiB")
        ways["50 %"] = self.per_step(name, as_option(needed // 2))[0]
        return ways


# The same in each run. Which pages are unmapped first, and with half of the memory what is moved when,
# depends on which work has ended by then.
FIXED = {"plain": ("copies", "events recorded", "streams that wait", "waits of the program"),
         "room": ("operators", "copies", "MiB out", "MiB in", "events recorded", "streams that wait",
                  "waits of the program", "waits of Spillway's threads", "host functions"),
         "50 %": ("operators", "waits of the program", "waits of Spillway's threads", "streams that wait")}


def report(results):
    heads = ("operators", "copies", "MiB out", "MiB in", "events recorded", "streams that wait",
             "waits of the program", "waits of Spillway's threads", "polls", "mapped", "unmapped", "host functions")
    rows = []
    for name, ways in results.items():
        for way, figures in ways.items():
            rows.append((name, way, *(shown(figures.get(head), head in FIXED[way]) for head in heads)))
    return table(("example", "with", *heads), rows)


def shown(value, is_fixed):
    if value is None:
        return "-"
    text = f"{value:.1f}".removesuffix(".0")
    return text if is_fixed else f"about {text}" if value else text


def differences(kept, now):
    """Figures that are to be the same and are not, one a line."""
    return [f"{name}, {way}: {what}: {now[name][way].get(what)} a step, {kept[name][way].get(what)} is kept"
            for name, ways in now.items() for way in ways for what in FIXED[way]
            if now[name][way].get(what) != kept[name][way].get(what)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "build/release/bin")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--report", action="store_true", help="count nothing, write the table again")
    parser.add_argument("--example", choices=EXAMPLES, action="append", help="only this one, to check")
    options = parser.parse_args()
    kept_file, readme = FOLDER / "results.json", FOLDER / "README.md"
    if options.report:
        results = json.loads(kept_file.read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory(prefix="spillway-step-", dir="/var/tmp") as work:
            counter = Counter(options.bin, pathlib.Path(work))
            results = {name: counter.example(name) for name in options.example or EXAMPLES
                       if pathlib.Path(EXAMPLES[name][0]).exists()}
    if not results:
        print("skipped: the data of the examples is not on this machine")
        return 77
    text = readme.read_text(encoding="utf-8")
    if options.check:
        kept = json.loads(kept_file.read_text(encoding="utf-8"))
        wrong = differences(kept, results)
        if text != replace_between_markers(text, report(kept)):
            wrong.append(f"{readme.name} is not what --report makes of {kept_file.name}")
        print("\n".join(wrong) or report(results))
        return 1 if wrong else 0
    kept_file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    readme.write_text(replace_between_markers(text, report(results)), encoding="utf-8")
    print(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
