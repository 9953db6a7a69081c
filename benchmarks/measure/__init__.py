"""What the benchmarks share."""
import pathlib
import sys

# How runs talk of budgets and steps is known there.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "src/cmake/setup"))
