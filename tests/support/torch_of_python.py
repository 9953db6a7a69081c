"""Whether a Python has a torch that a command serves."""
import subprocess


def reason_to_skip(python, command):
    """None where `python` has numpy and a torch whose minor release has a core beside `command`."""
    # To import them takes seconds, in each case.
    asks = "from importlib.metadata import version; version('numpy'); print(version('torch'))"
    probe = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=False)
    hint = "(SPILLWAY_TEST_PYTHON names another interpreter)"
    if probe.returncode != 0:
        return f"{python} has no torch and numpy: {probe.stderr.strip().rpartition(chr(10))[2]} {hint}"
    version = probe.stdout.strip()
    minor = ".".join(version.split(".")[:2])
    if not (command.parent.parent / f"lib/libspillway_core_{minor}.so").exists():
        return f"{python} has torch {version}, and there is no core for LibTorch {minor} {hint}"
    return None
