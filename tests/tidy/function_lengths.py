"""Finds functions and their lengths in C++ (by braces) and in Python (by its own parser)."""
import ast
import re

CONTAINER = re.compile(
    r"^(?:(?:inline|export|typedef|static|constexpr|const)\s+)*"
    r"(?:namespace\b|extern\s*\"|(?:class|struct|union|enum)\b[^()]*$)")
TEMPLATE = re.compile(r"^template\s*<")
ATTRIBUTES = re.compile(r"\balignas\s*\([^()]*\)|\[\[[^\]]*\]\]|\b__attribute__\s*\(\([^()]*\)\)")
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"|^[ \t]*\#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE)


def without_text(source):
    """Blanks comments, literals and preprocessor lines, and keeps every line where it is."""
    # 1'000 is a number, not the start of a character.
    source = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", source)

    def blank(match):
        lines = "\n" * match.group().count("\n")
        return '""' + lines if match.group()[0] in "\"R" else " " + lines

    return TOKEN.sub(blank, source)


def skip_template(head):
    """Drops a leading `template <...>`."""
    while TEMPLATE.match(head):
        depth = 0
        for position, character in enumerate(head):
            depth += (character == "<") - (character == ">")
            if character == ">" and depth == 0:
                head = head[position + 1:].strip()
                break
        else:
            return head
    return head


def kind_of(head):
    head = skip_template(ATTRIBUTES.sub(" ", head).strip())
    if CONTAINER.match(head):
        return "container"
    return "function" if "(" in head else "value"


def cpp_functions(source):
    """Yields (first line, number of lines, head) of each outermost function."""
    text = without_text(source)
    line, depth, head, head_line = 1, 0, "", 1
    start = None
    containers = []
    for position, character in enumerate(text):
        if depth > 0:  # inside a function or an initialiser
            depth += (character == "{") - (character == "}")
            # Members initialised with braces, `: a_{1}, b_{2} {`, are not the end yet.
            if depth == 0 and text[position + 1:position + 200].lstrip()[:1] not in (",", "{"):
                if start is not None:
                    yield start, line - start + 1, " ".join(head.split())[:60]
                head, start = "", None
        elif character == "{":
            kind = kind_of(head)
            if kind == "container":
                containers.append(head)
                head = ""
            else:
                depth = 1
                start = head_line if kind == "function" else None
        elif character == "}":
            if containers:
                containers.pop()
            head = ""
        elif character == ";":
            head = ""
        else:
            if not head.strip() and not character.isspace():
                head, head_line = "", line
            head += character
            if re.fullmatch(r"\s*(?:public|private|protected)\s*:", head):
                head = ""
        line += character == "\n"


def python_functions(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name
