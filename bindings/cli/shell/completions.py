"""Scripts that complete the words of the command: each is a template with what the help tables say filled in."""
import pathlib

import help_tables

HERE = pathlib.Path(__file__).resolve().parent


def filled(template, **parts):
    text = (HERE / template).read_text(encoding="utf-8")
    for name, part in parts.items():
        mark = f"@{name}@"
        if mark not in text:
            raise SystemExit(f"{template} has no place for {mark}")
        text = text.replace(mark, part)
    return text


def quoted(text):
    """One word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def names_of(program):
    return " ".join(command.name for command in program.commands)


def spellings_of(command, chosen=lambda option: True):
    return " ".join(spelling for option in command.options if chosen(option) for spelling in option.spellings)


def facts_of(command):
    """What it takes to find where a program begins, by the names that the three templates have for it."""
    program = ("dashes" if command.needs_dashes else "anywhere") if command.starts_program else ""
    return {"valued": spellings_of(command, lambda option: option.takes_next_word),
            "switches": spellings_of(command, lambda option: option.is_switch),
            "program": program, "instead": command.option_of_argument or ""}


# ---- bash

def bash_value(value):
    kinds = [kind for kind, has in (("files", value.files), ("folders", value.folders), ("list", value.is_list))
             if has]
    return f"kinds='{' '.join(kinds)}' offered='{' '.join(value.words)}'" if kinds or value.words else None


def bash_values(program):
    """A branch of a `case` for all places that are completed alike."""
    places = {}
    for command in program.commands:
        for option in command.options:
            if option.value is not None:
                places.setdefault(bash_value(option.value), []).append(f"'{command.name} {option.name}'")
        for argument in command.arguments:
            places.setdefault(bash_value(argument.value), []).append(command.name)
    places.pop(None, None)
    return "\n".join(f"    {' | '.join(where)})\n      {what} ;;" for what, where in places.items())


def bash_command(command):
    facts = {"options": spellings_of(command), **facts_of(command)}
    lines = "\n".join(f"      {name}='{text}'" for name, text in facts.items() if text)
    return f"    {command.name})\n{lines} ;;"


def bash(program):
    return filled("spillway.bash.in", NAMES=names_of(program), VALUES=bash_values(program),
                  COMMANDS="\n".join(map(bash_command, program.commands)))


# ---- zsh

def zsh_text(text, special):
    return "".join("\\" + letter if letter in special else letter for letter in text)


def zsh_value(value):
    """What _arguments is to offer: its heading, and where from."""
    if value.files and value.words:
        action = f" _spillway_names_or_files {' '.join(value.words)}"
    elif value.files:
        action = "_files"
    elif value.folders:
        action = "_sequence _directories" if value.is_list else "_directories"
    elif any(word.endswith("=") for word in value.words):
        action = f" _spillway_names {zsh_text(' '.join(value.words), ':')}"
    else:
        action = f"({zsh_text(' '.join(value.words), ':')})" if value.words else " "
    return f"{zsh_text(value.type, ':')}:{action}"


def zsh_option(option):
    meaning = f"[{zsh_text(help_tables.brief(option.meaning), '[]:')}]"
    mark, value = "", ""
    if option.value is not None:
        mark, value = ("=-", "::") if option.is_switch else ("=", ":")
        value += zsh_value(option.value)
    if len(option.spellings) == 1:
        return quoted(option.name + mark + meaning + value)
    return f"'({' '.join(option.spellings)})'{{{','.join(option.spellings)}}}{quoted(mark + meaning + value)}"


def zsh_command(command):
    facts = facts_of(command)
    arguments = " ".join(f"'{number}:{zsh_value(argument.value)}'"
                         for number, argument in enumerate(command.arguments, 1))
    lines = []
    if command.starts_program:
        lines += [f"      valued=({facts['valued']}) switches=({facts['switches']})",
                  f"      program={facts['program']} instead={facts['instead']}",
                  "      if _spillway_find_program; then _normal; return; fi"]
    if arguments:
        condition = "[[ $program ]] || " if command.starts_program else ""
        lines.append(f"      {condition}arguments=({arguments})")
    options = "".join(f"\\\n        {zsh_option(option)} " for option in command.options)
    return "\n".join([f"    {command.name})", *lines, f"      _arguments {options}$arguments ;;"])


def zsh(program):
    return filled("spillway.zsh.in", COMMANDS="\n".join(map(zsh_command, program.commands)),
                  NAMES="\n".join(f"    {quoted(command.name + ':' + zsh_text(command.summary, ':'))}"
                                  for command in program.commands))


# ---- fish

def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_kind(value):
    """What may stand there beside words of ours."""
    return "" if value is None else "-r -F" if value.files else "-x"


def fish_offered(value):
    if value.folders:
        return "(__spillway_folders)"
    return " ".join(value.words)


def fish_option(command, option):
    """A line of what it offers, and one with the meaning, which fish would else show beside each word of that. It shows
    the option itself as the latest line has it."""
    spellings = " ".join(f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}" for each in option.spellings)
    start = f"complete -c spillway -n '__spillway_in {command.name}' {spellings}"
    kind = "" if option.is_switch else fish_kind(option.value)
    lines = []
    if option.value is not None and fish_offered(option.value):
        lines.append(f"{start} {kind} -a '{fish_offered(option.value)}'")
    return "\n".join([*lines, f"{start} {kind} -d {fish_quoted(help_tables.brief(option.meaning))}"])


def fish_argument(command, argument):
    condition = f"__spillway_in {command.name}"
    if command.option_of_argument:
        condition += f"; and __spillway_has {command.option_of_argument}"
    what = "-F" if argument.value.files else f"-x -a '{fish_offered(argument.value)}'"
    return f"complete -c spillway -n '{condition}' {what}"


def fish_command(command):
    facts = "\n".join(f"            set {name} {text}" for name, text in facts_of(command).items() if text)
    return f"        case {command.name}\n{facts}"


def fish(program):
    lines = []
    for command in program.commands:
        lines.append(f"complete -c spillway -n __fish_use_subcommand -a {command.name} "
                     f"-d {fish_quoted(command.summary)}")
        lines += [fish_option(command, option) for option in command.options]
        lines += [fish_argument(command, argument) for argument in command.arguments]
    return filled("spillway.fish.in", NAMES=names_of(program), LINES="\n".join(lines),
                  COMMANDS="\n".join(map(fish_command, program.commands)))
