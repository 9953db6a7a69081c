#!/usr/bin/env python3
"""What does a step of a trainer ask of CUDA, without Spillway and under it?

Counts calls on the emulated GPU, where the same program makes the same calls in each run. No times: there they
mean nothing.

  main.py            counts, and writes results.json and the table in README.md
  main.py --check    counts, and requires what results.json has, exactly or as a bound

Sizes and steps are the same whatever --tiny and --steps ask for.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, training  # noqa: E402  pylint: disable=wrong-import-position
from budget_text import as_option  # noqa: E402  pylint: disable=wrong-import-position
from clean_environment import clean_environment  # noqa: E402  pylint: disable=wrong-import-position
from small_gpu import SMALL_GPU  # noqa: E402  pylint: disable=wrong-import-position

# The data that they read, and flags. Sizes are those of tests/bindings/equality, where the largest operator is
# below a quarter of the need.
EXAMPLES = {
    "brain_unet": ("/usr/share/mricron/templates/ch2.nii.gz",
                   ("--preset", "tiny", "--patch", "32x32x32", "--kernel", "factored", "--convs", "3")),
    "photo_net": ("/usr/share/backgrounds",
                  ("--preset", "tiny", "--crop", "128x128", "--blocks", "6")),
    "text_gpt": ("/usr/share/common-licenses",
                 ("--preset", "tiny", "--batch", "1", "--context", "128", "--width", "192", "--warmup-steps", "5"))}
SURROUNDINGS = {**SMALL_GPU, "EMU_CUDA_TRACE": "1"}
STEPS = (5, 7)  # What the longer run has more is that of two steps.
CALLS = re.compile(r"^emulated CUDA: +(\d+) calls of (\w+) by (.*)$", re.MULTILINE)
STREAM_WAITS = re.compile(r"^cudaStreamWaitEvent$")
WAITS = re.compile(r"^cuda\w+Synchronize$|^cudaMemcpy$|^cudaFree(Host)?$")
SPILLWAY_THREAD = re.compile(r"^spill")
COUNTED = {
    "copies": re.compile(r"^cudaMemcpy(Peer)?Async$"),
    "events recorded": re.compile(r"^cudaEventRecordWithFlags$"),  # cudaEventRecord calls it.
    "mapped": re.compile(r"^cuMemMap$"),
    "unmapped": re.compile(r"^cuMemUnmap$"),
    "host functions": re.compile(r"^cudaLaunchHostFunc$"),
}
# Polled, so their number depends on how fast the rest is.
POLLED = re.compile(r"^cuda(Event|Stream)Query$")


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
            raise training.Failure(f"{name}: exit status {done.returncode}\n"
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
        figures["streams that wait"] = calls(STREAM_WAITS, (False,))
        figures["Spillway's streams that wait"] = calls(STREAM_WAITS, (True,))
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


# The same in each run.
FIXED = {"plain": ("copies", "events recorded", "streams that wait", "waits of the program"),
         "room": ("operators", "copies", "MiB out", "MiB in", "streams that wait",
                  "Spillway's streams that wait", "waits of the program",
                  "waits of Spillway's threads", "host functions"),
         "50 %": ("operators", "waits of the program", "waits of Spillway's threads", "streams that wait")}
# How often the GPU is asked, by an event and a poll, depends on which work has ended by then: with room a quarter
# more than the most that was kept is allowed, and so many more for each operator. Which pages are unmapped first,
# and with half of the memory what is moved when, depends on that, too, and has no bound.
MARGIN = 1.25
MORE_OF_AN_OPERATOR = {"events recorded": 1 / 8, "polls": 2}
HEADS = ("operators", "copies", "MiB out", "MiB in", "events recorded", "streams that wait",
         "Spillway's streams that wait", "waits of the program",
         "waits of Spillway's threads", "polls", "mapped", "unmapped", "host functions")


def shown(value, is_fixed):
    if value is None:
        return "-"
    text = f"{max(value, 0):.1f}".removesuffix(".0")  # Of two runs, the longer one may have mapped less.
    return text if is_fixed or not value else f"up to {text}"


def most_of(rounds):
    """By name and way; what has to be the same in each is."""
    def most(name, way, what):
        values = [each[name][way][what] for each in rounds]
        if what in FIXED[way] and len(set(values)) > 1:
            raise training.Failure(f"{name}, {way}: {what}: {values} a step, these should be the same")
        return max(values)

    return {name: {way: {what: most(name, way, what) for what in figures} for way, figures in ways.items()}
            for name, ways in rounds[0].items()}


def differences(kept, now):
    """Figures that are not what they have to be, one a line."""
    wrong = []
    for name, ways in now.items():
        for way, figures in ways.items():
            before = kept[name][way]
            wrong += [f"{name}, {way}: {what}: {figures[what]} a step, {before[what]} is kept"
                      for what in FIXED[way] if figures[what] != before[what]]
        figures, before = ways["room"], kept[name]["room"]
        for what, more in MORE_OF_AN_OPERATOR.items():
            allowed = MARGIN * before[what] + more * before["operators"]
            if figures[what] > allowed:
                wrong.append(f"{name}, room: {what}: {figures[what]} a step, {allowed} are allowed")
    return wrong


class CudaStep(report.Benchmark):
    rounds, quick_rounds = 3, 1
    steps = quick_steps = STEPS[1]
    skipped = STEPS[0]
    has_plot = False

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--check", action="store_true", help="compare one round with results.json")
        self.parser.add_argument("--example", choices=EXAMPLES, action="append", help="only this one, to check")

    def extent(self, results):
        return f"Rounds: {results['rounds']}."

    def check(self, options):
        super().check(options)
        if options.example and not options.check:
            self.parser.error("--example is for --check: the table is of all of them")

    def examples(self, options):
        """Of those whose data is on this machine: by name and way, what is counted in a step."""
        with tempfile.TemporaryDirectory(prefix="spillway-step-", dir=options.disk) as work:
            counter = Counter(options.bin, pathlib.Path(work))
            return {name: counter.example(name) for name in options.example or EXAMPLES
                    if pathlib.Path(EXAMPLES[name][0]).exists()}

    def measure(self, options):
        found = self.examples(options)
        missing = EXAMPLES.keys() - found.keys()
        if missing:
            raise training.Failure(f"{', '.join(sorted(missing))}: the data is not on this machine")
        others = [self.examples(options) for _ in range(1, options.rounds)]
        return {"examples": most_of([found, *others])}

    def report(self, results, folder):
        rows = [(name, way, *(shown(figures.get(head), head in FIXED[way]) for head in HEADS))
                for name, ways in results["examples"].items() for way, figures in ways.items()]
        return report.table(("example", "with", *HEADS), rows)

    def run(self):
        options = self.parser.parse_args()
        if options.check:
            sys.exit(self.compare(options))
        super().run()

    def compare(self, options):
        """The exit status: 77 where there is nothing to compare."""
        try:
            found = self.examples(options)
        except training.Failure as failure:
            raise SystemExit(f"FAILED: {failure}") from None
        if not found:
            print("skipped: the data of the examples is not on this machine")
            return 77
        kept = json.loads((options.into / "results.json").read_text(encoding="utf-8"))["examples"]
        wrong = differences(kept, found)
        print("\n".join(wrong) or self.report({"examples": found}, None))
        return 1 if wrong else 0


if __name__ == "__main__":
    CudaStep().run()
