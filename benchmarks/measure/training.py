"""Runs a trainer and reads its steps while it runs: how long each took and what it moved."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import threading

import trainer_log
from clean_environment import clean_environment

LOG_LINES = 25
# Of the statistics of a run: figures, and not where and as what it ran.
KEPT_STATS = ("budget_bytes", "needed_bytes", "peak_bytes", "small_peak_bytes", "peak_rss_bytes",
              "largest_op_needs_bytes", "largest_op", "stall_seconds", "run_seconds",
              "spilled_bytes", "fetched_bytes", "clean_leaves_bytes", "deviations", "step_shapes",
              "planned_step_seconds", "bound_step_seconds", "replays",
              "dropped_bytes")
# Huge pages for malloc, from which plain LibTorch takes its tensors.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Failure(Exception):
    """Says in full what went wrong; printed as it is."""


@dataclasses.dataclass
class Training:
    """One run. Steps are the trainer's own figures; bytes are what the kernel counted."""

    status: int = 0
    step_seconds: list = dataclasses.field(default_factory=list)
    losses: list = dataclasses.field(default_factory=list)
    read_bytes: list = dataclasses.field(default_factory=list)
    written_bytes: list = dataclasses.field(default_factory=list)
    stats: dict = dataclasses.field(default_factory=dict)
    output: str = ""
    timed_out: bool = False

    def add_line(self, line, process_id):
        """Keeps a line as soon as the program has printed it; whether it told of a step's end."""
        self.output += line
        found = trainer_log.STEP.match(line)
        if not found:
            return False
        before = sum(self.read_bytes), sum(self.written_bytes)
        after = transferred(process_id) or before
        self.losses.append(found["loss"])
        self.read_bytes.append(after[0] - before[0])
        self.written_bytes.append(after[1] - before[1])
        self.step_seconds.append(float(found["seconds"]))
        return True

    def ending(self):
        if self.timed_out:
            return "stopped at the time limit"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    def require_success(self, name):
        if self.status != 0 or not self.step_seconds:
            lines = "\n".join("    " + line for line in self.output.splitlines()[-LOG_LINES:])
            raise Failure(f"{name}: {self.ending()}, {len(self.step_seconds)} steps\n{lines}")

    def record(self):
        """What goes into the file of results."""
        return {"ending": self.ending(), "step_seconds": self.step_seconds, "losses": self.losses,
                "read_bytes": self.read_bytes, "written_bytes": self.written_bytes,
                "stats": {key: self.stats[key] for key in KEPT_STATS if key in self.stats}}


def require_equal_losses(name, records):
    """Spillway promises the same bits on the same number of threads; runs may be of any length."""
    shortest = min((len(record["losses"]) for record in records), default=0)
    if len({tuple(record["losses"][:shortest]) for record in records}) > 1:
        raise Failure(f"{name}: the losses of the variants differ")


def transferred(process_id):
    """Bytes that a process read from and wrote to disks so far, or None when it is gone."""
    try:
        lines = pathlib.Path(f"/proc/{process_id}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in lines)
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def output_of(command):
    """What a command prints; a Failure with all that it said where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def start(command, environment=None, stats_file=None):
    """A program in a session of its own, which keeps it out of what ends this script."""
    if stats_file:
        stats_file.unlink(missing_ok=True)
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace",
                            env=clean_environment(**(environment or {})), start_new_session=True)


def train(command, *, environment=None, stats_file=None, time_limit=None):
    """Runs `command` to its end, or for `time_limit` seconds."""
    run = Training()
    with start(command, environment, stats_file) as process:
        def stop():
            run.timed_out = True
            kill_group(process)

        timer = threading.Timer(time_limit, stop) if time_limit else None
        if timer:
            timer.start()
        try:
            for line in process.stdout:
                run.add_line(line, process.pid)
            process.wait()
        except BaseException:
            kill_group(process)
            raise
        finally:
            if timer:
                timer.cancel()
    run.status = process.returncode
    run.stats = load_stats(stats_file)
    return run


def load_stats(file):
    """What Spillway wrote at the end; nothing where it was not asked to, or did not come to it."""
    return json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
