"""Trainers that live side by side, of which one runs at a time.

A machine that serves others too changes its speed by tens of percent within seconds. What is
compared therefore has to run within the same seconds: all variants stay alive, stopped, and get a
few steps each in turn, every one right behind some steps of the reference.
"""
import os
import queue
import signal
import statistics
import threading

from measure.spread import Spread
from measure.training import Failure, Training, kill_group, load_stats, start

STALL_SECONDS = 600


class Live:
    """A trainer that runs only while it has its turn. Use as a context."""

    def __init__(self, name, command, *, environment=None, stats_file=None):
        self.name, self.stats_file = name, stats_file
        self.run = Training()
        self.steps = 0  # That turns have seen; the trainer may be a step ahead when it is stopped.
        self.is_over = False
        self.events = queue.SimpleQueue()  # True for each step, False at the end.
        self.process = start(command, environment, stats_file)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        kill_group(self.process)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def read(self):
        for line in self.process.stdout:
            if self.run.add_line(line, self.process.pid):
                self.events.put(True)
        self.events.put(False)

    def turn(self, steps):
        """Runs it for that many steps; the numbers of its steps so far, before and after. Ends
        early when the trainer ends."""
        first = self.steps
        os.killpg(self.process.pid, signal.SIGCONT)
        while self.steps < first + steps and not self.is_over:
            self.await_event()
        if not self.is_over:
            os.killpg(self.process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return first, self.steps

    def await_event(self):
        try:
            is_step = self.events.get(timeout=STALL_SECONDS)
        except queue.Empty:
            raise Failure(f"{self.name}: no step within {STALL_SECONDS} s") from None
        if is_step:
            self.steps += 1
        else:
            self.is_over = True
            self.run.status = self.process.wait()

    def finish(self):
        """Asks it to end, as a job system would, and returns its Training."""
        if not self.is_over:
            os.killpg(self.process.pid, signal.SIGTERM)
            os.killpg(self.process.pid, signal.SIGCONT)
        while not self.is_over:
            self.await_event()
        self.run.stats = load_stats(self.stats_file)
        return self.run


def pair(reference, live, steps, before=None):
    """Steps of one trainer between steps of the reference. The first step of each turn is left
    out, as the pause fell into it. `before`: seconds per step of the reference in a turn that has
    just ended; without it, it gets one. Returns {"seconds": mean step, "reference": mean step,
    "steps": [first, end]}, and the reference's seconds behind, which may be the next `before`."""
    before = before or step_seconds(reference, steps)
    ours = counted(live, steps)
    after = step_seconds(reference, steps)
    turn = {"seconds": mean(live, ours), "steps": list(ours), "reference": (before + after) / 2}
    return turn, after


def counted(live, steps):
    first, end = live.turn(steps + 1)
    if end - first != steps + 1:
        live.run.require_success(live.name)
        raise Failure(f"{live.name}: ended after {end} steps, in the middle of a turn")
    return first + 1, end


def step_seconds(live, steps):
    """Mean of the counted steps of a turn."""
    return mean(live, counted(live, steps))


def mean(live, steps):
    return statistics.fmean(live.run.step_seconds[slice(*steps)])


def over_reference(run):
    """Step over that of the reference beside it, by turn; of a record with `turns` of `pair`."""
    return Spread(turn["seconds"] / turn["reference"] for turn in run["turns"])


def bytes_per_step(run):
    """Of the counted steps of such a record: (read, written)."""
    return tuple(statistics.fmean(value for turn in run["turns"]
                                  for value in run[key][slice(*turn["steps"])])
                 for key in ("read_bytes", "written_bytes"))
