"""Texts that are compared whole with a file beside their test.

UPDATE_GOLDEN=1 writes what is printed now into the files, for `git diff` to show.
"""
import difflib
import fcntl
import os
import pathlib
import re
import socket
import sys

TIME = r"\d[\d.]* (?:µs|ms|s)\b"
# What differs between machines or runs, and so stands in no file.
MASKS = (
    (rf"(?m)^(planned   in |simulated .* in ){TIME}", r"\1TIME"),  # How long it took here.
    (rf"(?m)^(model     ){TIME}( for one simulation)", r"\1TIME\2"),
    (r"(not JSON, or not all of it): [^()\n]*[^() \n]", r"\1: REASON"),  # In the words of a library.
    (r"(has )\d[\d.]* \wiB( free)", r"\1SIZE\2"),
    (r"(no driver of NVIDIA is loaded|this machine has no GPU of NVIDIA)[^\n]*", "NO DRIVER"),  # With what to do then.
)
# What a run counts or measures, for `without`: a figure that has to be exact is asserted from its statistics.
RATES = (r"\b\d[\d.]* [KMGT]?B/s", "RATE")
SIZES = (r"\b\d[\d.]* ?(?:[KMGT]i)?B\b", "SIZE")
TIMES = (rf"\b{TIME}", "TIME")
COUNTS = (r"(?<![\w.:-])\d+(?!\w|\.\d)", "N")
HOST = (rf"\b{re.escape(socket.gethostname())}\b", "HOST")


def without_planning_times(text):
    """Tables have the times of searches in the column `planned`, to the right; below `measured` it has others."""
    lines, end = [], 0
    for line in text.splitlines(keepends=True):
        head = re.match(r"(?:strategy|schedule|partitioner)\b.*  planned\b", line)
        if head or not line.strip():
            end = head.end() if head else 0
        elif end:
            line = re.sub(rf"{TIME}$", lambda time: "TIME".rjust(len(time[0])), line[:end]) + line[end:]
        lines.append(line)
    return "".join(lines)


def masked(text, *own):
    """`own`: pairs of a text of this case alone, as the path of its folder, and the word for it."""
    for value, word in own:
        text = text.replace(value, word)
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return without_planning_times(text)


def without(text, *patterns):
    """With the words of these pairs in place of what their patterns match."""
    for pattern, word in patterns:
        text = re.sub(pattern, word, text)
    return text


def own_lines(text):
    """What Spillway says in the output of a program."""
    return "\n".join(line for line in text.splitlines() if line.startswith("[spillway"))


def check(case, path, text):
    """Fails on any difference, which it shows."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8")
    if text != kept:
        difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), path.name, "printed now", lineterm="")
        case.fail("renew the file with UPDATE_GOLDEN=1, if this is meant:\n" + "\n".join(difference))


def parts_of(text):
    """{name: text} of a file of parts, as support/golden_part.h writes it."""
    parts = re.split(r"(?m)^== (.+)\n", text)
    return {name: part.rstrip("\n") for name, part in zip(parts[1::2], parts[2::2])}


def check_told(case, texts, *own, patterns=()):
    """`check_part` of texts, `masked` with the pairs of this case's own and `without` these patterns."""
    check_part(case, *(without(masked(text, *own), *patterns) for text in texts))


def check_part(case, *texts):
    """All that is said in a case, with the part under its name of texts/told.txt beside its file, which cases share."""
    path = pathlib.Path(sys.modules[type(case).__module__].__file__).parent / "texts/told.txt"
    name, text = f"{type(case).__name__}.{case._testMethodName}", "\n".join(text.strip("\n") for text in texts)
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        with open(path, "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # Other cases write their parts at the same time.
            file.seek(0)
            parts = {**parts_of(file.read()), name: text}
            file.truncate(0)
            file.write("\n".join(f"== {each}\n{parts[each]}\n" for each in sorted(parts)))
        return
    case.assertEqual(text, parts_of(path.read_text(encoding="utf-8")).get(name),
                     f"renew {path} with UPDATE_GOLDEN=1, if this is meant")
