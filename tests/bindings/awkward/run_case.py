#!/usr/bin/env python3
"""Runs one case of `awkward` several times and requires the same bytes every time.

  run_case.py plain CASE --program P               twice without Spillway
  run_case.py runtime CASE --program P --spillway S   plain, then under the runtime: with room for
      everything, and with a quarter of what that run needed. Where one operator does not fit into
      that, the smallest budget is taken instead that the run with room names, or the refusal with
      which the runtime ended a run. Other results are a failure in every run.

      --measured: the plain run says with --measure what it needs, and there is no run with room,
      unless the runtime refuses the budget: then all goes on as without this option.
      --reference FOLDER: the work folder of an earlier call, whose plain run serves this one, and
      its run with room if it has made one.

Under a budget below the need, the run must really have moved bytes to disk, and must have kept to
the budget; with room for everything, it must have moved none. Exit status 0 when all of this holds,
77 when this machine does not allow a mapper that --run-option forces.
"""
import argparse
import difflib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path += [str(REPOSITORY / "src/cmake/setup"), str(REPOSITORY / "tests/support")]
from budget_text import as_option, smallest_budget_in  # noqa: E402  pylint: disable=wrong-import-position
from clean_environment import clean_environment  # noqa: E402  pylint: disable=wrong-import-position
from trainer_script import SKIPPED  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
DIFF_LINES = 30
LOG_LINES = 25
MEASURED = re.compile(r": peak (\d+) MiB, largest operator (\d+) MiB ")
# What one operator takes beside its storages: pages that they fill in part, small storages, room.
BESIDE_AN_OPERATOR = 6 * MIB
# A budget of so many needs is room, whatever storages waste by filling pages in part.
NEEDS_WITH_ROOM = 2

# Options of `spillway run` that the statistics tell under the same name.
SETTINGS_IN_STATISTICS = {"mapper", "dispatch_key", "store", "prefetch", "verify"}


class Failure(Exception):
    """Says in full what went wrong; printed as it is."""


class Difference(Failure):
    """A run gave other results than its reference."""


class MissingMapper(Failure):
    """This machine does not allow the mapper that was asked for; tells which, and why."""


def tail(text, lines=LOG_LINES):
    kept = text.splitlines()[-lines:]
    return "\n".join("    " + line for line in kept) or "    (no output)"


def is_setting(told, asked):
    """Whether what the statistics tell of a setting is what was asked for."""
    if asked == "auto":
        return True
    if isinstance(told, bool):
        return told == {"on": True, "off": False}.get(asked)
    # Behind the name of a store stands where it keeps its bytes.
    return told.partition(",")[0].lower() == asked.lower()


class Run:
    """One finished run: how it was called, how it ended, what it left."""

    def __init__(self, name, command, folder):
        self.name = name
        self.command = command
        self.folder = folder
        self.digest_file = folder / f"{name}.digest"
        self.stats_file = folder / f"{name}.stats.json"
        self.trace_file = folder / f"{name}.trace.json"
        self.status, self.output = 0, ""

    def carry_out(self, timeout):
        scratch = self.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        self.status, self.output = self.execute(clean_environment(TMPDIR=str(scratch)), timeout)
        (self.folder / f"{self.name}.log").write_text(self.output, encoding="utf-8")
        return self.read()

    def read(self):
        """What it has left, now or in an earlier call of this script."""
        log_file = self.folder / f"{self.name}.log"
        self.output = log_file.read_text(encoding="utf-8") if log_file.exists() else ""
        self.digest = self.digest_file.read_text() if self.digest_file.exists() else ""
        self.stats = json.loads(self.stats_file.read_text()) if self.stats_file.exists() else {}
        return self

    def execute(self, environment, timeout):
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True)
        try:
            output = process.communicate(timeout=timeout)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0].decode(errors="replace")
            raise Failure(f"{self.name}: no end after {timeout} s\n{self.shown()}\n"
                          f"{tail(output)}") from None
        except BaseException:
            # Its own session keeps the program out of what ends this script; it must not outlive it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return process.returncode, output

    def shown(self):
        return "  $ " + " ".join(shlex.quote(word) for word in self.command)

    def ending(self):
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"

    def require_success(self):
        if self.status != 0:
            raise Failure(f"{self.name}: {self.ending()}\n{self.shown()}\n{tail(self.output)}")
        if not self.digest.strip():
            raise Failure(f"{self.name}: {self.digest_file} is empty\n{self.shown()}")

    def require_same(self, reference):
        self.require_success()
        self.require_no_difference(reference)

    def require_no_difference(self, reference):
        if self.digest == reference.digest:
            return
        ours, theirs = self.digest.splitlines(), reference.digest.splitlines()
        different = sum(a != b for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
        lines = list(difflib.unified_diff(theirs, ours, reference.name, self.name, "", "", 1, ""))
        if len(lines) > DIFF_LINES:
            lines = lines[:DIFF_LINES] + ["... the rest: compare the two files"]
        raise Difference(
            f"{self.name}: {different} of {len(theirs)} results differ from {reference.name}\n"
            f"{self.shown()}\n  {reference.digest_file}\n  {self.digest_file}\n"
            + "\n".join("    " + line for line in lines)
            + f"\n  last output of {self.name}:\n{tail(self.output)}")

    def forced_settings(self):
        """(key of the statistics, value asked for) of each option that has one."""
        for word, following in zip(self.command, self.command[1:]):
            if word == "--":
                return
            name, has_value, value = word.removeprefix("--").partition("=")
            key = name.replace("-", "_")
            if not word.startswith("--") or key not in SETTINGS_IN_STATISTICS:
                continue
            if not has_value:  # It follows, or the option is a switch.
                value = "on" if following.startswith("-") else following
            yield key, value

    def require_forced_settings(self):
        """An option that is ignored must not pass for one that works."""
        for key, value in self.forced_settings():
            if not is_setting(self.statistic(key), value):
                raise Failure(f"{self.name}: --{key.replace('_', '-')}={value} was asked for, and "
                              f"{key} is {self.stats[key]}\n{self.shown()}")

    def require_forced_mapper(self):
        """A refusal of any other setting is a failure like all others."""
        for key, value in self.forced_settings():
            refusal = re.search(rf'error: (mapper "{re.escape(value)}": .+)', self.output)
            if key == "mapper" and self.status != 0 and refusal:
                raise MissingMapper(refusal.group(1))

    def statistic(self, key):
        if key not in self.stats:
            present = ", ".join(self.stats) or "no statistics"
            raise Failure(f"{self.name}: '{key}' is not in {self.stats_file}; it has: {present}")
        return self.stats[key]


class Session:
    """The options of this call, and how they make runs."""

    def __init__(self, options):
        self.options = options
        self.names = set()
        self.budgets = set()  # That had a run of their own.
        shutil.rmtree(options.work, ignore_errors=True)
        options.work.mkdir(parents=True)

    def program(self, name):
        digest = self.options.work / f"{name}.digest"
        return [str(self.options.program), self.options.case, "--seed", str(self.options.seed),
                "--threads", str(self.options.threads), "--out", str(digest),
                *self.options.case_option]

    def start(self, name, command):
        # What an earlier run has left under its name would be taken for results of this one.
        if name in self.names:
            raise Failure(f"{name}: two runs have this name")
        self.names.add(name)
        return self.with_figures(Run(name, command, self.options.work).carry_out(self.options.timeout))

    def referred(self, name):
        run = self.with_figures(Run(name, [], self.options.reference).read())
        if not run.digest:
            raise Failure(f"{run.digest_file} is missing or empty: make the runs of "
                          f"{self.options.case} itself first")
        return run

    def with_figures(self, run):
        """With --gpu the statistics are those of the only one that was used."""
        if self.options.gpu and run.stats:
            gpu, = run.stats["devices"]
            run.stats.update(gpu)
        return run

    def plain(self, name, *flags):
        run = self.start(name, [*self.program(name), *flags])
        run.require_success()
        return run

    def budget_option(self, budget):
        if not self.options.gpu:
            return as_option(budget)
        return f"cuda={as_option(budget)},cpu={self.options.room}MiB"

    def command_under(self, name, budget):
        return [str(self.options.spillway), "run", "--budget", self.budget_option(budget),
                "--stats", str(self.options.work / f"{name}.stats.json"),
                *self.traced(name), *self.options.run_option, "--", *self.program(name)]

    def traced(self, name):
        if not self.options.moved_and_recomputed:
            return []
        return ["--trace", str(self.options.work / f"{name}.trace.json"), "--trace-steps", "1"]

    def runtime(self, name, budget):
        run = self.start(name, self.command_under(name, budget))
        run.require_forced_mapper()
        run.budget = budget
        return run


def require_transfers(session, run, budget, needed):
    """Bytes have moved, by a plan where one is asked for, or none have where there was room."""
    spilled = run.statistic("spilled_bytes")
    if budget >= NEEDS_WITH_ROOM * needed and spilled > 0:
        raise Failure(f"{run.name}: {spilled} bytes were spilled, although the budget of {budget} "
                      f"is {NEEDS_WITH_ROOM} times the need of {needed} or more\n{run.shown()}")
    if budget >= needed:
        return
    if spilled <= 0:
        raise Failure(f"{run.name}: nothing was spilled (spilled_bytes = {spilled}), although the "
                      f"budget of {budget} is below the need of {needed}\n{run.shown()}")
    if session.options.planned and run.statistic("planned_step_seconds") <= 0:
        raise Failure(f"{run.name}: no plan was followed (planned_step_seconds = 0), although "
                      f"--planned asks for one\n{run.shown()}")
    if session.options.recomputed and run.statistic("replays") <= 0:
        raise Failure(f"{run.name}: no operator ran again, although --recomputed asks for that\n"
                      f"{run.shown()}")
    if session.options.shares_pages and 4 * run.statistic("shared_peak_bytes") < needed:
        raise Failure(f"{run.name}: {run.statistic('shared_peak_bytes')} bytes were on shared pages, less than "
                      f"a quarter of the need of {needed}, although --shares-pages asks for it\n{run.shown()}")
    if session.options.both_tiers:
        require_both_tiers(run)
    if session.options.demoted and run.statistic("demoted_bytes") <= 0:
        raise Failure(f"{run.name}: nothing went on from host memory to the disk, although --demoted asks for that\n"
                      f"{run.shown()}")
    if session.options.moved_and_recomputed:
        require_both(run)


def require_both_tiers(run):
    """Tensors went into host memory, and to the disk behind it."""
    near, back, disk = (run.statistic(key) for key in ("host_written_bytes", "host_read_bytes",
                                                       "disk_written_bytes"))
    if min(near, back, disk) <= 0 or run.statistic("host_tier_peak_bytes") > run.statistic(
            "host_tier_bytes"):
        raise Failure(f"{run.name}: {near} bytes went into host memory, {back} came back from it, "
                      f"{disk} went to disk; --both-tiers asks for all three, within its size\n"
                      f"{run.shown()}")
    print(f"{run.name}: {near} bytes into host memory, {disk} to disk")


def require_both(run):
    """Tensors came back in both ways; in the latest whole step, which went by a plan, by replays. How
    much that step reads beside them depends on the times of operators, so on the machine."""
    if not run.trace_file.exists():
        raise Failure(f"{run.name}: {run.trace_file} is missing: no step was seen whole\n"
                      f"{run.shown()}")
    events = json.loads(run.trace_file.read_text())["traceEvents"]
    again = sum(event["ph"] == "X" and event["name"].startswith("recomputed: ") for event in events)
    fetched = run.statistic("fetched_bytes")
    if again == 0 or fetched <= 0:
        raise Failure(f"{run.name}: {again} operators ran again in its latest whole step, and "
                      f"{fetched} bytes were read back; --moved-and-recomputed asks for both\n"
                      f"{run.shown()}")
    print(f"{run.name}: its latest whole step ran {again} operators again")


def check_paging(session, run, budget, needed):
    peak = run.statistic("peak_bytes")
    if peak > budget:
        raise Failure(f"{run.name}: {peak} bytes were in memory, the budget is {budget}\n"
                      f"{run.shown()}")
    run.require_forced_settings()
    if run.stats.get("refusal"):
        raise Failure(f"{run.name}: was refused: {run.stats['refusal']}\n{run.shown()}")
    require_transfers(session, run, budget, needed)
    return (f"{run.name}: equal; budget {budget / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB, "
            f"spilled {run.stats['spilled_bytes'] / MIB:.1f} MiB, "
            f"{run.stats.get('replays', 0)} replays, {run.stats.get('trap_count', 0)} traps, "
            f"{run.stats.get('run_seconds', 0):.1f} s")


def smallest_by_statistics(ample):
    """What the largest operator of the run with room needs at once; 0 when that says nothing.

    Saves the long way to a refusal: the runtime finishes the step before it refuses."""
    largest = ample.stats.get("largest_op_needs_bytes", 0)
    # Else an operator asked for an absurd size and was refused.
    return largest if largest < ample.statistic("needed_bytes") else 0


def require_pressure(name, smallest, needed, witness):
    if smallest >= needed:
        raise Failure(f"{name}: the smallest budget is {smallest}, the whole need is {needed}: "
                      f"this case cannot show any paging\n{witness.shown()}\n"
                      f"{tail(witness.output)}")


def require_share(session, name, percent, smallest, needed):
    """A share that is named shall be trained with, and not silently be a larger one."""
    if percent > session.options.may_raise:
        raise Failure(
            f"{name}: {percent} % of the need of {needed / MIB:.1f} MiB is below the smallest "
            f"budget, {smallest / MIB:.1f} MiB or {100 * smallest / needed:.1f} %: give the program "
            f"other flags, or allow it with --may-raise {percent}")


def budget_after_refusal(run, reference):
    """What the runtime asks for when it has refused a run, or None when the run counts as it is.

    A refusal is an exception: the program ends with a status of its own, or aborts. It leaves no
    results then; if it leaves some, they have to be right. Where the program was over before, it
    has run to its end page by page."""
    is_refusal = (run.status > 0 or run.status == -signal.SIGABRT or
                  (run.status == 0 and run.stats.get("refusal", "") != ""))
    if not is_refusal or smallest_budget_in(run.output) is None:
        return None
    if run.digest:
        run.require_no_difference(reference)
    return smallest_budget_in(run.output)


def require_need_to_refuse(session, run, ample):
    """What one operator needs is known from the run with room: no budget above it is too small."""
    known, budget = smallest_by_statistics(ample), run.budget
    if 0 < known <= budget and not session.options.side_by_side:
        raise Failure(f"{run.name}: was refused with {budget / MIB:.1f} MiB, although the largest "
                      f"operator needs {known / MIB:.1f} MiB\n{run.shown()}\n{tail(run.output)}")


def under_budget(session, reference, percent, ample):
    """One run at a share of the need, or at the smallest budget that the runtime asks for."""
    needed = ample.statistic("needed_bytes")
    name, budget = f"budget_{percent}", needed * percent // 100 // 1024 * 1024
    if smallest_by_statistics(ample) > budget:
        budget = smallest_by_statistics(ample)
        require_pressure(name, budget, needed, ample)
        require_share(session, name, percent, budget, needed)
        print(f"{name}: raised to {budget / MIB:.1f} MiB for {ample.stats.get('largest_op')}")
    if budget in session.budgets:
        print(f"{name}: has been done with {budget / MIB:.1f} MiB", flush=True)
        return
    session.budgets.add(budget)
    run = session.runtime(name, budget)
    smallest = budget_after_refusal(run, reference)
    if smallest is not None:
        require_need_to_refuse(session, run, ample)
        require_pressure(name, smallest, needed, run)
        require_share(session, name, percent, smallest, needed)
        print(f"{name}: one operator needs more than {budget / MIB:.1f} MiB", flush=True)
        budget = smallest
        run = session.runtime(f"{name}_smallest", budget)
    run.require_same(reference)
    print(check_paging(session, run, budget, needed), flush=True)


def compare_plain(session):
    first = session.plain("plain")
    session.plain("again").require_same(first)
    print(f"equal: {len(first.digest.splitlines())} results")


def measured(run):
    """Bytes that a run with --measure had in storages, and those of its largest operator."""
    found = MEASURED.search(run.output)
    if not found:
        raise Failure(f"{run.name}: did not say what it needs\n{run.shown()}\n{tail(run.output)}")
    return tuple(int(number) * MIB for number in found.groups())


def under_measured_budget(session, reference, percent):
    """One run at a share of what the plain run needs; returns it when the runtime refuses that."""
    peak, largest = measured(reference)
    name, budget = f"measured_{percent}", peak * percent // 100
    if largest + BESIDE_AN_OPERATOR > budget:
        budget = largest + BESIDE_AN_OPERATOR
        require_share(session, name, percent, budget, peak)
    require_pressure(name, budget, peak, reference)
    run = session.runtime(name, budget)
    if budget_after_refusal(run, reference) is not None:
        return run
    run.require_same(reference)
    needed = run.statistic("needed_bytes")
    # Threads side by side need what one of them does at least, and all where their steps coincide.
    least = peak // 2 if session.options.side_by_side else peak * 9 // 10
    if needed < least:
        raise Failure(f"{name}: needed_bytes is {needed}, but {peak} bytes were in storages of the "
                      f"plain run\n{run.shown()}")
    print(check_paging(session, run, budget, needed), flush=True)
    return None


def with_room(session):
    """The run with room; where there is a reference that has one, that one."""
    reference = session.options.reference
    if reference and (reference / "with_room.digest").exists():
        return session.referred("with_room")
    return session.runtime("with_room", session.options.room * MIB)


def compare_runtime(session):
    options = session.options
    if options.reference:
        reference = session.referred("plain")
    else:
        reference = session.plain("plain", *(["--measure"] if options.measured else []))
    try:
        if options.with_room or not options.measured:
            compare_budgets(session, reference, with_room(session), options.percent)
            return
        for percent in options.percent:
            refused = under_measured_budget(session, reference, percent)
            if refused:
                ample = with_room(session)
                require_need_to_refuse(session, refused, ample)
                compare_budgets(session, reference, ample, [percent])
    except Difference:
        # Results that differ between two plain runs tell nothing about the runtime.
        session.plain("again").require_same(reference)
        raise


def compare_budgets(session, reference, ample, percentages):
    ample_budget = session.options.room * MIB
    ample.require_same(reference)
    needed = ample.statistic("needed_bytes")
    if not 0 < needed <= ample_budget:
        raise Failure(f"with_room: needed_bytes is {needed}, which is no use for choosing budgets "
                      f"below {ample_budget}\n{ample.shown()}")
    print(check_paging(session, ample, ample_budget, needed), flush=True)
    for percent in percentages:
        under_budget(session, reference, percent, ample)


def add_run_options(parser):
    """What a Session reads from its options beside case, program, spillway and work."""
    add = parser.add_argument
    add("--measured", action="store_true",
        help="take the need from the plain run, which has to know --measure")
    add("--with-room", action="store_true",
        help="make the run with room although the plain run is measured")
    add("--reference", type=pathlib.Path,
        help="take the plain run, and that with room, from the work folder of an earlier call")
    add("--percent", type=int, action="append", default=[],
        help="share of the need to give as budget, once for each")
    add("--may-raise", type=int, default=100, metavar="PERCENT",
        help="fail when a larger share than this has to be raised to the smallest workable budget")
    add("--gpu", action="store_true",
        help="budgets are of a GPU, whose figures count, and the host has room")
    add("--room", type=int, default=1024, help="MiB of a budget without pressure")
    add("--planned", action="store_true",
        help="fail when a run below the need followed no plan")
    add("--recomputed", action="store_true",
        help="fail when a run below the need has recomputed nothing")
    add("--shares-pages", action="store_true",
        help="fail when a run below the need had less than a quarter of it on pages that small tensors share")
    add("--both-tiers", action="store_true",
        help="fail when a run below the need has not used host memory and the disk behind it, which "
        "--run-option=--nvme=ram:SIZE,DIR gives")
    add("--demoted", action="store_true",
        help="fail when in a run below the need nothing went on from host memory to the disk behind it")
    add("--moved-and-recomputed", action="store_true",
        help="fail when the latest whole step of a run below the need has recomputed nothing, or "
        "the run has read nothing back")
    add("--side-by-side", action="store_true",
        help="operators of several threads run at once and may need more than any")
    add("--run-option", action="append", default=[],
        help="option for `spillway run`, for example --run-option=--verify")
    add("--case-option", action="append", default=[],
        help="option for the program itself, for example --case-option=--announce-steps")
    add("--seed", type=int, default=1)
    add("--threads", type=int, default=2)
    add("--timeout", type=int, default=300, help="seconds for one run")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["plain", "runtime"])
    parser.add_argument("case")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="awkward")
    parser.add_argument("--spillway", type=pathlib.Path, help="the command line of Spillway")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("awkward_work"),
                        help="folder for digests, statistics and logs; emptied first")
    add_run_options(parser)
    options = parser.parse_args()
    options.percent = options.percent or [25]
    if options.mode == "runtime" and options.spillway is None:
        parser.error("runtime needs --spillway")
    compare = compare_plain if options.mode == "plain" else compare_runtime
    for program in filter(None, (options.program, options.spillway)):
        if not program.exists():
            raise SystemExit(f"{program} does not exist: build it first")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        compare(Session(options))
    except MissingMapper as missing:
        print(f"skipped: {missing}", flush=True)
        sys.exit(SKIPPED)
    except Failure as failure:
        print(f"FAILED: {options.case}: {failure}", flush=True)
        sys.exit(1)
    shutil.rmtree(options.work / "scratch", ignore_errors=True)


if __name__ == "__main__":
    main()
