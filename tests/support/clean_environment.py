"""The environment of a program that is tested or measured: who starts that has no say in it."""
import os


def clean_environment(**variables):
    """Ours without settings of Spillway and malloc and without preloaded libraries, and with
    `variables`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("SPILLWAY_") and name not in ("LD_PRELOAD", "GLIBC_TUNABLES")}
    kept.update(variables)
    return kept
