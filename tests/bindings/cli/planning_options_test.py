"""Each option of the planning commands, from the word on the command line to what comes of it."""
import json
import pathlib
import re
import unittest

from command_case import CommandCase

LAYERS = 6
LINK = ("--link-out", "8", "--link-in", "9")
TWO_TIERS = (*LINK, "--host-memory", "24MiB", "--disk-out", "2", "--disk-in", "3")
COMMANDS = ("plan", "simulate")  # Of one device.
JOB_COMMANDS = ("plan-job", "check", "rebalance", "costs")
CLUSTER = str(pathlib.Path(__file__).parents[3] / "bindings/clusters/dgx_a100.json")


def layer_graph():
    """A chain of equal layers, in the format of PipeDream's profiler."""
    sizes = "activation_size=16777216.0, parameter_size=2097152.0"
    nodes = [f"node1 -- Input -- forward_compute_time=0.0, backward_compute_time=0.0, {sizes}\n"]
    edges = []
    for layer in range(2, 2 + LAYERS):
        nodes.append(f"node{layer} -- Conv2d(8, 8) -- forward_compute_time=4.0, "
                     f"backward_compute_time=8.0, {sizes}\n")
        edges.append(f"\tnode{layer - 1} -- node{layer}\n")
    return "".join(nodes + edges)


class PlanningOptions(CommandCase):
    tried = set()  # Command and word, in calls that succeeded.

    def setUp(self):
        super().setUp()
        self.work = self.root / "work"
        self.write("layers.txt", layer_graph())
        code, _, errors = self.spillway("profile", "--import", "pipedream", "layers.txt", "--out",
                                        "layers.json")
        self.assertEqual((code, errors), (0, ""))

    def spillway(self, *words, **variables):
        outcome = super().spillway(*words, **variables)
        if outcome[0] == 0:
            self.tried.update((words[0], word) for word in words[1:])
        return outcome

    def told(self, command, *words):
        """What it prints on standard output."""
        code, output, errors = self.spillway(command, "layers.json", *words)
        self.assertEqual((code, errors), (0, ""), words)
        return output

    def planned(self, command, *words, budget="50%", effort="0"):
        return json.loads(self.told(command, "--json", "--budget", budget, "--effort", effort,
                                    *words))

    def read(self, name):
        return json.loads((self.work / name).read_text(encoding="utf-8"))

    def disks(self):
        """Two measured disks and the links of two GPUs, as bench-io records them."""
        disks = [{"directory": directory, "device": directory[1:], "write_bytes_per_second": write,
                  "read_bytes_per_second": read, "both_bytes_per_second": 2e9, "samples": []}
                 for directory, write, read in (("/first", 2e9, 3e9), ("/second", 4e9, 6e9))]
        links = [{"name": name, "device": "cuda:0", "measured_at": "2026-11-27T12:00:00Z",
                  "out_bytes_per_second": out, "in_bytes_per_second": back, "both_bytes_per_second": out + back,
                  "samples": [], "mapping": [], "pinning": []}
                 for name, out, back in (("Card", 8e9, 9e9), ("Other Card", 4e9, 5e9))]
        self.write("disks.json", json.dumps({"format": "spillway disk rates", "version": 1,
                                             "disks": disks, "links": links}))
        return "disks.json"

    def test_of_the_help_are_all_tried_here(self):
        for name in unittest.TestLoader().getTestCaseNames(type(self)):
            if name != self._testMethodName:
                getattr(self, name)()
        for command in COMMANDS + JOB_COMMANDS:
            _, output, _ = self.spillway(command, "--help")
            options = re.findall(r"(?m)^ +(?:-\w,)?(--[a-z-]+)", output.split("Examples:")[0])
            self.assertGreater(len(options), 15 if command in ("plan", "simulate", "plan-job") else 1)
            self.assertEqual([option for option in options if (command, option) not in self.tried], [], command)

    def test_rates_of_a_link(self):
        for command in COMMANDS:
            rates = self.planned(command, *LINK, "--duplex", "0.75")["rates"]
            self.assertEqual(rates["source"], "given")
            self.assertEqual(rates["write_bytes_per_second"], 8e9)
            self.assertEqual(rates["read_bytes_per_second"], 9e9)
            self.assertEqual(rates["duplex_share"], 0.75)
            self.assertEqual(self.planned(command, *LINK)["rates"]["duplex_share"], 1)

    def test_rates_of_disks_behind_a_link(self):
        for command in COMMANDS:
            planned = self.planned(command, *TWO_TIERS)
            self.assertEqual(planned["host_memory_bytes"], 24 << 20)
            self.assertEqual(planned["rates"]["write_bytes_per_second"], 8e9)
            self.assertEqual(planned["rates"]["read_bytes_per_second"], 9e9)
            self.assertEqual(planned["disk_rates"]["source"], "given")
            self.assertEqual(planned["disk_rates"]["write_bytes_per_second"], 2e9)
            self.assertEqual(planned["disk_rates"]["read_bytes_per_second"], 3e9)

    def test_rates_of_a_file(self):
        named = ("--rates", self.disks(), "--nvme")
        for command in COMMANDS:
            rates = self.planned(command, *named, "/second")["rates"]
            self.assertTrue(rates["source"].startswith("disks.json: /second ("), rates)
            self.assertEqual(rates["write_bytes_per_second"], 4e9)
            self.assertEqual(rates["read_bytes_per_second"], 6e9)
            rates = self.planned(command, *named, "/first,/second")["rates"]
            self.assertEqual(rates["write_bytes_per_second"], 6e9)
            self.assertEqual(rates["read_bytes_per_second"], 9e9)
            behind = self.planned(command, *named, "/first", *LINK, "--host-memory", "24MiB")
            self.assertTrue(behind["disk_rates"]["source"].startswith("disks.json: /first ("))
            self.assertEqual(behind["disk_rates"]["read_bytes_per_second"], 3e9)

    def test_rates_of_the_link_of_a_gpu(self):
        behind = ("--rates", self.disks(), "--nvme", "/first", "--host-memory", "24MiB")
        for command in COMMANDS:
            for name, out, back in (("Card", 8e9, 9e9), ("Other Card", 4e9, 5e9)):
                planned = self.planned(command, *behind, "--gpu", name)
                self.assertEqual(planned["rates"]["source"], f"disks.json: {name}")
                self.assertEqual(planned["rates"]["write_bytes_per_second"], out)
                self.assertEqual(planned["rates"]["read_bytes_per_second"], back)
                self.assertEqual(planned["disk_rates"]["read_bytes_per_second"], 3e9)

    def test_the_bound(self):
        for command in COMMANDS:
            words = ("--link-out", "1", "--link-in", "1", "--bound")
            quick, tight = (self.planned(command, *words, effort, budget="60%")
                            for effort in ("quick", "tight"))
            self.assertEqual(self.planned(command, *words[:-1], budget="60%")["bound_seconds"],
                             quick["bound_seconds"])
            self.assertEqual((quick["bound_kind"], tight["bound_kind"]), ("window", "fluid"))
            self.assertGreater(tight["bound_seconds"], quick["bound_seconds"])

    def test_budget_strategy_and_effort(self):
        for command in COMMANDS:
            needed = self.planned(command)["needed_bytes"]
            self.assertEqual(self.planned(command)["budget_bytes"], needed // 2)
            self.assertEqual(self.planned(command, budget="90MiB")["budget_bytes"], 90 << 20)
            self.assertEqual(self.planned(command, "--strategy", "belady")["strategy"], "belady")
            self.assertTrue(self.planned(command)["search_was_cut"])

    def test_all_strategies(self):
        _, output, _ = self.spillway("plan", "--help")
        names = [plan["strategy"] for plan in self.planned("plan", "--strategy", "all")]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreater(len(names), 8)
        self.assertLessEqual(set(names), set(re.findall(r"(?m)^  (\S+)  +\S", output)))

    def test_the_frontier(self):
        words = ("--effort", "0", "--points", "4", "--json", "--frontier")
        for more in (("--picture", "first.svg"), ("--strategy", "belady"), ("--strategy", "all")):
            plans = json.loads(self.told("plan", *words, *more))
            self.assertEqual(len({plan["budget_bytes"] for plan in plans}), 4)
            self.assertEqual(len({plan["strategy"] for plan in plans}) > 1, "all" in more)
        self.assertTrue((self.work / "first.svg").read_text(encoding="utf-8").startswith("<svg "))

    def test_a_stored_plan(self):
        self.told("plan", "--budget", "50%", "--effort", "0", *LINK, "--out", "a.plan")
        self.assertEqual(self.read("a.plan")["format"], "spillway-plan")
        planned = self.planned("plan", *LINK)
        simulated = json.loads(self.told("simulate", "--plan", "a.plan", "--json"))
        self.assertEqual(simulated["rates"]["source"], "of the plan")
        for key in ("step_seconds", "bound_seconds", "peak_bytes", "swapped_bytes"):
            self.assertEqual(simulated[key], planned[key], key)
        other = json.loads(self.told("simulate", "--plan", "a.plan", "--json", *TWO_TIERS))
        self.assertEqual(other["disk_rates"]["read_bytes_per_second"], 3e9)

    def test_traces(self):
        self.told("plan", "--budget", "50%", "--effort", "0", *TWO_TIERS, "--out", "a.plan")
        self.told("simulate", "--plan", "a.plan", "--trace", "step.json")
        trace = self.read("step.json")
        lanes = {event["args"]["name"] for event in trace["traceEvents"]
                 if event["name"] == "thread_name"}
        self.assertEqual(lanes, {"compute", "host copy", "write-out", "read-in",
                                 "write-out to disk", "read-in from disk"})
        # A run that goes just as predicted.
        for event in trace["traceEvents"]:
            event["pid"] = 2
            if event["name"] == "process_labels":
                event["args"]["labels"] = "run"
        self.write("run.json", json.dumps(trace))
        measured = json.loads(self.told("simulate", "--plan", "a.plan", "--json", "--beside",
                                        "run.json", "--trace", "both.json"))["measured"]
        self.assertEqual(measured["step"], "step")
        for each in measured["largest_differences"]:
            self.assertAlmostEqual(each["planned_seconds"], each["measured_seconds"], 6)
        processes = {event["pid"] for event in self.read("both.json")["traceEvents"]}
        self.assertEqual(processes, {1, 2})

    def test_many_ranks(self):
        job = ("--json", "--ranks", "4", "--micro-batches", "8", "--schedule", "1f1b")
        plan = json.loads(self.told("plan-job", *job, "--partitioner", "even"))
        self.assertEqual((plan["partitioner"], plan["schedule"]), ("even", "1f1b"))
        self.assertEqual(len(plan["stages"]), 4)
        self.assertEqual(plan["options"], {"--ranks": "4", "--micro-batches": "8", "--schedule": "1f1b",
                                           "--partitioner": "even"})
        lines = self.told("plan-job", *job[1:], "--order", "recorded", "--out", "job.json").splitlines()
        self.assertEqual([line for line in lines if line.startswith("asked ")],
                         ["asked     --ranks 4 --micro-batches 8 --schedule 1f1b --order recorded"])
        data_parallel = json.loads(self.told("plan-job", *job, "--replicas", "2"))
        self.assertEqual((data_parallel["data_parallel"], len(data_parallel["stages"])), (2, 2))
        slow = json.loads(self.told("plan-job", *job, "--partitioner", "even", "--link", "1"))
        self.assertGreater(slow["step_seconds"], plan["step_seconds"])
        recorded = json.loads(self.told("plan-job", *job, "--order", "recorded"))
        self.assertEqual((recorded["order"]["name"], recorded["order"]["is_open"]), ("recorded", False))
        memory = plan["peak_bytes"] * 2 // 3 >> 10 << 10
        tight = json.loads(self.told("plan-job", *job, "--device-memory", f"{memory >> 10}KiB", *LINK,
                                     "--host-memory", "1GiB"))
        self.assertLessEqual(tight["peak_bytes"], memory)
        self.assertGreater(max(stage["swapped_bytes"] for stage in tight["stages"]), 0)
        behind = json.loads(self.told("plan-job", *job, "--device-memory", f"{memory >> 10}KiB", *LINK, "--duplex",
                                      "0.5", "--host-memory", "4MiB", "--disk-out", "6", "--disk-in", "7",
                                      "--ranks-per-host", "2", "--out", "behind.plan"))
        self.assertEqual((behind["hosts"]["swaps_to"], behind["hosts"]["ranks_per_host"]), ("disks", 2))
        self.assertEqual(self.read("behind.plan")["links"]["host_link"]["bytes_per_second"], 1.5e9)
        merged = json.loads(self.told("plan-job", *job, "--batch", "16"))
        self.assertEqual((merged["batch"], merged["micro_batches"]), (16, 8))
        disks = ("--rates", self.disks(), "--nvme", "/second")
        rates = []
        for sharers in ("1", "2"):
            self.told("plan-job", *job, *disks, "--ranks-per-host", sharers, "--out", "disks.plan")
            rates.append(self.read("disks.plan")["links"]["host_link"]["bytes_per_second"])
        self.told("plan-job", *job, *disks, "--host-memory", "1GiB", "--gpu", "Card", "--ranks-per-host", "1", "--out",
                  "card.plan")
        self.assertEqual(self.read("card.plan")["links"]["host_link"]["bytes_per_second"], 8e9)
        self.assertEqual(rates, [0.8e9, 0.4e9])  # 2 of 10 GB/s are left while both directions are busy.

    def test_pictures_files_and_checks_of_many_ranks(self):
        self.told("plan-job", "--ranks", "3", "--schedule", "gpipe", "--picture", "job.svg", "--out",
                  "job.json")
        self.assertTrue((self.work / "job.svg").read_text(encoding="utf-8").startswith("<svg "))
        self.assertEqual(self.read("job.json")["format"], "spillway-job-plan")
        self.told("plan-job", "--ranks", "3", "--schedule", "gpipe", "--out", "lists.csv")
        for name, knows_memory in (("job.json", True), ("lists.csv", False)):
            code, output, errors = self.spillway("check", name, "--json")
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(json.loads(output)["knows_memory"], knows_memory)

    def test_a_plan_on_a_newer_profile(self):
        self.told("plan-job", "--ranks", "3", "--micro-batches", "12", "--schedule", "1f1b", "--out", "job.json")
        slow = layer_graph().replace("node2 -- Conv2d(8, 8) -- forward_compute_time=4.0",
                                     "node2 -- Conv2d(8, 8) -- forward_compute_time=34.0")
        self.write("slow.txt", slow)
        self.spillway("profile", "--import", "pipedream", "slow.txt", "--out", "slow.json")
        code, output, errors = self.spillway("rebalance", "job.json", "slow.json", "--link", "8",
                                             "--steps-left", "1000", "--out", "next.json", "--json")
        self.assertEqual((code, errors), (0, ""))
        told = json.loads(output)
        self.assertEqual((told["steps_left"], told["pays"]), (1000, True))
        self.assertEqual([(move["first"], move["from_rank"], move["to_rank"]) for move in told["moves"]],
                         [(1, 0, 1), (3, 1, 2)])
        self.assertEqual(self.read("next.json")["figures"]["step_seconds"], told["step_seconds"])
        code, _, errors = self.spillway("rebalance", "job.json", "slow.json", *LINK, "--duplex", "0.5", "--host-memory",
                                        "2GiB", "--device-memory", "1GiB", "--out", "limited.json")
        self.assertEqual((code, errors), (0, ""))
        limited = self.read("limited.json")
        self.assertEqual((limited["device_memory_bytes"], limited["host_memory_bytes"]), (1 << 30, 2 << 30))
        self.assertEqual(limited["links"]["host_link"]["bytes_per_second"], 4e9)

    def test_a_described_machine(self):
        self.told("plan-job", "--ranks", "4", "--replicas", "2", "--micro-batches", "8", "--schedule",
                  "1f1b", "--out", "job.json")
        code, output, errors = self.spillway("simulate", "job.json", "--cluster", CLUSTER,
                                             "--ranks", "16", "--json")
        self.assertEqual((code, errors), (0, ""))
        run = json.loads(output)
        self.assertEqual((run["ranks"], run["pipelines"]), (16, 8))
        self.assertGreater(run["step_seconds"], run["planned_step_seconds"])
        code, output, errors = self.spillway("simulate", "job.json", "--cluster", CLUSTER,
                                             "--ranks", "16", "--speedup", "2", "--json")
        self.assertEqual((code, errors), (0, ""))
        fast = json.loads(output)
        self.assertEqual((run["speedup"], fast["speedup"]), (1, 2))
        self.assertLess(fast["step_seconds"], run["step_seconds"])
        code, output, errors = self.spillway(
            "simulate", "job.json", "--cluster", "dgx_a100", "--placement", "folded", "--update", "hosts",
            "--swap-to", "disks", "--stragglers", "0.1", "--speedup", "2", "--json")
        self.assertEqual((code, errors), (0, ""))
        run = json.loads(output)
        self.assertEqual([run[key] for key in ("cluster", "placement", "update", "swaps_to")],
                         ["dgx-a100", "folded", "hosts", "disks"])

    def test_plans_for_a_described_machine(self):
        job = ("--json", "--ranks", "4", "--micro-batches", "8", "--schedule", "1f1b")
        plan = json.loads(self.told("plan-job", *job, "--cluster", "dgx_a100"))
        self.assertEqual(plan["device_memory_bytes"], 40 * 10**9)
        self.assertEqual(plan["machine"]["cluster"], "dgx-a100")
        self.assertGreater(plan["machine"]["step_seconds"], 0.0)
        memory = f"{plan['peak_bytes'] * 2 // 3 >> 10}KiB"
        disks = json.loads(self.told("plan-job", *job, "--cluster", CLUSTER, "--device-memory", memory,
                                     "--host-memory", "1MiB", "--rates", self.disks(), "--nvme", "/first"))
        self.assertEqual(disks["hosts"]["swaps_to"], "disks")
        self.told("plan-job", *job, "--replicas", "2", "--cluster", "dgx_a100", "--out", "own.json")
        code, output, errors = self.spillway("simulate", "own.json", "--ranks", "1024", "--json")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((json.loads(output)["cluster"], json.loads(output)["ranks"]), ("dgx-a100", 1024))

    def test_comparisons_and_lists_of_costs(self):
        rows = json.loads(self.told("plan-job", "--json", "--ranks", "3", "--compare"))
        self.assertGreater(len(rows), 25)
        self.write("costs.txt", "4 1 1 1 1\n")
        code, output, _ = self.spillway("costs", "costs.txt", "--ranks", "2", "--json")
        self.assertEqual(code, 0)
        self.assertEqual([stage["first"] for stage in json.loads(output)["stages"]], [0, 1])
        code, output, _ = self.spillway("costs", "costs.txt", "--ranks", "2", "--partitioner", "even", "--json")
        self.assertEqual((code, json.loads(output)["partitioner"]), (0, "even"))
        code, output, _ = self.spillway("costs", "costs.txt", "--ranks", "2", "--compare", "--json")
        self.assertEqual(code, 0)
        self.assertIn("even", [row["partitioner"] for row in json.loads(output)])


if __name__ == "__main__":
    unittest.main()
