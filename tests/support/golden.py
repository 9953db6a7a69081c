"""Texts that are compared whole with a file beside their test.

UPDATE_GOLDEN=1 writes what is printed now into the files, for `git diff` to show.
"""
import difflib
import os
import re

TIME = r"\d[\d.]* (?:µs|ms|s)\b"
# What differs between machines or runs, and so stands in no file.
MASKS = (
    (rf"(?m)^(planned   in |simulated .* in ){TIME}", r"\1TIME"),  # How long it took here.
    (rf"(?m)^(model     ){TIME}( for one simulation)", r"\1TIME\2"),
    (r"(not JSON, or not all of it): [^()\n]*[^() \n]", r"\1: REASON"),  # In the words of a library.
    (r"(has )\d[\d.]* \wiB( free)", r"\1SIZE\2"),
)


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


def check(case, path, text):
    """Fails on any difference, which it shows."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8")
    if text != kept:
        difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), path.name, "printed now", lineterm="")
        case.fail("renew the file with UPDATE_GOLDEN=1, if this is meant:\n" + "\n".join(difference))
