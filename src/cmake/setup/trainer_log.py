"""What the example trainers print."""
import re

# One line per step, as soon as it has ended.
STEP = re.compile(r"^step (?P<number>\d+) +loss (?P<loss>\S+) +(?P<seconds>[0-9.]+) s/step",
                  re.MULTILINE)
