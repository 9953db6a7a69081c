"""The environment of a program that is tested or measured: who starts that has no say in it."""
import os

# Torch without cached bytecode takes ten seconds longer to come up.
REMOVED = ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONDONTWRITEBYTECODE")


def clean_environment(*removed, **variables):
    """Ours without settings of Spillway and malloc, without preloaded libraries and what is
    `removed` too, and with `variables`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("SPILLWAY_") and name not in (*REMOVED, *removed)}
    kept.update(variables)
    return kept
