"""Completions as a user meets them: cases type into a shell on a terminal, and look at what it offers."""
import fcntl
import os
import pathlib
import pty
import re
import shutil
import subprocess
import termios
import threading

from installed_share import InstalledShare, commands_of_help, options_of_help

SHELL = os.environ["SPILLWAY_TEST_SHELL"]
PACKAGE = pathlib.Path("/usr/share/bash-completion/bash_completion")

# Control-T behind a line has the shell write all that it offers there into the pipe {answer}, in one line.
BASH = r"""
PS1=; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'
keep() {{ line=$READLINE_LINE; typed=${{line%"${{line##*[ =:,]}}"}}; }}
answer() {{
  [[ $READLINE_LINE != "$line" ]] || typed=$line
  echo "${{READLINE_LINE:${{#typed}}}}" >{answer}
  READLINE_LINE=
}}
bind -x '"\C-xa": keep'; bind '"\C-xb": insert-completions'; bind -x '"\C-xc": answer'
bind '"\C-t": "\C-xa\C-xb\C-xc"'
. {completion}
"""
ZSH = r"""
PROMPT=; unsetopt beep
fpath=({share}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u
compadd() {{ local -a reply; builtin compadd -O reply "$@"; found+=("${{reply[@]}}"); builtin compadd "$@" }}
answer() {{ typeset -a found; _main_complete; compstate[list]= compstate[insert]=; print -r -- $found >{answer} }}
zle -C answer complete-word answer; bindkey '^T' answer
"""
FISH = r"""
function fish_prompt; end
function answer
    complete -C (commandline) | string replace -r '\t.*' '' | string join ' ' >{answer}
    commandline ''
end
bind \ct answer
"""
SETUP = {"bash": BASH, "zsh": ZSH, "fish": FISH}[SHELL]
START = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "-i"]}[SHELL]


class Completion(InstalledShare):
    def setUp(self):
        if shutil.which(SHELL) is None:
            self.skipTest(f"{SHELL} is not installed")
        super().setUp()
        self.answer = self.work.parent / "answer"
        os.mkfifo(self.answer)

    def start(self, completion=PACKAGE):
        """A shell that has read its set-up."""
        if SHELL == "bash" and not completion.exists():
            self.skipTest(f"{completion} is not there: the package bash-completion is not installed")
        setup = self.work.parent / "setup"
        setup.write_text(SETUP.format(answer=self.answer, share=self.share, completion=completion), encoding="utf-8")
        self.terminal, inside = pty.openpty()
        shell = subprocess.Popen(START, stdin=inside, stdout=inside, stderr=inside, cwd=self.work,
                                 start_new_session=True, env=self.environment,
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(inside)
        # What nobody reads would hold the shell up.
        threading.Thread(target=self.read_screen, daemon=True).start()
        self.addCleanup(shell.wait)
        self.addCleanup(shell.kill)
        self.type(f". {setup}; echo ready >{self.answer}\n")
        self.assertEqual(self.answer.read_text(encoding="utf-8"), "ready\n")

    def read_screen(self):
        try:
            while os.read(self.terminal, 4096):
                pass
        except OSError:
            os.close(self.terminal)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def answered(self, line):
        """The words that can stand in place of the last one, as the shell writes them."""
        self.type(line + "\x14")
        words = self.answer.read_text(encoding="utf-8").split()
        self.type("\x15")
        return words

    def offered(self, line):
        """The same without what stands before "=", ":" or "," in it."""
        words = self.answered(line)
        if "=" in line.split(" ")[-1]:  # Where the value is the user's, zsh offers options of such names once more.
            words = [word for word in words if "=" in word or not word.startswith("--")]
        return {re.split("[=:,]", word)[-1].rstrip("/") for word in words}

    def options(self, line):
        return {word for word in self.offered(line) if word.startswith("--") and word != "--"}

    def test_knows_the_commands(self):
        self.start()
        self.assertLessEqual(set(commands_of_help()), self.offered("spillway "))
        self.assertEqual(self.offered("spillway bench"), {"bench-io"})
        self.assertEqual(self.offered("spillway help r"),
                         {name for name in commands_of_help() if name.startswith("r")})

    def test_knows_every_option_of_the_help(self):
        self.start()
        for command in commands_of_help():
            options = {name for name, _ in options_of_help(command)}
            self.assertGreater(len(options), 1)
            self.assertEqual(self.options(f"spillway {command} --"), options, command)

    def test_knows_what_each_type_of_the_help_lists(self):
        self.start()
        seen = set()
        for command in commands_of_help():
            for name, value in options_of_help(command):
                parts = re.sub(r"\[[^]]*\]", "", value).removesuffix(",...").split("|")
                words = {part for part in parts if re.fullmatch(r"[a-z][\w-]*", part)}
                expected = words | ({"step.json", "spill"} if "FILE" in parts else set())
                expected |= {"spill"} if "DIR" in parts else set()
                if not value or (command, name) in seen:
                    continue
                for typed in (f"spillway {command} {name} ", f"spillway {command} {name}="):
                    offered = self.offered(typed)
                    if {"NAME", "GPU"} & set(parts):
                        self.assertLessEqual(expected, offered, typed)
                    else:
                        self.assertEqual(offered, expected, typed)
                seen |= {(command, name)} if expected else set()
        self.assertGreater(len(seen), 20)

    def test_knows_names(self):
        self.start()
        for command in commands_of_help():
            options = dict(options_of_help(command))
            for name, word in (("--strategy", "spillway"), ("--schedule", "interleaved"),
                               ("--partitioner", "torchgpipe"), ("--cluster", "dgx_h200"), ("--device", "cuda:1")):
                if name in options:
                    self.assertIn(word.split(":")[-1], self.offered(f"spillway {command} {name} {word[:4]}"))

    def test_knows_what_schedules_leave_open(self):
        self.start()
        for word in ("interleaved:chunks=", "1f1b-capped:slots=", "gems-master:replicas="):
            name, _, parameter = word.partition(":")
            found = self.answered(f"spillway plan-job --schedule {name}:")
            self.assertEqual({each.removeprefix(f"{name}:") for each in found}, {parameter})

    def test_shows_meanings_beside_options_alone(self):
        """fish knows one text of an option, and would show it beside each of its values."""
        if SHELL != "fish":
            self.skipTest(f"{SHELL} shows no text beside values")
        lines = subprocess.run(
            ["fish", "-c", "complete -C 'spillway plan --strat'; complete -C 'spillway plan --strategy sp'"],
            env=self.environment, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.assertEqual(lines, ["--strategy\tPlanning strategy, one of those below, or all, to compare them",
                                 "spillway"])

    def test_of_switches_knows_on_and_off(self):
        self.start()
        self.assertEqual(self.offered("spillway run --verify=o"), {"on", "off"})
        self.assertEqual(self.offered("spillway run --verify off own-tr"), {"own-trainer"})
        self.assertEqual(self.options("spillway run --verify on --quiet --bu"), {"--budget"})

    def test_goes_on_behind_a_comma(self):
        self.start()
        self.assertEqual(self.offered("spillway run --nvme ram:8GiB,/tmp:200GiB,s"), {"spill"})
        self.assertEqual(self.offered("spillway run --nvme=/tmp,"), {"spill"})

    def test_knows_files_and_folders_of_arguments(self):
        self.start()
        self.assertEqual(self.offered("spillway bench-io --store auto s"), {"spill"})
        self.assertEqual(self.offered("spillway plan --budget 4GiB st"), {"step.json"})
        self.assertEqual(self.options("spillway plan step.json --js"), {"--json"})

    def test_of_a_program_and_its_files(self):
        self.start()
        for begin in ("run --budget 4GiB", "run --budget 4GiB --", "run --store=ram --", "profile --out x.json --",
                      "profile --steps 4", "doctor --"):
            self.assertEqual(self.offered(f"spillway {begin} own-tr"), {"own-trainer"}, begin)
            self.assertEqual(self.offered(f"spillway {begin} own-trainer st"), {"step.json"}, begin)
            self.assertEqual(self.options(f"spillway {begin} own-trainer --bu"), set(), begin)
        self.assertEqual(self.offered("spillway doctor own-tr"), set())

    def test_of_a_program_is_its_own(self):
        self.start()
        self.assertIn("--ignore-environment", self.options("spillway run -- env --ig"))
        self.assertEqual(self.offered("spillway run -- spillway bench"), {"bench-io"})

    def test_of_an_import_is_of_a_trace(self):
        self.start()
        self.assertEqual(self.offered("spillway profile --import dtr st"), {"step.json"})
        self.assertEqual(self.offered("spillway profile --import=piper own-tr"), set())

    def test_needs_no_package(self):
        self.start(self.share / "bash-completion/completions/spillway")
        self.assertEqual(self.offered("spillway run --bu"), {"--budget"})
        self.assertEqual(self.offered("spillway run --store=po"), {"posix"})
        self.assertEqual(self.offered("spillway run -- own-tr"), {"own-trainer"})
        self.assertEqual(self.offered("spillway run -- own-trainer st"), {"step.json"})
