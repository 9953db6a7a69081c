"""Pages of the manual, in the macros of man(7), of what the help tables say."""
import re


# Letters that troff would take for commands, or show as others.
LETTERS = str.maketrans({"\\": r"\e", "-": r"\-", "~": r"\(ti", "^": r"\(ha", "`": r"\(ga", "'": r"\(aq"})


def escaped(text):
    return re.sub(r"(?m)^\.", r"\\&.", text.translate(LETTERS))


def bold(text):
    return f"\\fB{escaped(text)}\\fR"


def option_head(option):
    """`-h`, `--budget` SIZE|auto, `--verify`[=on|off]"""
    head = ", ".join(bold(spelling) for spelling in reversed(option.spellings))
    if option.value is None:
        return head
    value = f"\\fI{escaped(option.value.type)}\\fR"
    return f"{head}[={value}]" if option.is_switch else f"{head} {value}"


def usage_line(line):
    """What is typed as it stands is bold; what stands for something else, as a program and its arguments do, is not."""
    shown, placeholder = [], re.compile(r"\[options\]|\[?[A-Z]")
    for word in line.split():
        shown.append(f"\\fI{escaped(word)}\\fR" if placeholder.match(word) else bold(word))
        if word in ("--", "[--"):
            placeholder = re.compile("")
    return " ".join(shown)


def synopsis(lines):
    return "\n.br\n".join(usage_line(line) for line in lines)


def tagged(head, text):
    return f".TP\n{head}\n{escaped(text)}"


def paragraphs_of(text):
    """The heading of a list is one of its own."""
    text = re.sub(r"(?m)^(\S.*:)\n(?=  )", r"\1\n\n", text)
    return [paragraph.strip("\n") for paragraph in re.split(r"\n\n+", text) if paragraph.strip()]


def sentence(text):
    text = " ".join(text.split())
    return text[0].upper() + text[1:]


def flowing(paragraph):
    return ".PP\n" + escaped(" ".join(paragraph.split()))


def examples_of(lines):
    """(command, what it does) of each: the lines behind the first of one are indented more deeply."""
    found = []
    for line in lines:
        command, _, meaning = line.strip().partition("  ")
        begins = len(line) - len(line.lstrip()) == 2
        if begins:
            found.append([command, meaning.strip()])
        elif found[-1][0].endswith("\\"):
            found[-1][0] = found[-1][0][:-1] + command
            found[-1][1] = meaning.strip()
        else:
            found[-1][1] += " " + line.strip()
    return [(command, meaning.strip()) for command, meaning in found]


def example_blocks(text):
    """Paragraphs as they are, and examples as a list of commands."""
    blocks = []
    for paragraph in paragraphs_of(text):
        if paragraph.startswith("  "):
            blocks += [tagged(bold(command), meaning) if meaning else f".PP\n{bold(command)}"
                       for command, meaning in examples_of(paragraph.splitlines())]
        else:
            blocks.append(flowing(paragraph))
    return "\n".join(blocks)


def split_examples(text):
    """What stands before the examples, they, and the exit codes."""
    before, found, rest = text.partition("Examples:\n")
    examples, codes, exits = rest.partition("Exit codes:")
    if not found or not codes:
        raise SystemExit(f"these examples of a command lack `Examples:` or `Exit codes:`:\n{text}")
    return before, examples, exits


def groups_of(options):
    groups = {}
    for option in options:
        groups.setdefault(option.group, []).append(option)
    return groups


def option_sections(command):
    lines = []
    for title, options in groups_of(command.options).items():
        if title != "Options":
            lines.append(f".SS {escaped(title)}")
        lines += [tagged(option_head(option), option.meaning) for option in options]
    return "\n".join(lines)


def environment_of(command):
    variables = [option.variable for option in command.options if option.variable]
    if not variables:
        return f".PP\nThe options of {bold('spillway ' + command.name)} are no variables."
    return ("A variable stands for its option where that is not given: it wins over the file of \\fB\\-\\-config\\fR. "
            "An empty one counts as unset.\n.PP\n"
            + ",\n".join(bold(variable) for variable in variables) + ".")


def page(title, version, sections):
    """Words are not broken at hyphens: those of options are no words."""
    head = (f'.\\" Made of what the command says of itself.\n.TH {escaped(title.upper())} 1 "" "Spillway {version}"\n'
            ".nh\n.ad l\n")
    return head + "".join(f".SH {name}\n{text}\n" for name, text in sections if text)


def see_also(names):
    return ",\n".join(f"\\fB{escaped(name)}\\fR(1)" for name in names)


def command_page(program, command):
    before, examples, exits = split_examples(command.examples)
    title = f"spillway-{command.name}"
    description = "\n".join([escaped(command.description), example_blocks(before)])
    arguments = [tagged(f"\\fI{escaped(argument.value.type)}\\fR", argument.meaning) for argument in command.arguments]
    others = ["spillway", *(f"spillway-{each.name}" for each in program.commands if each is not command)]
    return page(title, program.version, [
        ("NAME", f"{escaped(title)} \\- {escaped(command.summary)}"),
        ("SYNOPSIS", synopsis(command.usage)),
        ("DESCRIPTION", description),
        ("ARGUMENTS", "\n".join(arguments)),
        ("OPTIONS", option_sections(command)),
        ("ENVIRONMENT", environment_of(command)),
        ("EXIT STATUS", escaped(sentence(exits))),
        ("EXAMPLES", example_blocks(examples)),
        ("SEE ALSO", see_also(others))])


def overview_page(program):
    _, _, examples = program.examples.partition("\n")
    commands = [tagged(f"\\fBspillway\\-{escaped(command.name)}\\fR(1)", command.summary)
                for command in program.commands]
    return page("spillway", program.version, [
        ("NAME", "spillway \\- out\\-of\\-core training for LibTorch"),
        ("SYNOPSIS", synopsis(["spillway COMMAND ...", "spillway --help", "spillway --version"])),
        ("DESCRIPTION", escaped(program.purpose)),
        ("COMMANDS", "\n".join(commands)),
        ("OPTIONS", "\n".join([tagged(bold("--help"), "Print the commands."), tagged(
            bold("--version"), "Print the version, and those of LibTorch that are served.")])),
        ("ENVIRONMENT", "See \\fBspillway\\-run\\fR(1), whose options are variables, too."),
        ("EXIT STATUS", "Each page has that of its command. Wrong options or settings are 2 for all."),
        ("EXAMPLES", example_blocks(examples)),
        ("SEE ALSO", see_also([f"spillway-{command.name}" for command in program.commands]))])


def pages(program):
    """The text of each page by the name of its file."""
    found = {f"spillway-{command.name}.1": command_page(program, command) for command in program.commands}
    return {"spillway.1": overview_page(program), **found}
