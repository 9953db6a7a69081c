"""Profiles of made-up steps, in the format of src/profile/profile_format.md."""

CLASSES = ("unknown", "parameter", "gradient", "optimizer-state", "buffer", "activation", "input")
GRADIENT, STATE, ACTIVATION = (CLASSES.index(name)
                               for name in ("gradient", "optimizer-state", "activation"))
PARAMETER, INPUT = CLASSES.index("parameter"), CLASSES.index("input")


def profile(program, kinds, ops, uses, values, *, page_bytes, **others):
    """A profile as a dictionary. `kinds`: (name, arguments); `ops`: columns by name; `uses`: of each
    operator (value, whether it is written); `values`: columns. `others` replaces parts of the whole."""
    count = len(uses)
    return {
        "format": "spillway-profile", "version": 1, "minor": 0,
        "origin": {"source": "recorded", "program": program, "libtorch": "", "spillway": "",
                   "threads": 0, "steps": 1},
        "page_bytes": page_bytes, "small_bytes": 0, "classes": CLASSES,
        "kinds": {"name": [name for name, _ in kinds],
                  "arguments": [arguments for _, arguments in kinds]},
        "ops": {"signature": [f"{number + 1:016x}" for number in range(count)],
                "spread_ns": [0] * count, "use_count": [len(used) for used in uses], **ops},
        "uses": {"value": [value for used in uses for value, _ in used],
                 "writes": [int(writes) for used in uses for _, writes in used]},
        "values": values, **others}
