"""The parts of a test on a GPU. Each gives figures, or raises the reason why it has none."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import typing

from places import GPU_TESTS, ROOT
from budget_text import as_option  # places has made these known.
from measure import side_by_side, training

PERCENT = (75, 50, 25)
HOST_ROOM = "cpu=50%"
PLENTY = "90%"  # Of the GPU, which libraries need a little of, too.


class Skipped(Exception):
    """Why a part was left out."""


class Failed(Exception):
    """What went wrong."""


# What they test may be what hangs. Others measure, and a machine may be too slow for that.
MUST_END = frozenset({"cases", "equality", "sanitizer"})


@dataclasses.dataclass
class Sizes:
    """What is trained and copied. Flags by example: to compare bits, and to measure."""

    equality: dict
    speed: dict
    state: tuple
    equality_steps: int
    turns: int
    turn_steps: int
    tests: tuple
    bench: tuple
    figures: tuple
    room: str
    options: tuple = ()


REAL = Sizes(
    equality={"brain_unet": ("--preset", "tiny", "--patch", "64x64x64", "--kernel", "factored"),
              "photo_net": ("--preset", "tiny", "--crop", "256x256", "--blocks", "6"),
              "text_gpt": ("--preset", "tiny", "--batch", "4", "--layers", "8")},
    speed={"brain_unet": ("--patch", "144x144x144", "--kernel", "factored"),
           "photo_net": ("--crop", "1024x1024", "--blocks", "8", "--batch", "2"),
           "text_gpt": ("--preset", "activations", "--layers", "12", "--batch", "16")},
    state=("--preset", "parameters", "--layers", "12"),
    equality_steps=4, turns=4, turn_steps=8, tests=GPU_TESTS, bench=(),
    figures=("4", "16", "9", "8192", "bfloat16"), room=PLENTY)
# The same in little, where times mean nothing.
REHEARSED = Sizes(
    equality={"text_gpt": ("--preset", "tiny", "--batch", "1", "--context", "128", "--width", "192",
                           "--warmup-steps", "5")},
    speed={"text_gpt": ("--preset", "tiny", "--batch", "1", "--context", "64", "--width", "96", "--layers", "4")},
    state=("--preset", "tiny", "--batch", "1", "--context", "16", "--width", "192"),
    equality_steps=3, turns=1, turn_steps=2, tests=GPU_TESTS[:2],
    bench=("--blocks", "4MiB", "--depths", "1,2", "--repetitions", "1", "--chunks", "2MiB"),
    figures=("1", "2", "1", "64", "float"), room="4GiB",
    options=("--min-storage", "32KiB", "--planning", "at-once"))


def end(program):
    """Ends it and what it has started, of which a script is told first."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(program.pid, number)
            program.communicate(timeout=seconds)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


class Context:
    """What a part works with; `seconds_left` are those of the part. `late` is raised where they do not do."""

    def __init__(self, place, sizes, work, options):
        self.place, self.sizes, self.work, self.options = place, sizes, work, options
        self.end = time.monotonic()
        self.late = Skipped

    def begin(self, name, seconds):
        self.end = time.monotonic() + seconds
        self.late = Failed if name in MUST_END else Skipped

    def seconds_left(self):
        left = self.end - time.monotonic()
        if left <= 1:
            raise self.late("its time is over")
        return left

    def run(self, words, *, may_fail=False, **variables):
        """A finished program; `late` where the part's time ends before it does."""
        words = [str(word) for word in words]
        limit = self.seconds_left()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        with subprocess.Popen(words, **pipes, env=self.place.environment(**variables), cwd=self.work,
                              start_new_session=True) as program:
            try:
                output, errors = program.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                end(program)
                raise self.late(f"no end in the time of this part: {pathlib.Path(words[0]).name}") from None
            except BaseException:
                end(program)
                raise
        done = subprocess.CompletedProcess(words, program.returncode, output, errors)
        if done.returncode != 0 and not may_fail:
            raise Failed(f"exit status {done.returncode}: {' '.join(words)}\n"
                         f"{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done

    def training(self, name, flags, steps):
        """The words of a trainer; Skipped where its data is not here."""
        data = self.place.data(name)
        if data is None:
            raise Skipped(f"the data of {name} is not on this machine")
        return [self.place.example(name), *data[1], *flags, "--device", "cuda", "--threads", "1",
                "--steps", str(steps)]

    def under(self, budget, stats, *options):
        """The words before a trainer's; `budget` is the GPU's."""
        return [self.place.program("spillway"), "run", "--budget", f"cuda={budget},{HOST_ROOM}", "--stats", stats,
                "--nvme", self.spilled_to(), *self.sizes.options, *options, "--"]

    def spilled_to(self):
        """Of a budget of some MiB the share of host memory that runs take by themselves would be too little."""
        return f"ram:64MiB,{self.work}" if self.place.emulated else str(self.work)

    def statistics(self, file):
        """Those of the only GPU that was used."""
        if not file.exists():
            raise Failed(f"{file.name}: Spillway wrote no statistics")
        device, = json.loads(file.read_text(encoding="utf-8"))["devices"]
        return device

    def needed_bytes(self, name, flags):
        stats = self.work / f"{name}.needs.json"
        self.run([*self.under(self.sizes.room, stats), *self.training(name, flags, 3)])
        device = self.statistics(stats)
        return device["needed_bytes"] + device["small_peak_bytes"]


def about_device(context):
    """What `spillway doctor` says of CUDA and the first GPU."""
    done = context.run([context.place.program("spillway"), "doctor", "--skip-disks", "--json"], may_fail=True)
    checks = {check["subject"]: check for check in json.loads(done.stdout)["checks"]}
    if "cuda:0" not in checks:
        about = checks.get("CUDA", {})
        why = about.get("mend") or about.get("value") or f"no libcudart.so.13 was found for {context.place.torch}"
        raise Skipped(f"no GPU: {why}")
    name = checks["cuda:0"]["value"]
    if name.startswith("Emulated GPU") != context.place.emulated:
        raise Skipped(f"{name}: figures of an emulated GPU are made with --emulated, and no others")
    return {"cuda:0": name, "CUDA": checks["CUDA"]["value"]}


def cases(context):
    """The test programs of label gpu."""
    figures = {}
    for name in context.sizes.tests:
        report = context.work / f"{name}.json"
        done = context.run([context.place.program(f"spillway_{name}_test"), f"--gtest_output=json:{report}"],
                           may_fail=True)
        ending = f"exit status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        if not report.exists():
            raise Failed(f"spillway_{name}_test ended without a report: {ending}")
        told = json.loads(report.read_text(encoding="utf-8"))
        all_cases = [case for suite in told["testsuites"] for case in suite["testsuite"] if case["status"] == "RUN"]
        failed = [f"{case['classname']}.{case['name']}" for case in all_cases if case.get("failures")]
        if failed or not all_cases:
            raise Failed(f"spillway_{name}_test: failed: {' '.join(failed) or 'no case was run'}")
        if done.returncode != 0:
            raise Failed(f"spillway_{name}_test: no case has failed, and yet: {ending}")
        figures[name] = {"cases": len(all_cases),
                         "skipped": sum(case.get("result") == "SKIPPED" for case in all_cases)}
    return figures


def sanitizer(context):
    """compute-sanitizer's memcheck on a test program and a small trainer that pages."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if context.place.emulated or not tool:
        raise Skipped("it checks kernels of a real GPU" if context.place.emulated else "there is no compute-sanitizer")
    flags = context.sizes.equality["text_gpt"]
    budget = as_option(context.needed_bytes("text_gpt", flags) // 2)
    memcheck = [tool, "--tool", "memcheck", "--error-exitcode", "86", "--target-processes", "all"]
    errors = {}
    for name, words in (("memory_cuda", [context.place.program("spillway_memory_cuda_test")]),
                        ("text_gpt at 50 %", [*context.under(budget, context.work / "sanitized.json"),
                                              *context.training("text_gpt", flags, 2)])):
        done = context.run([*memcheck, *words], may_fail=True)
        said = done.stdout + done.stderr
        found = re.findall(r"ERROR SUMMARY: (\d+) error", said)
        if not found:
            raise Failed(f"{name}: compute-sanitizer gave no summary\n{said[-1500:]}")
        errors[name] = sum(map(int, found))
        if done.returncode != 0 and not errors[name]:
            raise Failed(f"{name}: exit status {done.returncode} under compute-sanitizer\n{said[-1500:]}")
    if any(errors.values()):
        raise Failed(f"compute-sanitizer: {errors}")
    return {"errors": errors}


def link(context):
    """Copies, mapping and pinning by `bench-io`; pages of the store beside a bare loop of cudaMemcpyAsync."""
    rates = context.work / "rates.json"
    context.run([context.place.program("spillway"), "bench-io", "--device", "cuda:0", "--rates", rates,
                 *context.sizes.bench])
    measured, = json.loads(rates.read_text(encoding="utf-8"))["links"]
    bare = json.loads(context.run([context.place.program("spillway_gpu_figures" + context.place.suffix),
                                   *context.sizes.figures]).stdout)
    store = json.loads(context.run([context.place.program("spillway_gpu_store_rates"),
                                    *context.sizes.figures[:3]]).stdout)
    return {"spillway": measured, "bare": bare, "store": store,
            "of_bare_out": store["out"] / bare["out"], "of_bare_in": store["in"] / bare["in"],
            "product_loses": bare["product_seconds_beside_copies"] / bare["product_seconds"] - 1}


def equality(context):
    """Losses and models of the examples in-core on this GPU, and at 100, 75, 50 and 25 % of what they need."""
    figures = {}
    for name, flags in context.sizes.equality.items():
        data = context.place.data(name)
        if data is None:
            figures[name] = f"skipped: the data of {name} is not on this machine"
            continue
        work = context.work / f"equal_{name}"
        room = 4096  # MiB; these are small.
        shares = [word for percent in PERCENT for word in ("--percent", str(percent))]
        settings = zip(context.sizes.options[::2], context.sizes.options[1::2])
        options = [f"--run-option={option}" for option in
                   (f"--nvme={context.spilled_to()}", *("=".join(setting) for setting in settings))]
        context.run([sys.executable, "-B", ROOT / "tests/bindings/equality/equal_training.py", name,
                     "--program", context.place.example(name), "--spillway", context.place.program("spillway"),
                     "--work", work, "--data", data[0], "--steps", str(context.sizes.equality_steps), "--threads", "1",
                     "--gpu", "--room", str(room), *shares, *options, "--", *data[1],
                     *flags, "--device", "cuda"])
        runs = {}
        for file in sorted(work.glob("*.stats.json")):
            told = context.statistics(file)
            runs[file.name.partition(".")[0]] = {key: told[key] for key in (
                "budget_bytes", "needed_bytes", "peak_bytes", "spilled_bytes", "fetched_bytes")}
        figures[name] = {"equal": True, "runs": runs}
    if not any(isinstance(figure, dict) for figure in figures.values()):
        raise Skipped("; ".join(figures.values()))
    return figures


class Way(typing.NamedTuple):
    """A way to run a trainer that is measured beside the plain one."""

    name: str
    budget: str
    stats: pathlib.Path


def turns_of(context, name, flags, ways):
    """Seconds per step of ways, each between turns of the plain trainer: {way: [step over plain]}."""
    environment = {key: value for key, value in context.place.environment().items()}
    words = context.training(name, flags, 1000000)
    taken = {way.name: [] for way in ways}
    side_by_side.STALL_SECONDS = context.seconds_left()
    with side_by_side.Live("plain", words, environment=environment) as plain:
        lives = {way.name: side_by_side.Live(way.name, [*context.under(way.budget, way.stats), *words],
                                             environment=environment, stats_file=way.stats) for way in ways}
        try:
            for live in (plain, *lives.values()):
                live.turn(3 + context.sizes.turn_steps)  # Learns, plans, chooses algorithms.
            for _ in range(context.sizes.turns):
                before = None
                for way in ways:
                    context.seconds_left()
                    turn, before = side_by_side.pair(plain, lives[way.name], context.sizes.turn_steps, before)
                    taken[way.name].append(turn)
            for live in lives.values():
                live.finish()
        except ProcessLookupError:
            ended = [live for live in (plain, *lives.values()) if live.process.poll() is not None]
            raise Failed("\n".join(f"{name}, {live.name}: exit status {live.process.returncode}\n"
                                   f"{live.run.output[-1500:]}" for live in ended)) from None
        finally:
            for live in lives.values():
                live.__exit__()
    return taken


def step_figures(context, way, turns):
    told = context.statistics(way.stats)
    steps = max(1, told["steps"])
    figures = {"step_seconds": statistics.median(turn["seconds"] for turn in turns),
               "in_core_step_seconds": statistics.median(turn["reference"] for turn in turns),
               "of_in_core_speed": statistics.median(turn["reference"] / turn["seconds"] for turn in turns),
               "operators_per_step": told["ops"] / steps,
               "host_seconds_per_operator": told["intercept_seconds"] / max(1, told["ops"])}
    figures.update({key: told[key] for key in (
        "budget_bytes", "needed_bytes", "peak_bytes", "spilled_bytes", "fetched_bytes", "steps", "planned_step_seconds",
        "followed_step_seconds", "bound_step_seconds", "planned_peak_bytes", "followed_peak_bytes")})
    return figures


def speed(context):
    """Step times with room for everything, which is what interception costs, at 50 and at 25 %."""
    figures = {}
    for name, flags in context.sizes.speed.items():
        needed = context.needed_bytes(name, flags)
        ways = [Way("room", context.sizes.room, context.work / f"{name}.room.json")]
        ways += [Way(f"{percent} %", as_option(needed * percent // 100), context.work / f"{name}.{percent}.json")
                 for percent in (50, 25)]
        try:
            taken = turns_of(context, name, flags, ways)
        except training.Failure as failure:
            raise Failed(str(failure)) from None
        figures[name] = {way.name: step_figures(context, way, taken[way.name]) for way in ways}
        room = figures[name]["room"]
        lost = room["step_seconds"] - room["in_core_step_seconds"]
        room["lost_seconds_per_operator"] = lost / max(1.0, room["operators_per_step"])
    return figures


def state(context):
    """Parameters, gradients and moments of four times the budget."""
    flags = context.sizes.state
    needed = context.needed_bytes("text_gpt", flags)
    stats = context.work / "state.json"
    words = [*context.under(as_option(needed // 4), stats), *context.training("text_gpt", flags, 8)]
    done = context.run(words, may_fail=True)
    if done.returncode != 0 and context.place.emulated and "does not fit" in done.stderr:
        raise Skipped("so small a model has operators that need more than a quarter of it")
    if done.returncode != 0:
        raise Failed(f"exit status {done.returncode}\n{done.stderr[-1500:]}")
    told = context.statistics(stats)
    return {"needed_bytes": needed, "budget_bytes": told["budget_bytes"], "steps": told["steps"],
            "step_seconds_median": told["step_seconds_median"], "peak_bytes": told["peak_bytes"],
            "tokens_per_second": statistics.median(map(float, re.findall(r"([\d.]+) tokens/s", done.stdout)))}


def managed(context):
    """The same trainer with managed memory that the driver pages, and as little of the GPU."""
    if context.place.emulated:
        raise Skipped("the emulated GPU has no managed memory")
    if not context.options.managed:
        raise Skipped("more managed memory than a GPU has free may hang it: --managed measures that")
    name, flags = "text_gpt", context.sizes.speed["text_gpt"]
    needed = context.needed_bytes(name, flags)
    library = context.place.lib / "libspillway_managed_memory.so"
    figures = {}
    for percent in PERCENT:
        limit = needed * percent // 100
        steps = {}
        for way, words, variables in (
                ("managed", [], {"LD_PRELOAD": str(library), "SPILLWAY_TEST_GPU_BYTES": str(limit + (512 << 20))}),
                ("spillway", context.under(as_option(limit), context.work / "beside_managed.json"), {})):
            run = training.train([*words, *context.training(name, flags, 10)], time_limit=context.seconds_left(),
                                 environment={**context.place.environment(), **variables})
            if len(run.step_seconds) < 4:
                raise Failed(f"{way} at {percent} %: {run.ending()}\n{run.output[-1500:]}")
            steps[way] = statistics.median(run.step_seconds[2:])
        figures[f"{percent} %"] = {**steps, "times_faster": steps["managed"] / steps["spillway"]}
    return figures


# Name, what it does, and its share of the seconds.
PARTS = (("device", about_device, 30), ("cases", cases, 90), ("link", link, 45), ("equality", equality, 150),
         ("speed", speed, 150), ("state", state, 45), ("sanitizer", sanitizer, 60), ("managed", managed, 60))
