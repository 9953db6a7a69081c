"""The environment of a program under test: nothing of it may come from who starts the tests."""
import os


def clean_environment(**variables):
    """Ours without settings of Spillway and without preloaded libraries, and with `variables`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("SPILLWAY_") and name != "LD_PRELOAD"}
    kept.update(variables)
    return kept
