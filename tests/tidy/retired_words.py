"""Words that identifiers, comments and pages no longer use, each with the field's word for it.

To retire a word, add a line to RETIRED.
"""
import re

# The word; where it is refused: "names" (a part of an identifier, whatever its spelling: left_out,
# kLeftOut, LeftOut), "text" (a regular expression for anything in a file); what to write instead.
RETIRED = [
    ("relief", "names", "memory reduction"),
    (r"\breliefs?\b|\brelieved\b", "text", "memory reduction, reduced"),
    ("referee", "names", "simulator"),
    (r"\breferees?\b", "text", "simulator"),
    ("judge", "names", "evaluate, check or compare"),
    (r"\bjudged?\(", "text", "evaluate, evaluated"),
    ("hopeless", "names", "pruned"),
    (r"\bhopeless\b", "text", "pruned"),
    ("left out", "names", "skipped"),
    ("put off", "names", "deferred"),
    ("to beat", "names", "incumbent"),
    ("roomy", "names", "unlimited or ample"),
    ("stage rooms", "names", "stage budgets"),
    ("gross levels", "names", "live pages"),
    ("habits", "names", "traits"),
    ("frozen stem", "names", "frozen prefix"),
    (r"\bfrozen stem\b", "text", "frozen prefix"),
    ("one way swaps", "names", "half-duplex swaps"),
    ("tight cuts", "names", "least-memory cuts"),
    ("whole cuts", "names", "whole-layer cuts"),
    (r"\bidle windows?\b", "text", "idle time; swaps there are idle-time offload"),
    (r"(?<![\w-])--(?:groups|data-parallel) (?:COUNT|\d)", "text", "--replicas"),
    (r"(?<![\w-])--topology [A-Za-z]", "text", "--cluster"),
    (r"\bplan (?:[\w.]+ )?--(?:ranks|check|rebalance|costs)\b", "text", "plan-job, check, rebalance or costs"),
    (r"\bdata.parallel groups?\b", "text", "data-parallel replicas"),
    ("find turn", "names", "forward end"),
    ("lists for", "names", "schedule request"),
    ("plan words", "names", "PlanOptions"),
    ("job words", "names", "JobOptions"),
    ("rate words", "names", "RateOptions"),
    ("simulate words", "names", "SimulateOptions"),
    ("profile words", "names", "ProfileOptions"),
    ("setting words", "names", "setting values"),
    ("drops again", "names", "drops each time"),
    ("computed again", "names", "recomputed"),
    ("again seconds", "names", "recompute seconds"),
    (r"\bcomput(?:e[sd]?|ing) again\b", "text", "recompute"),
    (r"\bcame otherwise than planned\b", "text", "did not match the plan"),
    ("doorbell", "names", "notifier"),
    (r"\bdoorbells?\b", "text", "notifier (an eventfd)"),
    ("dispensability", "names", "eviction priority"),
    ("life of", "names", "allocation id"),
]

# History, data, options that are refused with their new names, and this list itself.
UNREAD = ("CHANGELOG.md", "tests/tidy/", "tests/bindings/cli/reports/options_elsewhere.txt")
READ = {".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md", ".txt", ".in"}

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def parts_of(identifier):
    """"kLeftOut" and "left_out" as " left out ", without the k of constants."""
    parts = [part.lower() for part in PART.findall(identifier)]
    if len(parts) > 1 and parts[0] == "k":
        parts = parts[1:]
    return " " + " ".join(parts) + " "


def used(text, retired=None):
    """What a text has of the retired words: line, what stands there, what to write instead."""
    words = RETIRED if retired is None else retired
    names = [(f" {word} ", say) for word, where, say in words if where == "names"]
    texts = [(re.compile(word), say) for word, where, say in words if where == "text"]
    for number, line in enumerate(text.splitlines(), 1):
        for identifier in dict.fromkeys(IDENTIFIER.findall(line)):
            parts = parts_of(identifier)
            for word, say in names:
                if word in parts and is_name(identifier, word):
                    yield number, identifier, say
        for pattern, say in texts:
            for found in pattern.finditer(line):
                yield number, found.group(0), say


def is_name(identifier, word):
    """A word of prose is no name; one that is refused in prose, too, has a line of its own."""
    return " " in word.strip() or identifier.lower() != word.strip() or "_" in identifier
