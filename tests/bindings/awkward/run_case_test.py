"""The runner itself: that it fails when it should, with small programs in place of the real ones."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import golden

RUNNER = pathlib.Path(__file__).resolve().parent / "run_case.py"
MIB = 1 << 20

# Stands for the program under test: writes its digest to --out, and says with --measure what it needs.
PROGRAM = """
import os, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
lines = ["loss 0x1p+0", "weight Float[4] 00ff"]
if "--measure" in sys.argv:
    print("case: peak 96 MiB, largest operator 12 MiB (aten::mm), 0.1 s", file=sys.stderr)
{change}
out.write_text("\\n".join(lines) + "\\n")
"""

# Stands for the command line of Spillway: runs the program and writes statistics.
SPILLWAY = """
import json, os, pathlib, subprocess, sys
words = sys.argv[1:]
split = words.index("--")
budget = int(words[words.index("--budget") + 1].removesuffix("KiB")) * 1024
needed, spilled, peak, fetched, demoted = {needed}, 0, min(budget, {needed}), 0, 0
if budget < needed:
    spilled = needed - budget
os.environ["FAKE_BUDGET"] = str(budget)
{change}
status = subprocess.call(words[split + 1:])
stats = dict(needed_bytes=needed, spilled_bytes=spilled, peak_bytes=peak, fetched_bytes=fetched, demoted_bytes=demoted)
pathlib.Path(words[words.index("--stats") + 1]).write_text(json.dumps(stats))
sys.exit(status)
"""


class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def script(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path

    def call(self, mode, program_change="", spillway_change="", options=()):
        program = self.script("program", PROGRAM.format(change=textwrap.dedent(program_change)))
        spillway = self.script(
            "spillway",
            SPILLWAY.format(needed=100 * MIB, change=textwrap.dedent(spillway_change)))
        done = subprocess.run(
            [sys.executable, str(RUNNER), mode, "some_case", "--program", str(program),
             "--spillway", str(spillway), "--work", str(pathlib.Path(self.folder.name) / "work"),
             *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def assert_failed(self, result, *texts):
        status, output = result
        self.assertEqual(status, 1, output)
        for text in texts:
            self.assertIn(text, output)

    def check_passed(self, *results):
        """They ended well, and have printed what the part of this case in texts/told.txt shows."""
        self.assertEqual([status for status, _ in results], [0] * len(results), results)
        golden.check_part(self, *(output.replace(self.folder.name, "FOLDER") for _, output in results))

    def test_passes_when_all_runs_agree(self):
        self.check_passed(self.call("runtime"))

    def test_gives_each_share_that_is_asked_for(self):
        self.check_passed(self.call("runtime", options=["--percent", "50", "--percent", "30"]))

    def test_compares_with_the_plain_run_of_an_earlier_call(self):
        reference = pathlib.Path(self.folder.name) / "reference"
        options = ["--measured", "--reference", str(reference)]
        self.assert_failed(self.call("runtime", options=options), "make the runs of some_case")
        self.assertEqual(self.call("runtime", options=["--measured"])[0], 0)
        (pathlib.Path(self.folder.name) / "work").rename(reference)
        self.assert_failed(self.call("runtime", "if 'FAKE_BUDGET' in os.environ: lines[:] = ['other']",
                                     options=options), "measured_25: 2 of 2 results differ from plain")
        status, output = self.call("runtime", options=options)
        self.assertEqual(status, 0, output)
        self.assertNotIn("with_room", output)

    def test_compares_with_the_run_with_room_of_an_earlier_call(self):
        reference = pathlib.Path(self.folder.name) / "reference"
        self.assertEqual(self.call("runtime")[0], 0)
        (pathlib.Path(self.folder.name) / "work").rename(reference)
        self.check_passed(self.call(
            "runtime", spillway_change="if budget > needed: sys.exit('a second run with room')",
            options=["--reference", str(reference)]))

    def test_hands_options_to_the_program(self):
        status, output = self.call("runtime", "assert '--faster' in sys.argv",
                                   options=["--case-option=--faster"])
        self.assertEqual(status, 0, output)
        self.assert_failed(self.call("runtime", "assert '--faster' in sys.argv"), "AssertionError")

    def test_looks_for_both_ways_back_when_told(self):
        change = """
            trace = dict(traceEvents=[dict(ph="X", name=name, tid=1) for name in {names}])
            if "--trace" in words:
                pathlib.Path(words[words.index("--trace") + 1]).write_text(json.dumps(trace))
            {stats}
        """
        options = ["--moved-and-recomputed"]
        read = "fetched = 8"
        for names, stats, told in ((["aten::mm"], read, "0 operators ran again"),
                                   (["recomputed: aten::mm"], "", "0 bytes were read back")):
            self.assert_failed(self.call("runtime", options=options,
                                         spillway_change=change.format(names=names, stats=stats)),
                               told)
        self.check_passed(self.call("runtime", options=options, spillway_change=change.format(
            names=["recomputed: aten::mm"], stats=read)))
        self.assert_failed(self.call("runtime", options=options), "no step was seen whole")

    def test_wants_bytes_that_went_on_to_the_disk_when_told(self):
        self.assert_failed(self.call("runtime", options=["--demoted"]), "budget_25: nothing went on from host memory")
        status, output = self.call("runtime", spillway_change="demoted = spilled", options=["--demoted"])
        self.assertEqual(status, 0, output)

    def test_takes_the_need_from_the_plain_run(self):
        self.check_passed(self.call("runtime", options=["--measured"]))

    def test_leaves_room_for_the_largest_operator_that_was_measured(self):
        self.check_passed(self.call("runtime", options=["--measured", "--percent", "10"]))

    def test_runs_a_measured_case_with_room_when_told(self):
        self.check_passed(self.call("runtime", options=["--measured", "--with-room"]))

    def test_makes_a_run_with_room_when_the_measured_budget_is_refused(self):
        change = """
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)")
                sys.exit(1)
        """
        self.check_passed(self.call("runtime", spillway_change=change, options=["--measured"]))

    def test_refuses_a_refusal_of_a_measured_budget_that_was_large_enough(self):
        result = self.call("runtime", spillway_change="""
            make = json.dumps
            json.dumps = lambda stats: make(dict(stats, largest_op_needs_bytes=10 << 20))
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)")
                sys.exit(1)
        """, options=["--measured"])
        self.assert_failed(result, "measured_25: was refused with 24.0 MiB, although the largest "
                           "operator needs 10.0 MiB")

    def test_refuses_a_need_below_what_was_measured(self):
        result = self.call("runtime", spillway_change="needed = 80 << 20",
                           options=["--measured"])
        self.assert_failed(result, "measured_25: needed_bytes is 83886080, but 100663296 bytes")

    def test_blames_the_case_when_a_measured_one_differs_from_itself(self):
        result = self.call("runtime", 'lines.append("pid " + str(os.getpid()))',
                           options=["--measured"])
        self.assert_failed(result, "again: 1 of 3 results differ from plain")

    def test_shows_the_line_that_differs(self):
        result = self.call("runtime", 'if int(os.environ.get("FAKE_BUDGET", 0)) == 26214400: '
                                      'lines[1] = "weight Float[4] 0000"')
        self.assert_failed(result, "budget_25: 1 of 2 results differ from plain",
                           "-weight Float[4] 00ff", "+weight Float[4] 0000")

    def test_refuses_a_program_that_differs_from_itself(self):
        result = self.call("plain", 'lines.append("pid " + str(os.getpid()))')
        self.assert_failed(result, "again: 1 of 3 results differ from plain")

    def test_blames_the_case_when_plain_runs_differ(self):
        result = self.call("runtime", 'lines.append("pid " + str(os.getpid()))')
        self.assert_failed(result, "again: 1 of 3 results differ from plain")

    def test_refuses_pressure_without_spilling(self):
        self.assert_failed(self.call("runtime", spillway_change="spilled = 0"),
                           "budget_25: nothing was spilled")

    def test_refuses_spilling_without_pressure(self):
        self.assert_failed(self.call("runtime", spillway_change="spilled = spilled or 4096"),
                           "with_room: 4096 bytes were spilled, although the budget of 1073741824 "
                           "is 2 times the need of 104857600 or more")

    def test_forgives_spilling_where_the_budget_is_hardly_above_the_need(self):
        status, output = self.call("runtime", spillway_change="spilled = spilled or 4096",
                                   options=["--room", "150"])
        self.assertEqual(status, 0, output)

    def test_asks_for_a_plan_when_told(self):
        change = """
            make = json.dumps
            json.dumps = lambda stats: make(dict(stats, planned_step_seconds={}))
        """
        options = ["--planned"]
        self.assert_failed(self.call("runtime", spillway_change=change.format(0), options=options),
                           "budget_25: no plan was followed")
        for planned, given in ((0.5, options), (0, [])):
            status, output = self.call("runtime", spillway_change=change.format(planned),
                                       options=given)
            self.assertEqual(status, 0, output)

    def test_refuses_a_broken_budget(self):
        self.assert_failed(self.call("runtime", spillway_change="peak = needed"),
                           "budget_25: 104857600 bytes were in memory, the budget is 26214400")

    def test_refuses_an_option_that_was_ignored(self):
        change = """
            make = json.dumps
            json.dumps = lambda stats: make(dict(stats, mapper="userfaultfd"))
        """
        options = ["--run-option=--mapper=signal"]
        self.assert_failed(self.call("runtime", spillway_change=change, options=options),
                           "--mapper=signal was asked for, and mapper is userfaultfd")
        self.assertEqual(self.call("runtime", spillway_change=change)[0], 0)

    MISSING_MAPPER = """
        print('[spillway] error: mapper "userfaultfd-user": Linux 6.8 is needed', flush=True)
        sys.exit({status})
    """

    def test_skips_a_mapper_that_the_machine_does_not_allow_and_says_why(self):
        status, output = self.call(
            "runtime", spillway_change=self.MISSING_MAPPER.format(status=2),
            options=["--run-option=--mapper=userfaultfd-user"])
        self.assertEqual(status, 77, output)
        self.assertEqual(output, 'skipped: mapper "userfaultfd-user": Linux 6.8 is needed\n')

    def test_refuses_a_refusal_of_a_mapper_that_nobody_has_asked_for(self):
        for options in ([], ["--run-option=--mapper=signal"]):
            self.assert_failed(
                self.call("runtime", spillway_change=self.MISSING_MAPPER.format(status=2),
                          options=options), "with_room: ended with status 2")

    def test_refuses_a_run_that_goes_on_without_the_mapper(self):
        self.assert_failed(
            self.call("runtime", spillway_change=self.MISSING_MAPPER.format(status=0),
                      options=["--run-option=--mapper=userfaultfd-user"]),
            "with_room.digest is empty")

    def call_with_setting(self, option, **told):
        return self.call("runtime", options=[f"--run-option={option}"], spillway_change=f"""
            make = json.dumps
            json.dumps = lambda stats: make(dict(stats, **{told!r}))
        """)

    def test_knows_the_settings_that_were_asked_for(self):
        for option, told in [("--mapper=copy", dict(mapper="copy")),
                             ("--dispatch-key=record-function",
                              dict(dispatch_key="record-function")),
                             ("--store=ram", dict(store="RAM, 190 MiB")),
                             ("--store=auto", dict(store="posix, direct I/O, /tmp (ext4)")),
                             ("--store=posix", dict(store="posix, direct I/O, /tmp (ext4)")),
                             ("--prefetch=off", dict(prefetch=False)),
                             ("--prefetch=on", dict(prefetch=True)),
                             ("--verify", dict(verify=True))]:
            status, output = self.call_with_setting(option, **told)
            self.assertEqual(status, 0, output)

    def test_refuses_each_setting_that_was_ignored(self):
        for option, told, said in [
                ("--store=posix", dict(store="io_uring, /tmp"), "store is io_uring, /tmp"),
                ("--store=ram", dict(store="ramdisk, /tmp"), "store is ramdisk, /tmp"),
                ("--prefetch=off", dict(prefetch=True), "prefetch is True"),
                ("--prefetch=on", dict(prefetch=False), "prefetch is False"),
                ("--verify", dict(verify=False), "--verify=on was asked for, and verify is False"),
                ("--verify", dict(prefetch=True), "'verify' is not in")]:
            self.assert_failed(self.call_with_setting(option, **told), said)

    def test_knows_a_setting_whose_value_is_a_word_of_its_own(self):
        result = self.call("runtime", options=["--run-option=--store", "--run-option=posix"],
                           spillway_change="""
            make = json.dumps
            json.dumps = lambda stats: make(dict(stats, store="RAM, 190 MiB"))
        """)
        self.assert_failed(result, "--store=posix was asked for, and store is RAM, 190 MiB")

    def test_takes_the_smallest_budget_that_the_runtime_names(self):
        self.check_passed(self.call("runtime", spillway_change="""
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)")
                sys.exit(1)
        """))

    # Wrong below 40 MiB, and says what the runtime says when it refuses.
    WRONG_BELOW_40_MIB = """
        if int(os.environ.get("FAKE_BUDGET", 64 << 20)) < 40 << 20:
            print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)", flush=True)
            lines[1] = "weight Float[4] 0000"
    """

    def test_refuses_wrong_results_although_a_smallest_budget_is_named(self):
        result = self.call("runtime", self.WRONG_BELOW_40_MIB)
        self.assert_failed(result, "budget_25: 1 of 2 results differ from plain",
                           "+weight Float[4] 0000")
        self.assertNotIn("budget_25_smallest", result[1])

    def test_refuses_wrong_results_of_a_refused_run(self):
        result = self.call("runtime", self.WRONG_BELOW_40_MIB, """
            if budget < 40 << 20:
                status = subprocess.call(words[split + 1:])
                sys.exit(1)
        """)
        self.assert_failed(result, "budget_25: 1 of 2 results differ from plain")

    def test_refuses_wrong_results_under_the_smallest_budget(self):
        result = self.call("runtime", """
            if int(os.environ.get("FAKE_BUDGET", 0)) >> 20 == 40:
                lines[1] = "weight Float[4] 0000"
        """, """
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)")
                sys.exit(1)
        """)
        self.assert_failed(result, "budget_25_smallest: 1 of 2 results differ from plain")

    def test_refuses_a_refusal_of_the_budget_that_the_runtime_named(self):
        result = self.call("runtime", spillway_change="""
            if budget < 50 << 20:
                print(f"aten::mm does not fit. smallest budget: {budget // MIB + 10} MiB (needed)")
                sys.exit(1)
        """.replace("MIB", str(MIB)))
        self.assert_failed(result, "budget_25_smallest: ended with status 1")

    def test_refuses_a_crash_that_follows_a_named_budget(self):
        result = self.call("runtime", spillway_change="""
            import signal
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed)", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
        """)
        self.assert_failed(result, "budget_25: was killed by SIGSEGV")

    def test_repeats_a_run_that_the_refusal_aborted(self):
        self.check_passed(self.call("runtime", spillway_change="""
            import signal
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed)", flush=True)
                os.kill(os.getpid(), signal.SIGABRT)
        """))

    def test_makes_one_run_for_shares_of_the_same_budget(self):
        self.check_passed(self.call("runtime", options=["--percent", "30", "--percent", "20"],
                                   spillway_change=self.LARGEST_OPERATOR))

    def test_refuses_two_runs_of_one_name(self):
        result = self.call("runtime", options=["--measured", "--percent", "50", "--percent", "50"])
        self.assert_failed(result, "measured_50: two runs have this name")

    # Names an operator that needs 33 MiB with all that it takes.
    LARGEST_OPERATOR = """
        make = json.dumps
        json.dumps = lambda stats: make(dict(stats, largest_op_needs_bytes=33 << 20,
                                             largest_op="aten::mm"))
    """

    def test_raises_a_budget_below_the_largest_operator(self):
        self.check_passed(self.call("runtime", spillway_change=self.LARGEST_OPERATOR))

    def test_refuses_to_raise_a_share_that_is_to_be_kept(self):
        shares = ["--percent", "50", "--percent", "25"]
        options = [*shares, "--may-raise", "24"]
        self.assert_failed(
            self.call("runtime", spillway_change=self.LARGEST_OPERATOR, options=options),
            "budget_50: equal", "budget_25: 25 % of the need of 100.0 MiB is below the smallest",
            "other flags, or allow it with --may-raise 25")
        allowed = self.call("runtime", spillway_change=self.LARGEST_OPERATOR,
                            options=[*shares, "--may-raise", "25"])
        self.assertEqual(allowed[0], 0, allowed[1])

    def test_refuses_to_raise_a_share_because_of_a_refusal(self):
        result = self.call("runtime", options=["--may-raise", "24"], spillway_change="""
            if budget < 40 << 20:
                print("aten::mm does not fit. smallest budget: 40 MiB (needed at once)")
                sys.exit(1)
        """)
        self.assert_failed(result, "budget_25: 25 % of the need", "40.0 MiB or 40.0 %")

    def test_refuses_to_raise_a_measured_share_that_is_to_be_kept(self):
        options = ["--measured", "--percent", "10", "--may-raise", "9"]
        self.assert_failed(self.call("runtime", options=options), "measured_10: 10 % of the need")

    def test_refuses_a_smallest_budget_that_is_no_pressure(self):
        result = self.call("runtime", spillway_change="""
            if budget < 90 << 20:
                print("smallest budget: 100 MiB")
                sys.exit(1)
        """)
        self.assert_failed(result, "this case cannot show any paging")

    def test_names_the_signal_that_killed_the_program(self):
        result = self.call("runtime", 'if "FAKE_BUDGET" in os.environ: os.kill(os.getpid(), 11)',
                           "import signal; os.execv(words[split + 1], words[split + 1:])")
        self.assert_failed(result, "with_room: was killed by SIGSEGV")

    def test_ends_a_run_that_hangs(self):
        result = self.call("plain", "import signal; signal.pause()", options=["--timeout", "2"])
        self.assert_failed(result, "plain: no end after 2 s")

    def test_takes_the_program_along_when_it_is_ended(self):
        note = pathlib.Path(self.folder.name) / "pid"
        program = self.script("program", PROGRAM.format(change=textwrap.dedent(f"""
            import signal
            os.mkfifo("{note}")
            pathlib.Path("{note}").write_text(str(os.getpid()))
            signal.pause()
        """)))
        runner = subprocess.Popen([sys.executable, str(RUNNER), "plain", "some_case", "--program",
                                   str(program), "--work", self.folder.name + "/work"])
        while not note.exists():
            self.assertIsNone(runner.poll())
        number = int(note.read_text())  # Waits for the program to write it.
        runner.terminate()
        self.assertEqual(runner.wait(), 128 + signal.SIGTERM)
        self.assertRaises(ProcessLookupError, os.kill, number, 0)

    def test_refuses_statistics_without_the_key(self):
        result = self.call("runtime", spillway_change="""
            json.dumps = lambda stats: '{"format": "other"}'
        """)
        self.assert_failed(result, "'needed_bytes' is not in", "it has: format")

    def test_refuses_an_empty_digest(self):
        self.assert_failed(self.call("plain", "lines = []"), "plain.digest is empty")


if __name__ == "__main__":
    unittest.main()
