"""What the command says of itself by --help=table, and what shells can know of the value of an option."""
import dataclasses
import json
import re
import subprocess


@dataclasses.dataclass(frozen=True)
class Value:
    """What may stand behind an option, or for an argument."""
    type: str  # As the help shows it: "SIZE|PERCENT%|auto".
    words: tuple = ()
    files: bool = False
    folders: bool = False
    is_list: bool = False  # Of folders, between commas.


def value_of(text, names=()):
    """In a type, FILE and DIR are paths, NAME and GPU one of `names`, words in small letters stand for themselves."""
    always = re.sub(r"\[[^]]*\]", "", text)
    parts = always.removesuffix(",...").split("|")
    words = [part for part in parts if re.fullmatch(r"[a-z][\w-]*", part)]
    return Value(type=text, words=(*words, *(names if {"NAME", "GPU"} & set(parts) else ())), files="FILE" in parts,
                 folders="DIR" in parts, is_list=always.endswith(",..."))


@dataclasses.dataclass(frozen=True)
class Option:
    spellings: tuple  # "--help" before "-h".
    value: Value  # None for a flag.
    is_switch: bool  # Its value is left out or stands behind "=".
    meaning: str
    group: str
    variable: str  # "SPILLWAY_BUDGET", or "" where there is none.

    @property
    def name(self):
        return self.spellings[0]

    @property
    def takes_next_word(self):
        return self.value is not None and not self.is_switch


@dataclasses.dataclass(frozen=True)
class Argument:
    value: Value
    meaning: str


@dataclasses.dataclass(frozen=True)
class Command:
    name: str
    summary: str
    description: str
    usage: tuple  # Its lines.
    examples: str
    options: tuple
    arguments: tuple

    @property
    def starts_program(self):
        return any("-- program" in line for line in self.usage)

    @property
    def needs_dashes(self):
        """The program stands behind "--" only."""
        return any("[-- program" in line for line in self.usage)

    @property
    def option_of_argument(self):
        """Of a command that starts a program otherwise: what makes it take an argument instead."""
        for argument in self.arguments:
            for line in self.usage:
                found = re.search(rf" (--[a-z-]+) (?:[A-Z]+ )?{argument.value.type}\b", line)
                if found and self.starts_program:
                    return found.group(1)
        return None


@dataclasses.dataclass(frozen=True)
class Program:
    version: str
    purpose: str
    examples: str
    commands: tuple


def read_option(entry, names):
    text = entry.get("switch") or entry["value"]
    return Option(spellings=(entry["name"], *(f"-{letter}" for letter in entry["letters"])),
                  value=value_of(text, names.get(entry["name"], ())) if text else None,
                  is_switch="switch" in entry, meaning=entry["meaning"], group=entry["group"],
                  variable=entry.get("variable", ""))


def read_argument(entry):
    path = "DIR" if entry["name"] == "DIR" else "FILE"
    return Argument(dataclasses.replace(value_of(path), type=entry["name"]), entry["meaning"])


def ask(program, *words):
    done = subprocess.run([program, *words, "--help=table"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def read_program(path):
    """Everything that the command at `path` says of itself."""
    overview = ask(path)
    tables = {command["name"]: ask(path, command["name"]) for command in overview["commands"]}
    # What one command says of the names behind an option holds for the others.
    names = {option["name"]: option["names"]
             for table in tables.values() for option in table["options"] if "names" in option}
    commands = tuple(
        Command(name=name, summary=summary, description=tables[name]["description"],
                usage=tuple(line.strip() for line in tables[name]["usage"].splitlines()),
                examples=tables[name]["examples"],
                options=tuple(read_option(entry, names) for entry in tables[name]["options"]),
                arguments=tuple(read_argument(entry) for entry in tables[name]["arguments"]))
        for name, summary in ((command["name"], command["summary"]) for command in overview["commands"]))
    return Program(overview["version"], overview["purpose"], overview["examples"], commands)


LONGEST_BRIEF = 70  # Letters.


def brief(meaning):
    """The first sentence of a meaning, short enough for a menu."""
    text = re.sub(r" ?\[[^]]*\]$", "", meaning)
    text = re.split(r"\.(?: |$)|;", text)[0]
    noun, colon, _ = text[:LONGEST_BRIEF].partition(":")
    if len(text) > LONGEST_BRIEF and colon and not noun.startswith("With "):
        return noun
    if len(text) > LONGEST_BRIEF:
        return text[:LONGEST_BRIEF].rpartition(" ")[0].rstrip(",(") + " ..."
    return text
