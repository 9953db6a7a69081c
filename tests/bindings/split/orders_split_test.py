"""Ranks compute in the order of the action lists of their schedule, with the bits of one process."""
import collections
import json
import re
import subprocess
import unittest

import golden
from clean_environment import clean_environment
from python_split_test import PYTHON, TRAINERS, PythonCase
from slow_cases import slow
from split_runs import COMMAND

RANKS, MICRO_BATCHES = 4, 8
ACTION = re.compile(r"(?:r(\d+):)?(\d+)([FBIW])(\d+)")


def listed(plan):
    """The order in which each rank is done with forward and backward of a stage and micro-batch of the program."""
    lists = []
    for line in plan["actions"]:
        actions = [ACTION.fullmatch(word) for word in line.split(",")]
        lists.append([(int(one[1] or 0), int(one[2]), one[3], int(one[4])) for one in actions if one])
    replicas = 1 + max(action[0] for one in lists for action in one)
    orders = []
    for actions in lists:
        ends = {}
        for replica, stage, kind, micro_batch in actions:
            name = f"{stage}{'F' if kind == 'F' else 'B'}{micro_batch * replicas + replica}"
            ends.pop(name, None)
            ends[name] = None
        orders.append(list(ends))
    return orders


def steps_in(trace):
    """By rank and step: the same, as measured."""
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    begins, spans = collections.defaultdict(list), collections.defaultdict(list)
    for event in trace:
        if event["ph"] == "i":
            begins[event["pid"]].append(event["ts"])
        elif event["ph"] == "X" and names[event["pid"], event["tid"]] == "actions":
            spans[event["pid"]].append((event["ts"], event["name"]))
    ranks = []
    for pid in sorted(spans):
        times = sorted(begins[pid])
        steps = [{} for _ in range(len(times) + 1)]
        for begin, name in sorted(spans[pid]):
            step = steps[sum(time <= begin for time in times)]
            step.pop(name, None)
            step[name] = None
        ranks.append([list(step) for step in steps])
    return ranks


class Orders(PythonCase):
    def command(self, *words):
        done = subprocess.run([COMMAND, *map(str, words)], cwd=self.room, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env=clean_environment(OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout)

    def plan(self, schedule, stages):
        profile = self.room / f"step-{stages}.json"
        if not profile.exists():
            self.command("profile", "--out", profile, "--", PYTHON, TRAINERS, f"equal_layers,{stages},1,6")
        plan = self.room / f"plan-{schedule}.json"
        self.command("plan-job", profile, "--ranks", RANKS, "--schedule", schedule, "--replicas", "1",
                     "--micro-batches", MICRO_BATCHES, "--out", plan)
        return plan

    def check_order(self, schedule, stages, *options, more=""):
        words = [PYTHON, TRAINERS, f"equal_layers,{stages},{MICRO_BATCHES}{more}"]
        plan = self.plan(schedule, stages)
        expected = listed(json.loads(plan.read_text()))
        trace = self.room / f"trace-{schedule}.json"
        options = ["--plan", plan] if "--plan" in options else ["--schedule", schedule]
        split = self.run_split(RANKS, *words, name=f"split-{schedule}",
                               options=["--rebalance", "off", "--trace", trace, *options])
        self.check_same(self.run_plain(*words, name=f"plain-{schedule}"), split)
        ranks = steps_in(json.loads(trace.read_text())["traceEvents"])
        self.assertEqual(len(ranks), RANKS)
        steps = list(zip(*ranks))
        self.assertTrue(any(list(step) == expected for step in steps), f"{schedule}: {steps}\nlisted: {expected}")

    @slow
    def test_of_one_stage_per_rank(self):
        for schedule in ("gpipe", "1f1b", "zb-h1"):
            self.check_order(schedule, 4)

    def test_of_two_stages_per_rank(self):
        for schedule in ("interleaved", "zb-v"):
            self.check_order(schedule, 8)

    @slow
    def test_of_stages_in_both_directions(self):
        for schedule in ("gems-mast", "gems-master", "chimera"):
            self.check_order(schedule, 4)

    @slow
    def test_of_running_statistics_and_sums_of_losses(self):
        for schedule in ("1f1b", "gpipe", "gems-master"):
            self.check_order(schedule, 4, more=",4,norm")

    def test_of_a_plan(self):
        self.check_order("gpipe", 4, "--plan")


class OtherPrograms(PythonCase):
    def about_lists(self, split):
        """What a run says of the lists of its schedule, and of the schedule at its end."""
        return [golden.without(line, (r"aten::\S+", "OPERATOR")) for line in split.errors.splitlines()
                if "do not keep to the lists" in line or line.startswith("[spillway] ranks ")]

    @slow
    def test_hang_on_an_earlier_micro_batch(self):
        told = []
        for trainer, schedules in (("hidden_state", ("gems-mast",)), ("gradients_in_inputs", ("gpipe", "gems-mast"))):
            words = [PYTHON, TRAINERS, trainer]
            plain = self.run_plain(*words, name=f"plain-{trainer}")
            for schedule in schedules:
                split = self.run_split(2, *words, name=f"{trainer}-{schedule}",
                                       options=["--schedule", schedule, "--log-level", "info"])
                self.check_same(plain, split)
                told += self.about_lists(split)
        self.check_told(*told)

    @slow
    def test_carry_a_state_from_forward_to_forward(self):
        words = [PYTHON, TRAINERS, "hidden_state"]
        split = self.run_split(2, *words, options=["--schedule", "gpipe"])
        self.check_same(self.run_plain(*words), split)
        self.check_told(*self.about_lists(split))

    @slow
    def test_go_forward_from_gradients(self):
        words = [PYTHON, TRAINERS, "double_backward"]
        plain = self.run_plain(*words)
        split = self.run_split(2, *words, options=["--log-level", "info"])
        self.check_same(plain, split)
        self.check_told(*self.about_lists(split))

    @slow
    def test_have_steps_of_many_sizes(self):
        words = [PYTHON, TRAINERS, "other_counts"]
        plain, told = self.run_plain(*words), []
        for schedule in ("1f1b", "gpipe", "zb-h1", "interleaved", "gems-mast"):
            split = self.run_split(2, *words, name=schedule, options=["--schedule", schedule, "--log-level", "info"])
            self.check_same(plain, split)
            told += [f"{schedule}:", *self.about_lists(split)]
        self.check_told(*told)

    def test_mark_their_micro_batches_or_name_a_window(self):
        self.check("forwards_before_backwards", "other_counts", options=["--schedule", "gpipe", "--window", "1"])


class Replicated(PythonCase):
    @slow
    def test_parameters_are_on_all_ranks(self):
        for trainers, options in ((("adamw_plain", "adamw_fused", "transformer"), ()),
                                  (("tied_embedding", "sgd_accumulating"), ("--schedule", "gems-mast")),
                                  (("transformer", "tied_embedding"), ("--replicas", "2"))):
            name = "-".join(trainers)
            words = [PYTHON, TRAINERS, *trainers]
            split = self.run_split(2, *words, name=f"split-{name}",
                                   options=["--replicate", "embedding,*norm*,addmm", *options])
            self.check_same(self.run_plain(*words, name=f"plain-{name}"), split)

    def test_parameters_count_on_all_ranks(self):
        words = [PYTHON, TRAINERS, "wide_adamw,fused"]
        plain = self.run_plain(*words)
        sums = []
        for name, options in (("some", ()), ("all", ("--replicate", "*"))):
            split = self.run_split(2, *words, name=name, options=options)
            self.check_same(plain, split)
            sums.append(sum(rank["parameter_bytes"] for rank in split.statistics["ranks"]))
        self.assertEqual(sums[1], 2 * sums[0])

    def test_patterns_of_nothing_are_told(self):
        words = [PYTHON, TRAINERS, "sgd_accumulating"]
        split = self.run_split(2, *words, options=["--replicate", "addmm,embeding"])
        self.check_same(self.run_plain(*words), split)
        self.check_told(*(line for line in split.errors.splitlines() if "--replicate embeding" in line))
        self.assertNotIn("--replicate addmm", split.errors)


if __name__ == "__main__":
    unittest.main()
