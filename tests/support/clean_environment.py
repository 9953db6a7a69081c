"""The environment of a program that is tested or measured: who starts that has no say in it."""
import os

# Torch without cached bytecode takes ten seconds longer to come up.
LEFT_OUT = ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONDONTWRITEBYTECODE")


def clean_environment(*left_out, **variables):
    """Ours without settings of Spillway and malloc, without preloaded libraries and what is
    `left_out` too, and with `variables`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("SPILLWAY_") and name not in (*LEFT_OUT, *left_out)}
    kept.update(variables)
    return kept
