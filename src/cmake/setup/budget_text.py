"""Budgets as --budget takes them, and the smallest one that a run names."""
import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SMALLEST_BUDGET = re.compile(r"smallest budget\D{0,40}?([0-9]+(?:\.[0-9]+)?) ?((?:[KMGT]i)?B)\b")


def as_option(size):
    return f"{size // UNITS['KiB']}KiB"


def smallest_budget_in(text):
    """The last budget that a refused run asks for, rounded up to what as_option can say, or None."""
    found = SMALLEST_BUDGET.findall(text)
    if not found:
        return None
    number, unit = found[-1]
    # A printed number is rounded: its last digit may have been one higher.
    digits = len(number.partition(".")[2])
    size = (float(number) + (10 ** -digits if digits else 0)) * UNITS[unit]
    return (int(size) // UNITS["KiB"] + 1) * UNITS["KiB"]
