"""The command from outside: what it prints, its exit code, and what becomes of the program."""
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import unittest

from command_case import COMMAND, WORLD, CommandCase


class Help(CommandCase):
    def test_overview_teaches_the_first_steps(self):
        code, output, _ = self.spillway("--help")
        self.assertEqual(code, 0)
        for text in ("spillway doctor", "spillway run --budget 4GiB -- ./trainer", "bench-io"):
            self.assertIn(text, output)

    def test_of_each_command_has_examples_and_exit_codes(self):
        for command in ("run", "profile", "plan", "simulate", "doctor", "bench-io"):
            code, output, _ = self.spillway(command, "--help")
            self.assertEqual(code, 0)
            self.assertIn(f"Usage: spillway {command}", output)
            self.assertIn("Examples:", output)
            self.assertIn("Exit codes:", output)
            self.assertEqual(self.spillway("help", command)[1], output)
            for line in output.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_that_finds_no_room_is_an_error(self):
        with open("/dev/full", "wb") as full:
            outcome = subprocess.run([str(self.command), "plan", "--help"], stdout=full,
                                     stderr=subprocess.PIPE, env=self.environment({}), text=True,
                                     timeout=120, check=False)
        self.assertEqual(outcome.returncode, 2)
        self.assertEqual(outcome.stderr, "[spillway] error: cannot write to standard output (free some "
                         "room where it goes, or send it elsewhere)\n")

    def test_of_plan_names_every_strategy(self):
        _, output, _ = self.spillway("plan", "--help")
        self.assertRegex(output, r"--strategy NAME\n\s+Planning strategy: spillway \(")

    def test_of_profile_has_its_own_names_for_its_settings(self):
        _, output, _ = self.spillway("profile", "--help")
        for option in ("--out FILE", "--steps COUNT", "--import dtr|pipedream|piper", "--budget"):
            self.assertIn(option, output)
        self.assertNotIn("--profile-", output)

    def test_of_run_names_every_setting(self):
        _, output, _ = self.spillway("run", "--help")
        for key in ("budget", "nvme", "store", "queue-depth", "verify", "mapper", "dispatch-key",
                    "prefetch", "min-storage", "stats", "quiet", "progress", "log-level", "config",
                    "rates", "children", "reserve"):
            self.assertIn(f"--{key}", output)

    def test_without_a_command_is_wrong_usage(self):
        code, output, errors = self.spillway()
        self.assertEqual((code, output), (2, ""))
        self.assertIn("Usage:", errors)

    def test_version_names_the_served_libtorch(self):
        code, output, _ = self.spillway("--version")
        self.assertEqual(code, 0)
        self.assertRegex(output, r"\Aspillway \d+\.\d+\.\d+\nserves LibTorch 2\.11 \(CPU\)\n\Z")
        (self.root / "lib/libspillway_core_2.11_cuda.so").touch()
        self.assertIn("serves LibTorch 2.11 (CPU, CUDA)\n", self.spillway("--version")[1])


class Running(CommandCase):
    def test_gives_the_programs_own_exit_code_and_output(self):
        self.assertEqual(self.run_program("sh", "-c", "echo out; echo err >&2; exit 41"),
                         (41, "out\n", "err\n"))

    def test_gives_the_programs_own_signal(self):
        self.assertEqual(self.run_program("sh", "-c", "kill -SEGV $$")[0], -signal.SIGSEGV)

    def test_is_the_same_process(self):
        with subprocess.Popen([self.command, "run", "--queue-depth", "8", "--", "sh", "-c",
                               "echo $$"], env=self.environment({}), stdout=subprocess.PIPE,
                              text=True) as process:
            output, _ = process.communicate(timeout=120)
        self.assertEqual(int(output), process.pid)

    def test_passes_arguments_as_they_are(self):
        _, output, _ = self.run_program("printf", "%s|", "--budget", "a b", "", "--", "*")
        self.assertEqual(output, "--budget|a b||--|*|")

    def test_finds_programs_in_the_search_path(self):
        self.write("tool", "#!/bin/sh\necho found\n")
        path = f"{self.root / 'work'}:{os.environ['PATH']}"
        self.assertEqual(self.run_program("tool", PATH=path)[:2], (0, "found\n"))

    def test_needs_no_dashes(self):
        self.assertEqual(self.spillway("run", "--queue-depth", "8", "echo", "--budget")[:2],
                         (0, "--budget\n"))

    def test_loads_the_core_into_a_trainer(self):
        code, output, errors = self.run_program(WORLD / "bin/trainer_2.11.0")
        self.assertEqual((code, errors), (7, ""))
        self.assertTrue(output.startswith("core: loaded\n"), output)

    def test_hands_settings_on_through_the_environment(self):
        _, output, _ = self.run_program("env", options=("--queue-depth=8", "--verify"))
        lines = output.splitlines()
        for line in ("SPILLWAY_QUEUE_DEPTH=8", "SPILLWAY_VERIFY=on",
                     "SPILLWAY_ACTIVE=1", f"SPILLWAY_NVME={self.root / 'work'}",
                     f"LD_PRELOAD={self.preload}"):
            self.assertIn(line, lines)

    def test_makes_paths_absolute(self):
        _, output, _ = self.run_program("env", options=("--stats", "run.json"))
        self.assertIn(f"SPILLWAY_STATS={self.root / 'work'}/run.json", output.splitlines())

    def test_lets_options_win_over_variables_over_the_file(self):
        self.write("spillway.conf", "queue-depth = 4\nmin-storage = 4MiB\nverify = on\n")
        _, output, _ = self.run_program(
            "env", options=("--queue-depth", "9", "--config", "spillway.conf"),
            SPILLWAY_QUEUE_DEPTH="7", SPILLWAY_MIN_STORAGE="2MiB")
        lines = output.splitlines()
        self.assertIn("SPILLWAY_QUEUE_DEPTH=9", lines)
        self.assertIn("SPILLWAY_MIN_STORAGE=2MiB", lines)
        self.assertIn(f"SPILLWAY_CONFIG={self.root / 'work'}/spillway.conf", lines)

    def test_makes_paths_of_the_config_file_and_of_variables_absolute(self):
        (self.root / "work/spill").mkdir()
        self.write("other.conf", "nvme = spill:1GiB\n")
        # The program runs elsewhere, as ranks and trainers that change their folder do.
        _, output, errors = self.spillway("run", "--verify", "--", "env", "-C", "/", "env",
                                          SPILLWAY_CONFIG="other.conf", SPILLWAY_STATS="run-%p.json",
                                          SPILLWAY_QUIET="on")
        self.assertEqual(errors, "")
        lines = output.splitlines()
        self.assertIn(f"SPILLWAY_NVME={self.root / 'work'}/spill:1GiB", lines)
        self.assertIn(f"SPILLWAY_STATS={self.root / 'work'}/run-%p.json", lines)
        self.assertIn(f"SPILLWAY_CONFIG={self.root / 'work'}/other.conf", lines)

    def test_keeps_an_existing_preload_and_says_so(self):
        other = WORLD / "modules/libtorch_python.so"
        code, output, errors = self.run_program("env", LD_PRELOAD=str(other))
        self.assertEqual(code, 0)
        self.assertIn(f"LD_PRELOAD={self.preload}:{other}", output.splitlines())
        self.assertRegex(errors, r"\A\[spillway\] warning: LD_PRELOAD was set already [^\n]+\n\Z")

    def test_inside_of_itself_preloads_once(self):
        _, output, errors = self.run_program(self.command, "run", "--queue-depth", "4", "--", "env",
                                             options=("--queue-depth", "8"))
        self.assertIn(f"LD_PRELOAD={self.preload}", output.splitlines())
        self.assertIn("SPILLWAY_QUEUE_DEPTH=4", output.splitlines())
        self.assertEqual(errors, "")

    def test_prints_nothing_in_programs_without_libtorch(self):
        self.assertEqual(self.run_program("true"), (0, "", ""))

    def test_notes_on_a_terminal_that_the_program_has_no_libtorch(self):
        leader, follower = pty.openpty()
        outcome = subprocess.run([self.command, "run", "--budget", "64MiB", "--", "true"],
                                 env=self.environment({}), stdout=subprocess.PIPE, stderr=follower,
                                 check=False, timeout=120)
        os.close(follower)
        note = os.read(leader, 10000).decode()
        os.close(leader)
        self.assertEqual(outcome.returncode, 0)
        self.assertRegex(note, r"note: \S*true is not linked with LibTorch")

    def test_notes_a_statistics_file_that_may_never_come(self):
        _, _, errors = self.run_program("true", options=("--stats", "run.json"))
        self.assertIn("is not linked with LibTorch", errors)
        _, _, errors = self.run_program("true", options=("--stats", "run.json", "--quiet"))
        self.assertEqual(errors, "")
        _, _, errors = self.run_program(WORLD / "bin/trainer_2.11.0",
                                        options=("--stats", "run.json"))
        self.assertEqual(errors, "")


class BudgetThatNobodyKeeps(CommandCase):
    """A budget was asked for, and no process of the run is under Spillway: never in silence."""

    TRAINER = WORLD / "bin/trainer_2.11.0"
    AT_THE_END = r"\[spillway\] warning: no process of this run came under Spillway[^\n]+\n"

    def run_with_budget(self, *words, before=(), **variables):
        outcome = subprocess.run(
            [*before, self.command, "run", "--budget", "64MiB", "--nvme", self.root / "work", "--",
             *words], env=self.environment(variables), cwd=self.root / "work", text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def test_is_told_when_the_run_ends(self):
        for words, code in ((["true"], 0), (["sh", "-c", "true; exit 3"], 3),
                            (["bash", "-c", "true; exit 4"], 4), (["env", "/no/such"], 127),
                            (["python3", "-c", "import os; os._exit(5)"], 5)):
            status, _, errors = self.run_with_budget(*words)
            self.assertEqual(status, code, errors)
            self.assertRegex(errors, rf"\A([^\[\n]*\n)?{self.AT_THE_END}\Z")

    def test_is_told_wherever_the_budget_was_given(self):
        config = self.write("spillway.conf", "budget = 64MiB\n")
        for variables in ({"SPILLWAY_BUDGET": "64MiB"}, {"SPILLWAY_CONFIG": str(config)}):
            self.assertRegex(self.run_program("true", **variables)[2], rf"\A{self.AT_THE_END}\Z")
        self.assertEqual(self.run_program("true"), (0, "", ""))

    def test_is_kept_by_any_process_of_the_run(self):
        for words in ([self.TRAINER], ["sh", "-c", f"{self.TRAINER}; exit 7"],
                      ["bash", "-c", f"({self.TRAINER}); exec sh -c 'exit 7'"]):
            code, output, errors = self.run_with_budget(*words)
            self.assertEqual((code, errors), (7, ""))
            self.assertEqual(output.count("core: loaded\n"), 1)

    def test_is_kept_where_the_environment_is_cleared(self):
        """Two kinds of launchers: `env -i` executes with none, Python starts with another one."""
        script = f"import subprocess; raise SystemExit(subprocess.run([{str(self.TRAINER)!r}], env={{}}).returncode)"
        for words in (["env", "-i", self.TRAINER], ["env", "-i", "HOME=/", "sh", "-c", self.TRAINER],
                      ["python3", "-c", script]):
            code, output, errors = self.run_with_budget(*words)
            self.assertEqual((code, errors), (7, ""))
            self.assertIn("core: loaded\n", output)

    def test_keeps_what_a_cleared_environment_preloads(self):
        other = WORLD / "modules/libtorch_python.so"
        _, output, _ = self.run_with_budget("env", "-i", f"LD_PRELOAD={other}", "A=b", "env")
        lines = output.splitlines()
        self.assertIn(f"LD_PRELOAD={self.preload}:{other}", lines)
        self.assertIn("SPILLWAY_BUDGET=64MiB", lines)
        self.assertIn("A=b", lines)
        self.assertFalse([line for line in lines if line.startswith("HOME=")])

    def test_is_told_where_the_library_is_taken_out(self):
        code, output, errors = self.run_with_budget("env", "-u", "LD_PRELOAD", self.TRAINER)
        self.assertEqual(code, 7)
        self.assertNotIn("core: loaded", output)
        self.assertRegex(errors, r"\A\[spillway\] warning: \S+ is not under Spillway, [^\n]+"
                                 r"LD_PRELOAD was taken out of its environment\n\Z")

    def test_is_told_of_a_static_program_that_a_shell_becomes(self):
        program = self.static_program()
        _, _, errors = self.run_with_budget("sh", "-c", f"exec {program}")
        self.assertRegex(errors, r"\A\[spillway\] warning: \S+ is not under Spillway, [^\n]+"
                                 r"statically linked\n\Z")

    def test_leaves_no_descriptor_to_what_goes_on_in_the_background(self):
        """Its reader would wait for the end of the output as long as the child lives."""
        fifo = self.root / "fifo"
        os.mkfifo(fifo)
        script = ("import os\n"
                  "if os.fork() == 0:\n"
                  "  [os.close(number) for number in range(3)]\n"
                  f"  open({str(fifo)!r}).read()\n"
                  "  os._exit(0)\n")
        code, _, errors = self.run_with_budget("python3", "-c", script)
        with open(fifo, "w", encoding="utf-8"):
            pass  # Only now the child ends.
        self.assertEqual(code, 0)
        self.assertRegex(errors, rf"\A{self.AT_THE_END}\Z")


class FileCapabilities(CommandCase):
    """The system preloads nothing into programs that get rights when they start."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or shutil.which("setcap") is None or shutil.which("setpriv") is None:
            self.skipTest("needs root, setcap and setpriv")
        for folder in (self.root, *self.root.rglob("*")):
            folder.chmod(0o755)
        (self.root / "work").chmod(0o777)
        self.program = self.root / "work/capable"
        shutil.copy(shutil.which("env"), self.program)
        marked = subprocess.run(["setcap", "cap_net_raw+ep", self.program], capture_output=True,
                                text=True, check=False)
        if marked.returncode != 0:
            self.skipTest(f"setcap: {marked.stderr.strip()}")

    def as_nobody(self, *words):
        outcome = subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", self.command, *words],
            env=self.environment({}), cwd=self.root / "work", text=True, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=120, check=False)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def test_are_refused_with_what_to_do(self):
        script = self.write("script", f"#!{self.program} sh\n")
        for program in (self.program, script):
            code, output, errors = self.as_nobody("run", "--nvme", self.root / "work", "--", program)
            self.assertEqual((code, output), (2, ""))
            self.assertRegex(errors, r"\A\[spillway\] error: \S+ [^\n]*file capabilities[^\n]+setcap -r")

    def test_do_no_harm_to_root(self):
        self.assertEqual(self.run_program(self.program, "true"), (0, "", ""))

    def test_are_told_of_where_a_shell_becomes_such_a_program(self):
        code, _, errors = self.as_nobody("run", "--budget", "64MiB", "--nvme", self.root / "work",
                                         "--", "sh", "-c", f"exec {self.program} true")
        self.assertEqual(code, 0)
        self.assertRegex(errors, r"\A\[spillway\] warning: \S+capable is not under Spillway, "
                                 r"[^\n]+file capabilities \(setcap\)\n\Z")

    def test_are_a_problem_for_the_doctor(self):
        code, output, _ = self.as_nobody("doctor", "--skip-disks", "--", self.program)
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^problem +program \S+capable +it gets file capabilities")


class Refusing(CommandCase):
    def test_unknown_options_with_the_nearest(self):
        self.assertIn("--bugdet (did you mean '--budget'?)",
                      self.refused("run", "--bugdet", "4GiB", "--", "true"))
        self.assertIn("did you mean '--quiet'?", self.refused("run", "--queit", "--", "true"))
        self.assertIn("did you mean '--json'?", self.refused("doctor", "--jsn"))
        self.assertIn("--host (host memory before the disks is --nvme ram:SIZE,DIR)",
                      self.refused("run", "--host", "1GiB", "--", "true"))

    def test_counts_behind_switches(self):
        self.assertIn("--quiet: unknown value '3'", self.refused("run", "--quiet=3", "--", "true"))

    def test_unknown_commands_with_the_nearest(self):
        self.assertIn("unknown command 'rnu' (did you mean 'run'?)", self.refused("rnu"))

    def test_options_before_the_command(self):
        self.assertIn("spillway run --budget", self.refused("--budget", "4GiB"))

    def test_unknown_variables_with_the_nearest(self):
        self.assertIn("SPILLWAY_BUGDET (did you mean 'SPILLWAY_BUDGET'?)",
                      self.refused("run", "--", "true", SPILLWAY_BUGDET="4GiB"))

    def test_unknown_variables_without_one_that_is_near(self):
        self.assertNotIn("did you mean", self.refused("run", "--", "true", SPILLWAY_FOO="1"))

    def test_unknown_keys_of_the_config_file_with_line_and_nearest(self):
        path = self.write("spillway.conf", "# mine\nbugdet = 4GiB\n")
        self.assertIn(f"{path}:2: unknown setting 'bugdet' (did you mean 'budget'?)",
                      self.refused("run", "--config", path, "--", "true"))

    def test_budgets_without_unit_zero_or_tiny(self):
        refusal = self.refused("run", "--budget", "4", "--", "true")
        self.assertIn("--budget: size without a unit: '4' (write for example 4MiB or 4GiB)", refusal)
        self.assertEqual(refusal.count("("), 1, refusal)
        self.assertIn("--budget: 'much' is no budget (write for example 4GiB, 50% or auto)\n",
                      self.refused("run", "--budget", "much", "--", "true"))
        self.assertIn("zero", self.refused("run", "--budget", "0GiB", "--", "true"))
        self.assertIn("too small", self.refused("run", "--budget", "1MiB", "--", "true"))
        self.assertIn("percentage", self.refused("run", "--budget", "120%", "--", "true"))

    def test_options_of_imports_beside_a_program(self):
        for words in (("--micro-batches", "3"), ("--tensor-parallel=2",)):
            option = words[0].split("=")[0]
            self.assertEqual(self.refused("profile", "--out", "x.json", *words, "--", "true"),
                             f"[spillway] error: {option} is for --import, and a program is to run "
                             "(leave it out)\n")

    def test_an_option_without_its_value(self):
        budget = "--budget needs a SIZE, PERCENT% or auto\n"
        self.assertIn(budget, self.refused("run", "--budget", "--", "true"))
        self.assertIn(budget, self.refused("run", "--budget"))
        self.assertIn(budget, self.refused("doctor", "--budget"))
        self.assertIn("--stats needs a FILE\n",
                      self.refused("run", "--stats", "--budget", "1GiB", "--", "true"))
        self.assertIn("--store needs one of auto, ",
                      self.refused("run", "--store", "--", "true"))

    def test_an_unknown_choice_with_one_hint(self):
        refusal = self.refused("run", "--log-level", "loud", "--", "true")
        self.assertIn("--log-level: unknown level 'loud' (known: debug ", refusal)
        self.assertEqual(refusal.count("("), 1, refusal)

    def test_directories_that_are_missing_or_not_writable(self):
        missing = self.root / "none"
        self.assertIn(f"spill directory {missing} does not exist",
                      self.refused("run", "--nvme", missing, "--", "true"))
        path = self.write("plain", "")
        self.assertIn("is not a directory", self.refused("run", "--nvme", path, "--", "true"))
        self.assertRegex(self.refused("run", "--nvme", "/proc", "--", "true"),
                         "not writable|read-only|holds no files")

    def test_memory_before_the_disks_that_makes_no_sense(self):
        for places, reason in {"ram:900TiB": "are more than this process can use",
                               "ram:8MiB,ram:8MiB": "host memory is named twice",
                               "ram:": "names host memory without a size",
                               "ram:1KiB": "hold no page of 2.00 MiB"}.items():
            self.assertIn(reason, self.refused("run", "--nvme", places, "--", "true"))
        self.assertIn("--store ram keeps everything in memory",
                      self.refused("run", "--store", "ram", "--nvme", "ram:8MiB", "--", "true"))

    def test_a_directory_that_another_user_may_write_to(self):
        locked = self.root / "locked"
        locked.mkdir(0o555)
        words = [self.command, "run", "--budget", "64MiB", "--nvme", locked, "--", "true"]
        if os.geteuid() == 0:
            # Root may write anywhere: somebody else tries.
            if shutil.which("setpriv") is None:
                self.skipTest("setpriv is not installed, and this is root")
            self.root.chmod(0o755)
            words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
        outcome = subprocess.run([str(word) for word in words], env=self.environment({}), text=True,
                                 capture_output=True, check=False, timeout=120)
        self.assertEqual((outcome.returncode, outcome.stdout), (2, ""))
        self.assertRegex(outcome.stderr, rf"\A\[spillway\] error: spill directory {locked} is not "
                                         r"writable for this user \(name one that is\)\n\Z")

    def test_a_statistics_file_in_a_missing_folder(self):
        self.assertIn("does not exist (make it",
                      self.refused("run", "--stats", "none/run.json", "--", "true"))

    def test_a_broken_file_of_disk_rates(self):
        path = self.write("disks.json", "{")
        refusal = self.refused("run", "--rates", path, "--", "true")
        self.assertIn(f"(remove it and measure again with: spillway bench-io --rates {path} DIR", refusal)
        # Measuring keeps what the file says of other disks, so it has to be gone.
        self.assertIn("remove it", self.refused("bench-io", "--rates", path, self.root / "work"))

    def test_a_named_file_of_disk_rates_that_is_missing_or_unreadable(self):
        missing = self.root / "work/none.json"
        for refusal in (self.refused("run", "--rates", "none.json", "--", "true"),
                        self.refused("run", "--", "true", SPILLWAY_RATES="none.json")):
            self.assertIn(f"{missing} does not exist", refusal)
            self.assertIn("spillway bench-io", refusal)
        self.assertIn("it is a folder",
                      self.refused("run", "--rates", self.root, "--", "true"))
        self.assertEqual(self.run_program("true"), (0, "", ""))

    def test_words_that_a_planning_command_cannot_take(self):
        for words, reason in (
                (("plan",), "PROFILE is missing: the step, as `spillway profile` recorded it"),
                (("simulate", "--plan"), "--plan needs a FILE"),
                (("plan", "p.json", "--budget"), "--budget needs a SIZE or PERCENT%"),
                (("plan", "p.json", "--budget", "--json"), "--budget needs a SIZE or PERCENT%"),
                (("plan", "p.json", "--effort"), "--effort needs a number (SECONDS)"),
                (("plan", "p.json", "--bound"), "--bound needs one of quick or tight"),
                (("plan", "p.json", "--budget", "1GiB", "--budget=2GiB"), "--budget is given twice"),
                (("plan", "p.json", "--json=3"), "--json takes no value"),
                (("plan", "--bugdet"), "unknown option --bugdet (did you mean '--budget'?)"),
                (("plan", "p.json", "q.json"), "unexpected argument 'q.json'"),
                (("bench-io",), "DIR is missing: directory to measure"),
                (("bench-io", "--repetitions", "x", "."), "--repetitions: 'x' is not a whole number from 1")):
            with self.subTest(words=words):
                self.assertIn(reason, self.refused(*words))

    def test_a_stored_plan_that_no_run_can_follow(self):
        """Before the program starts: a long loading of data must not end in a slip of the pen."""
        mark = self.root / "work/started"
        plan = ("run", "--budget", "64MiB", "--plan")
        broken = self.write("broken.plan.json", '{"format": "spillway-plan"')
        other = self.write("other.plan.json", '{"format": "spillway-profile"}')
        newer = self.write("newer.plan.json", '{"format": "spillway-plan", "version": 7}')
        edited = self.write("edited.plan.json",
                            '{"format": "spillway-plan", "version": 1, "checksum": "0"}')
        for path, reason in (("none.json", "No such file or directory \\(spillway plan PROFILE "),
                             (self.root, "it is a folder"), (broken, "not all of it: .*spillway plan PROFILE"),
                             (other, "its format is 'spillway-profile'"),
                             (newer, "version 7 of the format is newer"),
                             (edited, "was changed after it was written")):
            with self.subTest(path=path):
                self.assertRegex(self.refused(*plan, path, "--", "touch", mark), reason)
        self.assertIn("not JSON, or not all of it", self.refused("run", "--", "touch", mark,
                                                       SPILLWAY_PLAN=broken))
        self.assertIn("needs --prefetch on", self.refused(*plan, edited, "--prefetch", "off", "--",
                                                          "touch", mark))
        self.assertFalse(mark.exists())

    def test_a_missing_program(self):
        self.assertIn("program not found: no-such-trainer",
                      self.refused("run", "--", "no-such-trainer", code=127))
        self.assertIn("program not found: ./none",
                      self.refused("run", "--", "./none", code=127))

    def test_a_budget_in_the_place_of_the_program(self):
        for words in (("512MiB", "--", "true"), ("50%", "true")):
            self.assertIn(f"program not found: {words[0]} (did you mean --budget {words[0]}?)",
                          self.refused("run", *words, code=127))

    def test_an_option_in_the_place_of_the_program(self):
        self.assertIn('program not found: --budget (options of `spillway run` stand before the "--")',
                      self.refused("run", "--", "--budget", "1GiB", "true", code=127))

    def test_a_program_that_is_quoted_together_with_its_arguments(self):
        refusal = self.refused("run", "--", "/bin/true 0", code=127)
        self.assertIn("not quoted together: spillway run -- /bin/true 0)", refusal)

    def test_a_script_without_its_interpreter(self):
        path = self.write("script", "#! /no/such/shell -e\n")
        self.assertIn("script: it is to be started by /no/such/shell, which does not exist",
                      self.refused("run", "--", path, code=126))

    def test_no_program_at_all(self):
        self.assertIn("no program to run", self.refused("run"))
        self.assertIn("no program to run", self.refused("run", "--budget", "4GiB", "--"))

    def test_a_program_that_is_not_executable(self):
        path = self.write("trainer", "#!/bin/sh\n", mode=0o644)
        self.assertIn("chmod +x", self.refused("run", "--", path, code=126))
        self.assertIn("is a directory", self.refused("run", "--", "/", code=126))

    def test_a_program_in_a_format_that_the_system_refuses(self):
        path = self.write("noise", "neither ELF nor script\n")
        self.assertIn("Exec format error", self.refused("run", "--", path, code=126))

    def test_a_static_program(self):
        self.assertIn("is statically linked", self.refused("run", "--", self.static_program()))

    def test_a_program_that_changes_its_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file to another user")
        path = self.root / "work/setuid"
        shutil.copy(shutil.which("true"), path)
        os.chown(path, 65534, 65534)
        path.chmod(0o755 | stat.S_ISUID)
        refusal = self.refused("run", "--", path)
        self.assertIn("set-user-id", refusal)
        self.assertNotIn("shared libraries", refusal)

    def test_a_program_with_libtorch_linked_into_itself(self):
        source = self.write("inside.cpp",
                            "namespace torch { namespace autograd { class Engine;\n"
                            "void set_default_engine_stub(Engine& (*)()) {} } }\n"
                            "int main() { return 0; }\n")
        program = self.root / "work/inside"
        subprocess.run([os.environ["SPILLWAY_TEST_COMPILER"], str(source), "-o", str(program)],
                       check=True)
        self.assertIn("linked into itself statically", self.refused("run", "--", program))

    def test_a_trainer_of_another_libtorch(self):
        code, output, errors = self.run_program(WORLD / "bin/trainer_2.13.1")
        self.assertEqual((code, output), (2, ""))
        self.assertRegex(errors, r"LibTorch 2\.13\.1 .* serves LibTorch 2\.11 ")

    def test_a_process_with_two_libtorchs(self):
        second = WORLD / "torch_second/libtorch_cpu.so"
        code, output, errors = self.run_program(WORLD / "bin/trainer_2.11.0",
                                                LD_PRELOAD=str(second))
        self.assertEqual((code, output), (2, ""))
        self.assertIn("LibTorch is twice in this process", errors)

    def test_an_installation_without_the_preload_library(self):
        self.preload.unlink()
        self.assertIn("installation is incomplete", self.refused("run", "--", "true"))

    def test_a_system_without_proc_is_no_incomplete_installation(self):
        hide = "mount -t tmpfs none /proc && exec \"$@\""
        words = ["unshare", "--mount", "sh", "-c", hide, "sh"]
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            self.skipTest(f"/proc cannot be hidden: {tried.stderr.strip()}")
        outcome = subprocess.run([*words, self.command, "run", "--budget", "64MiB", "--nvme", self.root / "work", "--",
                                  WORLD / "bin/trainer_2.11.0"], env=self.environment({}), text=True,
                                 capture_output=True, stdin=subprocess.DEVNULL, timeout=120,
                                 check=False)
        self.assertNotIn("incomplete", outcome.stderr)
        self.assertEqual(outcome.returncode, 7, outcome.stderr)
        self.assertIn("core: loaded", outcome.stdout)

    def test_an_installation_in_a_folder_that_cannot_be_preloaded(self):
        odd = self.root / "my tools"
        shutil.copytree(self.root / "bin", odd / "bin")
        shutil.copytree(self.root / "lib", odd / "lib")
        self.command = odd / "bin/spillway"
        self.assertIn("LD_PRELOAD allows no blank", self.refused("run", "--", "true"))


class Profiling(CommandCase):
    TRACE = (b'{"INSTRUCTION":"CONSTANT","NAME":"x1"}\n'
             b'{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x1"}\n'
             b'{"ARGS":["x1"],"INSTRUCTION":"CALL","NAME":"relu","RESULT":["x2"],"TIME":"1000"}\n'
             b'{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x2"}\n'
             b'{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x2"}\n')

    def trace(self, text=TRACE):
        path = self.root / "work/trace.log"
        path.write_bytes(text)
        return path

    def test_imports_a_trace(self):
        code, output, errors = self.spillway("profile", "--import", "dtr", self.trace(), "--out",
                                             "relu.json")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(output, "relu.json: 1 operators, 2 values, 8.00 MiB at once in this step; 1.00 "
                                 "µs per step; pages of 2.00 MiB\n")
        profile = json.loads((self.root / "work/relu.json").read_text(encoding="utf-8"))
        self.assertEqual(profile["kinds"], {"name": ["relu"], "arguments": ["4194304 B"]})

    def test_refuses_traces_that_are_none(self):
        wants = ("profile", "--out", "x.json", "--import")
        self.assertIn("did you mean 'dtr'", self.refused(*wants, "dtt", self.trace()))
        self.assertIn("trace.log:6: not JSON",
                      self.refused(*wants, "dtr", self.trace(self.TRACE + b"}")))
        self.assertIn("trace.log:1: a node should", self.refused(*wants, "pipedream", self.trace()))
        self.assertRegex(self.refused(*wants, "piper", self.trace(b"\xff")),
                         r"trace\.log: not JSON.* \(hold it against src/profile/import/README\.md, or "
                         r"name another format: --import dtr\|pipedream\|piper\)")
        self.assertIn("cannot read none: No such", self.refused(*wants, "dtr", "none"))
        self.assertIn("it is a folder", self.refused(*wants, "dtr", self.root))
        self.assertIn("the trace to import is missing", self.refused(*wants, "dtr"))
        self.assertIn("are for piper", self.refused(*wants, "dtr", self.trace(),
                                                    "--tensor-parallel", "2"))
        self.assertFalse((self.root / "work/x.json").exists())

    def test_refuses_checksums_of_what_passes_by_host_memory(self):
        self.assertIn("--verify and --gds on exclude each other",
                      self.refused("run", "--verify", "--gds", "on", "--", "true"))

    def test_refuses_to_record_what_cannot_be_written(self):
        self.assertIn("no program to profile", self.refused("profile", "--out", "x.json"))
        self.assertIn("--out", self.refused("profile", "--", "true"))
        self.assertIn("'1' is not a whole number from 2",
                      self.refused("profile", "--out", "x", "--steps", "1", "true"))
        self.assertIn("cannot write the profile /none/x: folder /none: does not exist",
                      self.refused("profile", "--out", "/none/x", "true"))
        self.assertIn("needs --prefetch on",
                      self.refused("profile", "--out", "x", "--prefetch", "off", "true"))

    def test_hands_the_file_on_to_the_program(self):
        told = self.write("told.sh", "#!/bin/sh\necho $SPILLWAY_PROFILE_OUT $SPILLWAY_PROFILE_STEPS "
                                     "$SPILLWAY_BUDGET $*\necho >$SPILLWAY_PROFILE_OUT\n")
        code, output, _ = self.spillway("profile", "--out", "p.json", "--budget", "64MiB", "--steps",
                                        "7", told, "--steps", "9", SPILLWAY_QUIET="1")
        self.assertEqual(code, 0)
        self.assertEqual(output.split(), [str(self.root / "work/p.json"), "7", "64MiB", "--steps",
                                          "9"])


    def test_says_when_there_is_none(self):
        code, _, errors = self.spillway("profile", "--out", "p.json", "true")
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"error: no profile in \S+/p\.json: \S+true is not linked with "
                                 r"LibTorch, and nothing that it loaded or started wrote one")
        self.assertEqual(self.spillway("profile", "--out", "p.json", "--", "sh", "-c", "exit 41")[0],
                         41)
        old = self.write("old.json", "of an earlier run")
        self.assertEqual(self.spillway("profile", "--out", old, "true")[0], 1)
        trainer = WORLD / "bin/trainer_2.11.0"
        self.assertRegex(self.spillway("profile", "--out", "p.json", trainer)[2],
                         r"no profile in \S+/p\.json: \S+trainer_2\.11\.0 wrote none")

    def test_ends_as_its_program_does(self):
        writes = "echo >$SPILLWAY_PROFILE_OUT; "
        wants = ("profile", "--out", "p.json", "--", "sh", "-c")
        self.assertEqual(self.spillway(*wants, writes + "exit 0")[0], 0)
        self.assertEqual(self.spillway(*wants, writes + "exit 7")[0], 7)
        self.assertEqual(self.spillway(*wants, writes + "kill -TERM $$")[0], -signal.SIGTERM)
        by_id = "echo >p-$$.json"
        self.assertEqual(self.spillway("profile", "--out", "p-%p.json", "--", "sh", "-c",
                                       by_id)[0], 0)

    def test_hands_signals_on_to_its_program(self):
        script = "trap 'echo >$SPILLWAY_PROFILE_OUT; exit 5' TERM; echo up; while :; do read x; done"
        with subprocess.Popen([self.command, "profile", "--out", "p.json", "--", "bash", "-c", script],
                              env=self.environment({}), cwd=self.root / "work",
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=120), 5)

    def test_refuses_what_has_no_meaning_for_an_import(self):
        wants = ("profile", "--import", "dtr", self.trace(), "--out", "x.json")
        for option, value in (("--budget", "4GiB"), ("--steps", "5"), ("--kind", "2")):
            self.assertIn(f"{option} {value} is for a program that runs",
                          self.refused(*wants, option, value))
        self.assertIn("it is a folder", self.refused(*wants[:-1], "."))
        self.assertIn("is the same file as TRACE", self.refused(*wants[:-1], self.trace()))

    def test_names_its_own_options(self):
        self.assertIn("--kind: '0' is not a whole number from 1 to 8",
                      self.refused("profile", "--out", "x", "--kind", "0", "true"))


class PlanningProgram(CommandCase):
    """`plan`, `simulate` and imports are carried out by a program beside the command."""

    def setUp(self):
        super().setUp()
        self.program = self.root / "bin/spillway-planning"

    def test_gets_each_word_as_it_was_given(self):
        self.program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n", encoding="utf-8")
        for words in (("plan", "a b.json", "--budget", "", "--", "--x"), ("simulate",),
                      ("profile", "--import", "dtr", "*", "--out=o")):
            code, output, errors = self.spillway(*words)
            self.assertEqual((code, output, errors),
                             (7, "".join(f"<{word}>" for word in words), ""))
        self.assertEqual(self.spillway("help", "plan")[1], "<plan><--help>")

    def test_is_found_beside_the_command_wherever_that_is_linked_to(self):
        link = self.root / "work/spillway"
        link.symlink_to(self.command)
        self.command = link
        self.assertEqual(self.spillway("plan", "--help")[0], 0)

    def test_that_is_missing_is_told_with_how_to_get_it(self):
        self.program.unlink()
        for words in (("plan", "--help"), ("simulate", "step.json"), ("profile", "--import", "dtr", "x")):
            self.assertEqual(
                self.refused(*words),
                f"[spillway] error: there is no {self.program}, which `spillway {words[0]}` needs "
                "(build all of Spillway and install it there: cmake --build --preset release && "
                f"cmake --install build/release --prefix {self.root})\n")
        (self.root / "CMakeCache.txt").touch()
        self.assertIn(f"(build it: cmake --build {self.root} --target spillway_planning_program)",
                      self.refused("plan", "step.json"))

    def test_is_wanted_by_no_other_command(self):
        self.program.unlink()
        for words in (("--help",), ("--version",), ("run", "--help"), ("profile", "--help"),
                      ("doctor", "--help"), ("bench-io", "--help")):
            self.assertEqual(self.spillway(*words)[0], 0, words)
        self.assertEqual(self.run_program("true")[0], 0)

    def test_that_cannot_be_started_is_told_with_the_reason(self):
        self.program.chmod(0o644)
        self.assertRegex(self.refused("plan", "step.json"),
                         "cannot start .*spillway-planning, .*: Permission denied")

    def test_alone_names_the_commands_that_it_serves(self):
        self.command = self.program
        for words in ((), ("run", "--", "true"), ("--help",)):
            self.assertIn("this program serves `spillway plan`", self.refused(*words))


class OutputFiles(CommandCase):
    def test_of_a_run_replace_nothing_that_it_reads(self):
        script = self.write("train.sh", "#!/bin/sh\n")
        for option in ("--stats", "--trace"):
            self.assertIn("is the same file as the program's argument",
                          self.refused("run", option, script, "--", "sh", script))
            self.assertIn("it is a folder", self.refused("run", option, ".", "--", "true"))
        plan = self.write("a.plan", "{}")
        self.assertIn("is the same file as --plan",
                      self.refused("run", "--plan", plan, "--trace", "a.plan", "--", "true"))
        self.assertIn("is the same file as --stats",
                      self.refused("run", "--stats", "s", "--trace", "s", "--", "true"))

    def test_of_a_measurement_is_a_file_that_can_be_written(self):
        self.assertIn("it is a folder", self.refused("bench-io", ".", "--rates", "."))
        blocker = self.write("blocker", "")
        self.assertIn("is no folder", self.refused("bench-io", ".", "--rates", blocker / "x"))
        self.assertIn("does not exist", self.refused("bench-io", ".", "--rates", "none/x.json"))
        self.assertFalse((self.root / "work/none").exists())


class CommonOptions(CommandCase):
    def test_may_follow_two_dashes(self):
        self.assertIn("cannot read none.json", self.refused("plan", "--budget", "1GiB", "--",
                                                            "none.json"))

    def test_that_are_unknown_lead_to_the_help(self):
        self.assertIn("unknown option --zzzzzzzz (spillway plan --help explains all)",
                      self.refused("plan", "x.json", "--zzzzzzzz", "1"))


class Doctor(CommandCase):
    def doctor(self, *words, **variables):
        return self.spillway("doctor", "--skip-disks", "--nvme", self.root / "work", *words,
                             **variables)

    def test_prints_a_line_for_everything(self):
        _, output, errors = self.doctor()
        self.assertEqual(errors, "")
        for subject in ("installation", "LibTorch", "dispatch key", "kernel", "cores", "memory",
                        "memory limits", "address space", "locked memory", "huge pages", "GPUs",
                        "budget", "mapper", "io_uring", "disk ", "disk rates", "MPI"):
            self.assertRegex(output, rf"(?m)^(ok|warning|problem) +{subject}")

    def test_says_how_to_mend_whatever_is_not_ok(self):
        _, output, _ = self.doctor("--json")
        for check in json.loads(output)["checks"]:
            if check["verdict"] != "ok":
                self.assertTrue(check["mend"], check)

    def test_tells_what_a_limit_of_addresses_leaves_to_a_run(self):
        words = [str(self.command), "doctor", "--skip-disks", "--nvme", str(self.root / "work"), "--json"]
        for budget, verdict in (("auto", "warning"), ("4GiB", "problem")):
            result = subprocess.run(
                ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "limited", *words, "--budget", budget],
                env=self.environment({}), capture_output=True, text=True, check=False)
            checks = {check["subject"]: check for check in json.loads(result.stdout)["checks"]}
            space = checks["address space"]
            self.assertEqual(space["verdict"], verdict, space)
            self.assertRegex(space["value"], r"^3\.81 GiB; a run ")
            self.assertIn("ulimit -v unlimited", space["mend"])
            self.assertEqual(checks["budget"]["verdict"], verdict, checks["budget"])
            self.assertIn("RLIMIT_AS (ulimit -v) is 3.81 GiB", checks["budget"]["mend"])

    def test_ends_with_one_when_there_is_a_problem(self):
        (self.root / "lib/libspillway_core_2.11.so").unlink()
        code, output, _ = self.doctor("--json")
        report = json.loads(output)
        self.assertEqual((code, report["verdict"]), (1, "problem"))
        problem = next(check for check in report["checks"] if check["subject"] == "installation")
        self.assertIn("libspillway_core_", problem["mend"])

    def test_looks_at_the_libtorch_of_a_program(self):
        _, output, _ = self.doctor("--", WORLD / "bin/trainer_2.11.0")
        self.assertRegex(output, r"(?m)^ok +LibTorch of \S+ +2\.11\.0, \S+torch_2\.11\.0")
        code, output, _ = self.doctor("--", WORLD / "bin/trainer_2.13.1")
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^problem LibTorch of \S+ +2\.13\.1, ")
        _, output, _ = self.doctor("--", "true")
        self.assertRegex(output, r"(?m)^warning LibTorch of true ")

    def dispatch_key(self, *words, **variables):
        """The exit code and the finding about the dispatch key."""
        code, output, errors = self.doctor("--json", *words, **variables)
        self.assertEqual(errors, "")
        checks = json.loads(output)["checks"]
        return code, next(check for check in checks if check["subject"] == "dispatch key")

    def test_asks_the_core_which_dispatch_key_it_takes(self):
        trainer = ("--", WORLD / "bin/trainer_2.11.0")
        _, check = self.dispatch_key(*trainer, FAKE_CORE_KEY="SomeKey")
        self.assertEqual(check["verdict"], "ok")
        self.assertEqual(check["value"], "SomeKey")
        _, check = self.dispatch_key(*trainer, FAKE_CORE_KEY="record-function")
        self.assertEqual(check["verdict"], "warning")
        code, check = self.dispatch_key(*trainer, FAKE_CORE_KEY="none",
                                        SPILLWAY_DISPATCH_KEY="OtherKey")
        self.assertEqual((code, check["verdict"]), (1, "problem"))
        self.assertIn("nobody may take OtherKey", check["mend"])
        _, check = self.dispatch_key("--", WORLD / "bin/trainer_2.13.1")
        self.assertEqual(check["verdict"], "warning")
        self.assertIn("not tried", check["value"])

    def test_outlives_a_core_that_crashes(self):
        code, check = self.dispatch_key("--", WORLD / "bin/trainer_2.11.0", FAKE_CORE_KEY="crash")
        self.assertEqual((code, check["verdict"]), (1, "problem"))
        self.assertIn("signal 6 (Aborted)", check["value"])
        self.assertIn("install", check["mend"])

    def test_says_that_a_core_cannot_be_loaded(self):
        (self.root / "lib/libspillway_core_2.11.so").write_text("no library", encoding="utf-8")
        code, check = self.dispatch_key("--", WORLD / "bin/trainer_2.11.0")
        self.assertEqual((code, check["verdict"]), (1, "problem"))
        self.assertIn("the core library cannot be loaded", check["mend"])

    @unittest.skipUnless("SPILLWAY_TEST_LIBTORCH" in os.environ, "this build has no LibTorch")
    def test_names_the_key_of_the_real_libtorch(self):
        torch = os.environ["SPILLWAY_TEST_LIBTORCH"]
        for wanted, taken in (("auto", "Fake"), ("DeferredInit", "DeferredInit"),
                              ("record-function", "record-function")):
            self.command = COMMAND
            _, check = self.dispatch_key(SPILLWAY_LIBTORCH_DIR=torch, SPILLWAY_DISPATCH_KEY=wanted)
            self.assertEqual((check["verdict"], check["value"]), ("ok", taken), check)
        _, check = self.dispatch_key(SPILLWAY_LIBTORCH_DIR=torch, SPILLWAY_DISPATCH_KEY="NoKey")
        self.assertEqual(check["verdict"], "problem")
        self.assertIn("unknown dispatch key 'NoKey'", check["mend"])

    def test_judges_the_mapper_that_is_forced_wherever_that_is_said(self):
        config = self.write("spillway.conf", "mapper = copy\n")
        for words, variables in ((("--mapper", "copy"), {}), (("--config", config), {}),
                                 ((), {"SPILLWAY_MAPPER": "copy"})):
            _, output, _ = self.doctor(*words, **variables)
            self.assertRegex(output, r"(?m)^\w+ +mapper +copy,? (as )?was asked for")

    def test_reports_a_directory_that_cannot_be_used(self):
        code, output, _ = self.spillway("doctor", "--skip-disks", "--nvme", self.root / "none")
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^problem disk ")
        self.assertIn("does not exist", output)

    def test_reports_a_named_file_of_disk_rates_that_is_missing(self):
        code, output, _ = self.doctor("--rates", self.root / "none.json")
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^problem disk rates .*none\.json$")
        self.assertRegex(output, r"(?m)^(ok|warning) +disk /")
        self.assertEqual(output.count("does not exist"), 1)

    def test_says_once_that_a_directory_is_a_ram_disk(self):
        if self.file_system("/dev/shm") != "tmpfs" or self.file_system(self.root) == "tmpfs":
            self.skipTest("a disk and a RAM disk are needed: /dev/shm and the temporary folder")
        _, output, _ = self.spillway("doctor", "--skip-disks", "--nvme",
                                     f"{self.root / 'work'},/dev/shm:64MiB")
        self.assertEqual(output.count("RAM disk"), 1, output)
        self.assertRegex(output, r"(?m)^warning +disk /dev/shm ")

    def test_names_the_directory_to_measure(self):
        _, output, _ = self.doctor()
        self.assertIn(f"plans then start from guesses: spillway bench-io {self.root / 'work'}\n",
                      output)

    def test_measures_the_disk(self):
        _, output, _ = self.spillway("doctor", "--nvme", self.root / "work")
        self.assertRegex(output, r"(?m)^\w+ +disk .* write \d+\.\d+ GB/s, read \d+\.\d+ GB/s")


class BenchIo(CommandCase):
    QUICK = ("--file-size", "8MiB", "--blocks", "1MiB,2MiB", "--depths", "1,2", "--repetitions", "1")

    def test_prints_a_table_and_records_the_rates(self):
        code, output, errors = self.spillway("bench-io", *self.QUICK, self.root / "work")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(len([line for line in output.splitlines() if " MiB " in line]), 4, output)
        kept = json.loads((self.root / "config/spillway/disks.json").read_text(encoding="utf-8"))
        self.assertEqual(kept["version"], 1)
        self.assertEqual(kept["disks"][0]["directory"], str(self.root / "work"))
        self.assertGreater(kept["disks"][0]["read_bytes_per_second"], 0)
        self.assertEqual(len(kept["disks"][0]["samples"]), 12)

    def test_leaves_nothing_in_the_directory(self):
        self.spillway("bench-io", *self.QUICK, self.root / "work")
        self.assertEqual(list((self.root / "work").iterdir()), [])

    def test_records_where_it_is_told(self):
        path = self.root / "mine.json"
        self.spillway("bench-io", *self.QUICK, "--rates", path, self.root / "work")
        self.assertTrue(path.exists())
        self.assertFalse((self.root / "config").exists())

    def test_says_that_it_has_no_place_for_the_rates(self):
        code, output, _ = self.spillway("bench-io", *self.QUICK, self.root / "work", HOME="",
                                        XDG_CONFIG_HOME="")
        self.assertEqual(code, 0)
        self.assertIn("not recorded: neither XDG_CONFIG_HOME nor HOME", output)

    def test_names_a_file_size_that_a_directory_has_room_for(self):
        self.assertIn("(name a smaller one with --file-size",
                      self.refused("bench-io", "--file-size", "1000TiB", self.root / "work"))

    def test_is_read_by_the_doctor(self):
        self.spillway("bench-io", *self.QUICK, self.root / "work")
        _, output, _ = self.spillway("doctor", "--skip-disks", "--nvme", self.root / "work")
        self.assertRegex(output, r"(?m)^ok +disk rates +1 recorded")
        self.assertRegex(output, r"(?m)^\w+ +disk .*bench-io, ")

    def test_names_the_stores_that_it_accepts(self):
        _, output, _ = self.spillway("bench-io", "--help")
        self.assertIn("--store auto|io_uring|posix\n", output)
        refusal = self.refused("bench-io", "--store", "ram", self.root / "work")
        self.assertIn("'ram' (known: auto io_uring posix)", refusal)

    def test_says_once_that_a_directory_is_a_ram_disk(self):
        if self.file_system("/dev/shm") != "tmpfs":
            self.skipTest("/dev/shm is no RAM disk here")
        code, _, errors = self.spillway("bench-io", *self.QUICK, "/dev/shm")
        self.assertEqual(code, 0)
        self.assertEqual(len(re.findall("RAM disk|tmpfs", errors)), 2, errors)  # one line names both
        self.assertEqual(errors.count("/dev/shm is a RAM disk (tmpfs)"), 1, errors)

    def test_refuses_what_it_cannot_measure(self):
        self.assertIn("does not exist", self.refused("bench-io", self.root / "none"))
        self.assertIn("not a directory", self.refused("bench-io", self.write("plain", "")))
        self.assertIn("DIR", self.refused("bench-io"))
        self.assertIn("--file-size: size without a unit: '8'",
                      self.refused("bench-io", "--file-size", "8", self.root / "work"))
        self.assertIn("--blocks: not a size: 'x'",
                      self.refused("bench-io", "--blocks", "1MiB,x", self.root / "work"))
        self.assertIn("--depths: '' is not a whole number",
                      self.refused("bench-io", "--depths", "1,", self.root / "work"))
        self.assertIn("--depths", self.refused("bench-io", "--depths", "x", self.root / "work"))
        self.assertIn("unexpected argument", self.refused("bench-io", "/tmp", "/var/tmp"))


if __name__ == "__main__":
    unittest.main()
