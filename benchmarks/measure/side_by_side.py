"""Trainers that live side by side, of which one runs at a time.

A machine that serves others too changes its speed by tens of percent within seconds. What is
compared therefore has to run within the same seconds: all variants stay alive, stopped, and get a
few steps each in turn, every one right behind some steps of the reference.
"""
import os
import queue
import signal
import statistics
import subprocess
import threading

import trainer_log
from measure.training import (Failure, Training, clean_environment, kill_group, load_stats,
                              transferred)

STALL_SECONDS = 600


class Live:
    """A trainer that runs only while it has its turn. Use as a context."""

    def __init__(self, name, command, *, environment=None, stats_file=None):
        self.name, self.stats_file = name, stats_file
        self.run = Training(0, [], [], [], [], {}, "")
        if stats_file:
            stats_file.unlink(missing_ok=True)
        self.lines = queue.SimpleQueue()
        self.moved_before = (0, 0)
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", env=clean_environment(environment or {}),
            start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.is_over = False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        kill_group(self.process)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def read(self):
        for line in self.process.stdout:
            if trainer_log.STEP.match(line):
                # Right behind the step: nothing of the next one shall run in this turn.
                moved = transferred(self.process.pid)
                self.lines.put((line, moved))
            else:
                self.lines.put((line, None))
        self.lines.put((None, None))

    def turn(self, steps):
        """Runs it for that many steps; the numbers of its steps so far, before and after. Ends
        early when the trainer ends."""
        first = len(self.run.step_seconds)
        os.killpg(self.process.pid, signal.SIGCONT)
        while len(self.run.step_seconds) < first + steps and not self.is_over:
            try:
                line, moved = self.lines.get(timeout=STALL_SECONDS)
            except queue.Empty:
                raise Failure(f"{self.name}: no step within {STALL_SECONDS} s") from None
            self.take(line, moved)
        if not self.is_over:
            os.killpg(self.process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return first, len(self.run.step_seconds)

    def take(self, line, moved):
        if line is None:
            self.is_over = True
            self.run.status = self.process.wait()
            return
        self.run.output += line
        found = trainer_log.STEP.match(line)
        if not found:
            return
        moved = moved or self.moved_before
        self.run.losses.append(found["loss"])
        self.run.step_seconds.append(float(found["seconds"]))
        self.run.read_bytes.append(moved[0] - self.moved_before[0])
        self.run.written_bytes.append(moved[1] - self.moved_before[1])
        self.moved_before = moved

    def finish(self):
        """Asks it to end, as a job system would, and returns its Training."""
        if not self.is_over:
            os.killpg(self.process.pid, signal.SIGTERM)
            os.killpg(self.process.pid, signal.SIGCONT)
        while not self.is_over:
            self.take(*self.lines.get(timeout=STALL_SECONDS))
        self.run.stats = load_stats(self.stats_file)
        return self.run


def pair(reference, live, steps, before=None):
    """Steps of one trainer between steps of the reference. The first step of each turn is left
    out, as the pause fell into it. `before`: seconds per step of the reference in a turn that has
    just ended; without it, it gets one. Returns {"seconds": mean step, "reference": mean step,
    "steps": [first, end]}, and the reference's seconds behind, which may be the next `before`."""
    before = before or mean(reference, counted(reference, steps))
    ours = counted(live, steps)
    after = mean(reference, counted(reference, steps))
    turn = {"seconds": mean(live, ours), "steps": list(ours), "reference": (before + after) / 2}
    return turn, after


def counted(live, steps):
    first, end = live.turn(steps + 1)
    if end - first != steps + 1:
        live.run.require_success(live.name)
        raise Failure(f"{live.name}: ended after {end} steps, in the middle of a turn")
    return first + 1, end


def mean(live, steps):
    return statistics.fmean(live.run.step_seconds[slice(*steps)])
