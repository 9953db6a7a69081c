"""The label `slow` of ctest for cases in Python: see spillway_add_python_test."""


def slow(case):
    """Marks a class or a method that `test.sh` leaves out and `test.sh --slow` runs."""
    return case
