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

import golden
from command_case import COMMAND, WORLD, CommandCase


class Help(CommandCase):
    def test_overview_teaches_the_first_steps(self):
        code, output, _ = self.spillway("--help")
        self.assertEqual(code, 0)
        self.check_told(output)

    def test_of_each_command_has_examples_and_exit_codes(self):
        _, overview, _ = self.spillway("--help")
        commands = re.findall(r"(?m)^  ([a-z-]+)  +[a-z]", overview.split("Commands:")[1].split("Start here:")[0])
        self.assertEqual(len(commands), 10)
        for command in commands:
            code, output, _ = self.spillway(command, "--help")
            self.assertEqual(code, 0)
            headings = re.findall(r"(?m)^(\S.*?):", output)
            for heading in ("Usage", "Examples", "Exit codes"):
                self.assertEqual(headings.count(heading), 1, output)
            self.assertEqual(output.split("Usage: ")[1].split()[:2], ["spillway", command])
            self.assertEqual(self.spillway("help", command)[1], output)
            for line in output.splitlines():
                self.assertLessEqual(len(line), 100, line)
            # A group fits a screen, with its heading.
            for group in re.findall(r"(?m)^\S.*:\n(?:  .*\n)+", output):
                self.assertLessEqual(group.count("\n"), 24, group)

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
        option = output[output.index("  --strategy NAME|all\n"):].split("\n  --")[0]
        self.check_told(option, output[output.index("Strategies:\n"):].split("\n\n")[0])

    def test_of_profile_has_its_own_names_for_its_settings(self):
        _, output, _ = self.spillway("profile", "--help")
        options = dict(re.findall(r"(?m)^ +(?:-\w,)?(--[a-z-]+)(?: (\S+))?", output))
        self.assertEqual([options[name] for name in ("--out", "--steps", "--import", "--budget")],
                         ["FILE", "COUNT", "dtr|pipedream|piper", "SIZE|PERCENT%|auto"])
        self.assertNotIn("--profile-", output)

    def test_of_run_names_every_setting(self):
        _, output, _ = self.spillway("run", "--help")
        self.assertLessEqual({"budget", "nvme", "store", "queue-depth", "verify", "mapper", "dispatch-key",
                              "prefetch", "min-storage", "stats", "quiet", "progress", "log-level", "config",
                              "rates", "children", "reserve"}, set(re.findall(r"(?m)^ +(?:-\w,)?--([a-z-]+)", output)))

    def test_without_a_command_is_wrong_usage(self):
        code, output, errors = self.spillway()
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(errors.split("\n\n")[1], "Usage: spillway COMMAND ...")

    def test_version_names_the_served_libtorch(self):
        code, output, _ = self.spillway("--version")
        self.assertEqual(code, 0)
        (self.root / "lib/libspillway_core_2.11_cuda.so").touch()
        self.check_told(*(golden.without(told, (r"(?m)^spillway \d+\.\d+\.\d+$", "spillway VERSION"))
                          for told in (output, self.spillway("--version")[1])))


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
        self.assert_environment(output, SPILLWAY_QUEUE_DEPTH="8", SPILLWAY_VERIFY="on", SPILLWAY_ACTIVE="1",
                                SPILLWAY_NVME=str(self.root / "work"), LD_PRELOAD=str(self.preload))

    def test_makes_paths_absolute(self):
        _, output, _ = self.run_program("env", options=("--stats", "run.json"))
        self.assert_environment(output, SPILLWAY_STATS=f"{self.root / 'work'}/run.json")

    def test_lets_options_win_over_variables_over_the_file(self):
        self.write("spillway.conf", "queue-depth = 4\nmin-storage = 4MiB\nverify = on\n")
        _, output, _ = self.run_program(
            "env", options=("--queue-depth", "9", "--config", "spillway.conf"),
            SPILLWAY_QUEUE_DEPTH="7", SPILLWAY_MIN_STORAGE="2MiB")
        self.assert_environment(output, SPILLWAY_QUEUE_DEPTH="9", SPILLWAY_MIN_STORAGE="2MiB",
                                SPILLWAY_CONFIG=f"{self.root / 'work'}/spillway.conf")

    def test_makes_paths_of_the_config_file_and_of_variables_absolute(self):
        (self.root / "work/spill").mkdir()
        self.write("other.conf", "nvme = spill:1GiB\n")
        # The program runs elsewhere, as ranks and trainers that change their folder do.
        _, output, errors = self.spillway("run", "--verify", "--", "env", "-C", "/", "env",
                                          SPILLWAY_CONFIG="other.conf", SPILLWAY_STATS="run-%p.json",
                                          SPILLWAY_QUIET="on")
        self.assertEqual(errors, "")
        self.assert_environment(output, SPILLWAY_NVME=f"{self.root / 'work'}/spill:1GiB",
                                SPILLWAY_STATS=f"{self.root / 'work'}/run-%p.json",
                                SPILLWAY_CONFIG=f"{self.root / 'work'}/other.conf")

    def test_keeps_an_existing_preload_and_says_so(self):
        other = WORLD / "modules/libtorch_python.so"
        code, output, errors = self.run_program("env", LD_PRELOAD=str(other))
        self.assertEqual(code, 0)
        self.assert_environment(output, LD_PRELOAD=f"{self.preload}:{other}")
        self.check_told(errors)

    def test_inside_of_itself_preloads_once(self):
        _, output, errors = self.run_program(self.command, "run", "--queue-depth", "4", "--", "env",
                                             options=("--queue-depth", "8"))
        self.assert_environment(output, LD_PRELOAD=str(self.preload), SPILLWAY_QUEUE_DEPTH="4")
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
        self.check_told(note.splitlines()[0])  # What is told at the end may come later.

    def test_notes_a_statistics_file_that_may_never_come(self):
        _, _, errors = self.run_program("true", options=("--stats", "run.json"))
        self.check_told(errors)
        _, _, errors = self.run_program("true", options=("--stats", "run.json", "--quiet"))
        self.assertEqual(errors, "")
        _, _, errors = self.run_program(WORLD / "bin/trainer_2.11.0",
                                        options=("--stats", "run.json"))
        self.assertEqual(errors, "")


class BudgetThatNobodyKeeps(CommandCase):
    """A budget was asked for, and no process of the run is under Spillway: never in silence."""

    TRAINER = WORLD / "bin/trainer_2.11.0"
    AT_THE_END = ("[spillway] warning: no process of this run came under Spillway on this machine, so its budget "
                  "limited nothing here: none loaded LibTorch where it could be seen (`spillway doctor -- PROGRAM` "
                  "looks at a program)\n")

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
            said = "".join(line for line in errors.splitlines(keepends=True) if not line.startswith("env: "))
            self.assertEqual(said, self.AT_THE_END)

    def test_is_told_wherever_the_budget_was_given(self):
        config = self.write("spillway.conf", "budget = 64MiB\n")
        for variables in ({"SPILLWAY_BUDGET": "64MiB"}, {"SPILLWAY_CONFIG": str(config)}):
            self.assertEqual(self.run_program("true", **variables)[2], self.AT_THE_END)
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
            self.assertEqual(output.count("core: loaded\n"), 1)

    def test_keeps_what_a_cleared_environment_preloads(self):
        other = WORLD / "modules/libtorch_python.so"
        _, output, _ = self.run_with_budget("env", "-i", f"LD_PRELOAD={other}", "A=b", "env")
        self.assert_environment(output, LD_PRELOAD=f"{self.preload}:{other}", SPILLWAY_BUDGET="64MiB", A="b",
                                HOME=None)

    def test_is_told_where_the_library_is_taken_out(self):
        code, output, errors = self.run_with_budget("env", "-u", "LD_PRELOAD", self.TRAINER)
        self.assertEqual(code, 7)
        self.assertNotIn("core: loaded", output)
        self.check_told(errors)

    def test_is_told_of_a_static_program_that_a_shell_becomes(self):
        program = self.static_program()
        _, _, errors = self.run_with_budget("sh", "-c", f"exec {program}")
        self.check_told(errors)

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
        self.assertEqual(errors, self.AT_THE_END)


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
        told = [self.as_nobody("run", "--nvme", self.root / "work", "--", program)
                for program in (self.program, script)]
        self.assertEqual([end[:2] for end in told], [(2, "")] * 2)
        self.check_told(*(errors for _, _, errors in told))

    def test_do_no_harm_to_root(self):
        self.assertEqual(self.run_program(self.program, "true"), (0, "", ""))

    def test_are_told_of_where_a_shell_becomes_such_a_program(self):
        code, _, errors = self.as_nobody("run", "--budget", "64MiB", "--nvme", self.root / "work",
                                         "--", "sh", "-c", f"exec {self.program} true")
        self.assertEqual(code, 0)
        self.check_told(errors)

    def test_are_a_problem_for_the_doctor(self):
        code, output, _ = self.as_nobody("doctor", "--skip-disks", "--json", "--", self.program)
        self.assertEqual(code, 1)
        check, = (each for each in json.loads(output)["checks"] if each["subject"] == f"program {self.program}")
        self.assertEqual(check["verdict"], "problem")
        self.check_told(check["value"], check["mend"])


class Refusing(CommandCase):
    """What files beside `report_test.py` cannot show, since machines differ; all other refusals are there."""

    def test_places_that_this_machine_does_not_have(self):
        self.assertRegex(self.refused("run", "--nvme", "/proc", "--", "true"), "not writable|read-only|holds no files")
        self.check_told(golden.without(self.refused("run", "--nvme", "ram:900TiB", "--", "true"),
                                       (r"\d[\d.]* \wiB \([^)]*\)", "LIMIT")))

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
        self.check_told(outcome.stderr)

    def test_a_static_program(self):
        self.check_told(self.refused("run", "--", self.static_program()))

    def test_a_program_that_changes_its_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file to another user")
        path = self.root / "work/setuid"
        shutil.copy(shutil.which("true"), path)
        os.chown(path, 65534, 65534)
        path.chmod(0o755 | stat.S_ISUID)
        self.check_told(self.refused("run", "--", path))

    def test_a_program_with_libtorch_linked_into_itself(self):
        source = self.write("inside.cpp",
                            "namespace torch { namespace autograd { class Engine;\n"
                            "void set_default_engine_stub(Engine& (*)()) {} } }\n"
                            "int main() { return 0; }\n")
        program = self.root / "work/inside"
        subprocess.run([os.environ["SPILLWAY_TEST_COMPILER"], str(source), "-o", str(program)],
                       check=True)
        self.check_told(self.refused("run", "--", program))

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
        self.assertEqual(outcome.stdout.splitlines()[0], "core: loaded")


class Profiling(CommandCase):
    TRACE = (b'{"INSTRUCTION":"CONSTANT","NAME":"x1"}\n'
             b'{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x1"}\n'
             b'{"ARGS":["x1"],"INSTRUCTION":"CALL","NAME":"relu","RESULT":["x2"],"TIME":"1000"}\n'
             b'{"INSTRUCTION":"MEMORY","MEMORY":"4194304","NAME":"x2"}\n'
             b'{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x2"}\n')

    def test_imports_a_trace(self):
        trace = self.root / "work/trace.log"
        trace.write_bytes(self.TRACE)
        code, _, errors = self.spillway("profile", "--import", "dtr", trace, "--out", "relu.json")
        self.assertEqual((code, errors), (0, ""))
        profile = json.loads((self.root / "work/relu.json").read_text(encoding="utf-8"))
        self.assertEqual(profile["kinds"], {"name": ["relu"], "arguments": ["4194304 B"]})

    def test_hands_the_file_on_to_the_program(self):
        told = self.write("told.sh", "#!/bin/sh\necho $SPILLWAY_PROFILE_OUT $SPILLWAY_PROFILE_STEPS "
                                     "$SPILLWAY_BUDGET $*\necho >$SPILLWAY_PROFILE_OUT\n")
        code, output, _ = self.spillway("profile", "--out", "p.json", "--budget", "64MiB", "--steps",
                                        "7", told, "--steps", "9", SPILLWAY_QUIET="1")
        self.assertEqual(code, 0)
        self.assertEqual(output.split(), [str(self.root / "work/p.json"), "7", "64MiB", "--steps",
                                          "9"])


    def test_says_when_there_is_none(self):
        self.assertEqual(self.spillway("profile", "--out", "p.json", "true")[0], 1)
        self.assertEqual(self.spillway("profile", "--out", "p.json", "--", "sh", "-c", "exit 41")[0],
                         41)
        old = self.write("old.json", "of an earlier run")
        self.assertEqual(self.spillway("profile", "--out", old, "true")[0], 1)

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


class PlanningProgram(CommandCase):
    """`plan`, `simulate` and imports are carried out by a program beside the command."""

    def setUp(self):
        super().setUp()
        self.program = self.root / "bin/spillway-planning"

    def test_gets_each_word_as_it_was_given(self):
        self.program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n", encoding="utf-8")
        for words in (("plan", "a b.json", "--budget", "", "--", "--x"), ("simulate",), ("plan-job", "--ranks"),
                      ("check", "x"), ("rebalance",), ("costs", "--json"),
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

    def test_is_wanted_by_no_other_command(self):
        self.program.unlink()
        for words in (("--help",), ("--version",), ("run", "--help"), ("profile", "--help"),
                      ("doctor", "--help"), ("bench-io", "--help")):
            self.assertEqual(self.spillway(*words)[0], 0, words)
        self.assertEqual(self.run_program("true")[0], 0)


class Doctor(CommandCase):
    def doctor(self, *words, nvme="", **variables):
        """(exit code, its checks by subject)"""
        code, output, errors = self.spillway("doctor", "--skip-disks", "--json", "--nvme", nvme or self.root / "work",
                                             *words, **variables)
        self.assertEqual(errors, "")
        report = json.loads(output)
        self.assertEqual(code, int(report["verdict"] == "problem"))
        return code, {check["subject"]: check for check in report["checks"]}

    def test_tells_of_everything_and_how_to_mend_it(self):
        _, checks = self.doctor()
        self.assertLessEqual({"installation", "dispatch key", "kernel", "cores", "memory", "memory limits",
                              "address space", "locked memory", "huge pages", "GPUs", "budget", "mapper", "io_uring",
                              "disk rates", "MPI", f"disk {self.root / 'work'}"}, set(checks))
        for check in checks.values():
            self.assertEqual(check["verdict"] == "ok", not check["mend"], check)
        lines = self.spillway("doctor", "--skip-disks", "--nvme", self.root / "work")[1].splitlines()
        self.assertEqual(len([line for line in lines if re.match("ok |warning |problem ", line)]), len(checks))

    def test_tells_what_a_limit_of_addresses_leaves_to_a_run(self):
        words = [str(self.command), "doctor", "--skip-disks", "--nvme", str(self.root / "work"), "--json"]
        told = []
        for budget, verdict in (("auto", "warning"), ("4GiB", "problem")):
            result = subprocess.run(
                ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "limited", *words, "--budget", budget],
                env=self.environment({}), capture_output=True, text=True, check=False)
            checks = {check["subject"]: check for check in json.loads(result.stdout)["checks"]}
            space = checks["address space"]
            self.assertEqual(space["verdict"], verdict, space)
            self.assertEqual(checks["budget"]["verdict"], verdict, checks["budget"])
            told += [golden.without(text.replace("3.81 GiB", "LIMIT"), golden.SIZES)
                     for text in (space["value"], space["mend"], checks["budget"]["mend"])]
        self.check_told(*told)

    def test_ends_with_one_when_there_is_a_problem(self):
        (self.root / "lib/libspillway_core_2.11.so").unlink()
        code, checks = self.doctor()
        self.assertEqual((code, checks["installation"]["verdict"]), (1, "problem"))
        self.check_told(checks["installation"]["mend"])

    def test_looks_at_the_libtorch_of_a_program(self):
        for program, verdict, release in ((WORLD / "bin/trainer_2.11.0", "ok", "2.11.0"),
                                          (WORLD / "bin/trainer_2.13.1", "problem", "2.13.1"), ("true", "warning", "")):
            check = self.doctor("--", program)[1][f"LibTorch of {program}"]
            self.assertEqual((check["verdict"], check["value"][:len(release)]), (verdict, release))

    def dispatch_key(self, *words, **variables):
        """The exit code and the finding about the dispatch key."""
        code, checks = self.doctor(*words, **variables)
        return code, checks["dispatch key"]

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
        mend = check["mend"]
        _, check = self.dispatch_key("--", WORLD / "bin/trainer_2.13.1")
        self.assertEqual(check["verdict"], "warning")
        self.check_told(mend, check["value"])

    def test_outlives_a_core_that_crashes(self):
        code, check = self.dispatch_key("--", WORLD / "bin/trainer_2.11.0", FAKE_CORE_KEY="crash")
        self.assertEqual((code, check["verdict"]), (1, "problem"))
        self.check_told(check["value"], check["mend"])

    def test_says_that_a_core_cannot_be_loaded(self):
        (self.root / "lib/libspillway_core_2.11.so").write_text("no library", encoding="utf-8")
        code, check = self.dispatch_key("--", WORLD / "bin/trainer_2.11.0")
        self.assertEqual((code, check["verdict"]), (1, "problem"))
        self.check_told(check["mend"])

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
        self.check_told(golden.without(check["mend"], (r"known: [^)]*", "known: KEYS")))

    def test_judges_the_mapper_that_is_forced_wherever_that_is_said(self):
        config = self.write("spillway.conf", "mapper = copy\n")
        told = []
        for words, variables in ((("--mapper", "copy"), {}), (("--config", config), {}),
                                 ((), {"SPILLWAY_MAPPER": "copy"})):
            told.append(self.doctor(*words, **variables)[1]["mapper"]["value"])
        self.check_told(*told)

    def test_reports_a_directory_that_cannot_be_used(self):
        code, checks = self.doctor(nvme=self.root / "none")
        self.assertEqual((code, checks["disk"]["verdict"]), (1, "problem"))

    def test_reports_a_named_file_of_disk_rates_that_is_missing(self):
        code, checks = self.doctor("--rates", self.root / "none.json")
        self.assertEqual((code, checks["disk rates"]["verdict"]), (1, "problem"))
        self.assertNotEqual(checks[f"disk {self.root / 'work'}"]["verdict"], "problem")

    def test_says_once_that_a_directory_is_a_ram_disk(self):
        if self.file_system("/dev/shm") != "tmpfs" or self.file_system(self.root) == "tmpfs":
            self.skipTest("a disk and a RAM disk are needed: /dev/shm and the temporary folder")
        _, checks = self.doctor(nvme=f"{self.root / 'work'},/dev/shm:64MiB")
        self.assertEqual(json.dumps(checks).count("RAM disk"), 1, checks)
        self.assertEqual(checks["disk /dev/shm"]["verdict"], "warning")

    def test_names_the_directory_to_measure(self):
        self.assertTrue(self.doctor()[1]["disk rates"]["mend"].endswith(f"spillway bench-io {self.root / 'work'}"))

    def test_measures_the_disk(self):
        _, output, _ = self.spillway("doctor", "--json", "--nvme", self.root / "work")
        check, = (each for each in json.loads(output)["checks"] if each["subject"] == f"disk {self.root / 'work'}")
        rates = check["value"][check["value"].index("write "):check["value"].index(" (by ")]
        self.assertEqual(golden.without(rates, golden.RATES), "write RATE, read RATE, both RATE")


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

    def test_is_read_by_the_doctor(self):
        self.spillway("bench-io", *self.QUICK, self.root / "work")
        _, output, _ = self.spillway("doctor", "--skip-disks", "--json", "--nvme", self.root / "work")
        checks = {check["subject"]: check["value"] for check in json.loads(output)["checks"]}
        self.assertTrue(checks["disk rates"].startswith("1 recorded"), checks)
        disk = checks[f"disk {self.root / 'work'}"]
        self.assertEqual(golden.without(disk[disk.index("write "):], golden.RATES, (r"\d+-\d+-\d+T[\d:]+Z", "TIME")),
                         "write RATE, read RATE (bench-io, TIME)")

    def test_says_once_that_a_directory_is_a_ram_disk(self):
        if self.file_system("/dev/shm") != "tmpfs":
            self.skipTest("/dev/shm is no RAM disk here")
        code, _, errors = self.spillway("bench-io", *self.QUICK, "/dev/shm")
        self.assertEqual(code, 0)
        self.assertEqual(len(re.findall("RAM disk|tmpfs", errors)), 2, errors)  # one line names both
        self.assertEqual(errors.count("/dev/shm is a RAM disk (tmpfs)"), 1, errors)


if __name__ == "__main__":
    unittest.main()
