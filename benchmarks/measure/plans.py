"""What `spillway plan --json` tells of one step, strategy by strategy: cells with `plans` by name."""
import math

OURS = "spillway"
RECOMPUTE_ONLY = ("checkpoint-sqrt", "rotor", "dtr")
SAME = 1e-6  # Relative; closer steps count as equal.
# Of the figures of a plan: what goes into the file of results.
KEPT = ("step_seconds", "gap", "swapped_bytes", "recompute_seconds", "planning_seconds", "search_was_cut")


def kept(plan):
    return {key: plan[key] for key in KEPT}


def best_of(cell, strategies):
    """The name of the fastest and its seconds; infinite where none has a plan."""
    plans = cell["plans"]
    return min(((plans[name]["step_seconds"], name) for name in strategies if name in plans),
               default=(math.inf, ""))[::-1]


def lost_to(cell, strategies):
    """Cell, name and share of its time: who is faster than ours, as a list of one or none."""
    winner, seconds = best_of(cell, strategies)
    ours = cell["plans"].get(OURS, {}).get("step_seconds", math.inf)
    return [(cell, winner, ours / seconds - 1)] if ours > seconds * (1 + SAME) else []
