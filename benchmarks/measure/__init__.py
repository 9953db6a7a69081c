"""What the benchmarks share."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# How runs talk of budgets and steps is known there, and what surrounds them.
sys.path += [str(ROOT / "src/cmake/setup"), str(ROOT / "tests/support")]
