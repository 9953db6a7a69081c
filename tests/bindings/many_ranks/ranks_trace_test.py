"""One trace of all ranks, with arrows for the messages between them."""
import collections
import json
import re
import unittest

import golden
from ranks_case import COMMAND, TRAINER, RanksCase

TRAIN = (*TRAINER, "--micro-batches", "4", "--steps", "5")


class Trace(RanksCase):
    def events(self, name):
        return json.loads((self.folder / name).read_text())["traceEvents"]

    @staticmethod
    def lanes(events):
        """The spans by process and lane."""
        names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
                 if event["name"] == "thread_name"}
        spans = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                spans[event["pid"], names[event["pid"], event["tid"]]].append(event)
        return spans

    def arrows(self, events):
        """Both ends of each, by number."""
        ends = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"}
        self.assertEqual(ends["s"].keys(), ends["f"].keys())
        self.assertEqual(sum(event["ph"] in "sf" for event in events), 2 * len(ends["s"]))
        return [(begin, ends["f"][number]) for number, begin in ends["s"].items()]

    def check_ends(self, events, uncertainty):
        lanes = self.lanes(events)
        arrows = self.arrows(events)
        self.assertGreater(len(arrows), 0)
        for begin, end in arrows:
            self.assertNotEqual(begin["pid"], end["pid"])
            self.assertGreaterEqual(end["ts"], begin["ts"] - uncertainty)
            self.assertTrue(any(span["ts"] == begin["ts"] for span in lanes[begin["pid"], "send"]), begin)
            self.assertTrue(any(abs(span["ts"] + span["dur"] - end["ts"]) < 0.01
                                for span in lanes[end["pid"], "receive"]), end)

    def check_rows(self, events, ranks, first=0):
        """Actions of 1F1B: each micro-batch of the stage of a rank, and operators that lie in them."""
        lanes = self.lanes(events)
        for rank in range(ranks):
            process = 2 * (first + rank) + 2
            actions = lanes[process, "actions"]
            self.assertEqual({span["name"] for span in actions},
                             {f"{rank}{direction}{batch}" for direction in "FB" for batch in range(4)})
            times = sorted((span["ts"], span["ts"] + span["dur"]) for span in actions)
            self.assertTrue(all(one[1] <= next_one[0] + 0.01 for one, next_one in zip(times, times[1:])))
            computed = lanes[process, "compute"]
            self.assertGreater(len(computed), 0)
            steps = [event["ts"] for event in events if event["ph"] == "i" and event["pid"] == process]
            for span in computed:
                self.assertGreaterEqual(span["ts"], min(steps) - 0.01)
                self.assertLess(span["ts"], max(steps) + 0.01)
                if "stage" in span["args"]:
                    self.assertEqual(span["args"]["stage"], str(rank))
            self.assertTrue(any(span["args"].get("direction") == "backward" for span in computed))

    def test_of_two_ranks_shows_both_and_their_messages(self):
        plain = self.start(*TRAIN, "--losses", "plain.txt")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        run = self.split(2, "--trace", "ranks.json", trainer=(*TRAIN, "--losses", "traced.txt"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.folder / "traced.txt").read_bytes(), (self.folder / "plain.txt").read_bytes())
        told = re.search(r"trace +\S*ranks.json: .*; 2 of 2 ranks, whose clocks agree to (\d+) us", run.stderr)
        self.assertIsNotNone(told, run.stderr)
        events = self.events("ranks.json")
        titles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(set(titles), {2, 4})
        self.assertEqual(golden.without(titles[4], golden.HOST).split(": ")[:2], ["rank 1 (HOST)", "measured"])
        self.check_ends(events, int(told[1]))
        self.check_rows(events, 2)

    def test_of_two_shards_shows_all_their_ranks(self):
        run = self.split(4, "--shards", "2", "--trace", "shards.json", trainer=TRAIN)
        self.assertEqual(run.returncode, 0, run.stderr)
        told = re.search(r"trace +\S*shards.json: .*; 4 of 4 ranks, whose clocks agree to (\d+) us", run.stderr)
        self.assertIsNotNone(told, run.stderr)
        events = self.events("shards.json")
        titles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(set(titles), {2, 4, 6, 8})
        for rank, process in enumerate(sorted(titles)):
            self.assertEqual(golden.without(titles[process], golden.HOST).split(": ")[:2],
                             [f"shard {rank // 2}, rank {rank} (HOST)", "measured"])
        self.check_ends(events, int(told[1]))
        for begin, end in self.arrows(events):
            self.assertEqual((begin["pid"] - 2) // 4, (end["pid"] - 2) // 4)
        self.check_rows(events, 2)
        self.check_rows(events, 2, first=2)

    def test_of_each_rank_is_a_file_of_its_own_where_the_name_says_so(self):
        run = self.split(2, "--trace", "rank.%r.json", trainer=TRAIN)
        self.assertEqual(run.returncode, 0, run.stderr)
        for rank in range(2):
            events = self.events(f"rank.{rank}.json")
            self.assertEqual({event["pid"] for event in events}, {2 * rank + 2})
            self.assertGreater(len(self.lanes(events)[2 * rank + 2, "send"]), 0)
            self.assertEqual(self.arrows(events), [])

    def test_has_the_lanes_of_a_plan(self):
        made = self.start(COMMAND, "profile", "--out", "step.json", "--", *TRAINER[:7], "--steps", "6")
        self.assertEqual(made.returncode, 0, made.stderr)
        for words in (("plan-job", "step.json", "--ranks", "2", "--schedule", "1f1b", "--replicas", "1",
                       "--micro-batches", "4", "--out", "plan.json"),
                      ("simulate", "plan.json", "--cluster", "abci_v100", "--trace", "plan.trace.json")):
            done = self.start(COMMAND, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
        lanes = self.lanes(self.events("plan.trace.json"))
        self.assertEqual({span["name"] for span in lanes[1, "actions"]} & {"0F0", "0B3"}, {"0F0", "0B3"})
        self.assertGreater(len(lanes[1, "send"]), 0)
        self.assertEqual({process for process, _ in lanes}, {1, 3})


if __name__ == "__main__":
    unittest.main()
