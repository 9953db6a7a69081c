"""A trainer on an emulated GPU is profiled, planned for and traced: the plan made of its profile is followed by the
GPU, with the same bits, and the trace tells when the GPU ran what the host had launched, and what was moved."""
import collections
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from clean_environment import clean_environment
from small_gpu import SMALL_GPU

COMMAND = os.environ["SPILLWAY_TEST_COMMAND"]
TRAINER = os.environ["SPILLWAY_TEST_CUDA_TRAINER"]
WORK = pathlib.Path(os.environ["SPILLWAY_TEST_WORK"])
STEPS = 10
SETTINGS = {**SMALL_GPU, "EMU_CUDA_DELAY_US": "300", "EMU_CUDA_DELAY_PCT": "10", "EMU_CUDA_SEED": "11"}
PAGE = 64 << 10
PLENTY = 4 << 30
PARAMETERS = 7882 * 4  # Bytes of those of conv_net, each of which is too small to be paged.


def lanes_of(trace, process):
    """The spans of each lane, in their order."""
    names = {event["tid"]: event["args"]["name"] for event in trace
             if event["pid"] == process and event["ph"] == "M" and event["name"] == "thread_name"}
    lanes = {name: [] for name in names.values()}
    for event in trace:
        if event["pid"] == process and event["ph"] == "X":
            lanes[names[event["tid"]]].append(event)
    return lanes


def operators_of(lane):
    """By step, the first piece of each operator that plans count, by its number."""
    steps = collections.defaultdict(dict)
    for span in lane:
        facts = span.get("args", {})
        if "operator" in facts:
            steps[facts["step"]].setdefault(int(facts["operator"]), span)
    return steps


class CudaRecords(unittest.TestCase):
    def setUp(self):
        WORK.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=WORK)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, words, steps=STEPS):
        run = subprocess.run([*words, TRAINER, "conv_net", str(steps)], capture_output=True, text=True, check=False,
                             env={**clean_environment(), **SETTINGS}, timeout=600)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def command(self, verb, budget, *options):
        return [COMMAND, verb, "--budget", f"cuda={budget >> 10}KiB,cpu={PLENTY >> 10}KiB",
                "--min-storage", "32KiB", "--nvme", f"ram:2MiB,{self.folder}", *options]

    def read(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def check_profile(self, profile):
        self.assertEqual(profile["origin"]["device"], "cuda:0")
        self.assertEqual(profile["origin"]["clock"], "device events")
        self.assertGreaterEqual(profile["origin"]["steps"], 4)
        self.assertEqual(profile["page_bytes"], PAGE)
        self.assertGreater(sum(profile["ops"]["time_ns"]), 0)
        self.assertIn("activation", {profile["classes"][each] for each in profile["values"]["class"]})
        self.assertEqual(profile["small_parameter_bytes"], PARAMETERS)
        self.assertGreater(profile["disks"]["host_pages"], 0)

    def check_trace(self, trace, counted):
        processes = {event["pid"]: event["args"]["name"] for event in trace if event["name"] == "process_name"}
        self.assertEqual(list(processes), [2, 4])
        self.assertEqual(processes[4].split(": ")[:2], ["cuda:0 (Emulated GPU 0)", "measured"])
        lanes = lanes_of(trace, 4)
        launched, ran = operators_of(lanes["launches (host)"]), operators_of(lanes["compute"])
        self.assertGreaterEqual(len(launched), 3)
        for step, operators in launched.items():
            self.assertEqual(sorted(operators), list(range(len(operators))))
            self.assertEqual(set(operators), set(ran[step]))
            for number, span in operators.items():
                self.assertGreaterEqual(ran[step][number]["ts"], span["ts"] - 0.002, span)
        ended = 0
        for span in lanes["compute"]:
            self.assertGreaterEqual(span["ts"], ended - 0.002)
            ended = span["ts"] + span["dur"]
        for lane, key in (("write-out", "spilled_bytes"), ("read-in", "fetched_bytes")):
            moved = sum(span["args"]["bytes"] for span in lanes[lane])
            self.assertGreater(moved, counted[key] // 3, lane)
            self.assertLessEqual(moved, counted[key], lane)
        self.assertGreater(sum(span["args"]["bytes"] for span in lanes["write-out to disk"]), 0)
        # What it computes is not in the lane of the CPU.
        self.assertFalse([span for span in lanes_of(trace, 2)["compute"] if "convolution" in span["name"]])

    def test_a_gpu_is_profiled_planned_for_and_traced(self):
        plain = self.start([])
        files = {name: str(self.folder / name) for name in
                 ("step.profile.json", "step.plan.json", "trace.json", "run.json")}
        run = self.start(self.command("run", PLENTY, "--profile-out", files["step.profile.json"],
                                      "--stats", files["run.json"]))
        self.assertEqual(run.stdout, plain.stdout)
        self.assertIn("cuda:0, ", run.stderr)
        profile = self.read("step.profile.json")
        self.check_profile(profile)
        needed, = (each["needed_bytes"] + each["small_peak_bytes"] for each in self.read("run.json")["devices"])

        budget = (needed * 3 // 4 // PAGE + 1) * PAGE
        planned = subprocess.run([COMMAND, "plan", files["step.profile.json"], "--budget", f"{budget >> 10}KiB",
                                  "--out", files["step.plan.json"]], capture_output=True, text=True, check=False)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        plan = self.read("step.plan.json")
        self.assertEqual(plan["device"], "cuda:0")
        self.assertEqual(plan["far"]["near_pages"], profile["disks"]["host_pages"])
        self.assertGreater(len(plan["swaps"]["value"]), 0)

        run = self.start(self.command("run", budget, "--plan", files["step.plan.json"], "--trace", files["trace.json"],
                                      "--trace-steps", "64", "--stats", files["run.json"]))
        self.assertEqual(run.stdout, plain.stdout)
        whole = self.read("run.json")
        self.assertIsNone(whole["given_plan"])
        counted, = whole["devices"]
        self.assertEqual(counted["given_plan"]["misfit"], "")
        self.assertGreaterEqual(counted["given_plan"]["followed_steps"], 3)
        self.assertLessEqual(counted["peak_bytes"], budget)
        self.check_trace(self.read("trace.json")["traceEvents"], counted)

    def test_a_profile_ends_the_program(self):
        file = self.folder / "step.%d.json"
        self.start(self.command("profile", PLENTY, "--out", str(file), "--steps", "3"), steps=1000)
        origin = self.read("step.cuda:0.json")["origin"]
        self.assertEqual((origin["device"], origin["steps"]), ("cuda:0", 3))


if __name__ == "__main__":
    unittest.main()
