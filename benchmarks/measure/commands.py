"""Commands that are measured from outside: what they print, their processor time and their memory."""
import dataclasses
import json
import subprocess
import sys

from measure import training

TIME_LIMIT_SECONDS = 240
MEMORY_LIMIT_BYTES = 6 << 30
LIMITS = f"{TIME_LIMIT_SECONDS} s of wall time or {MEMORY_LIMIT_BYTES >> 30} GiB"
OUT_OF_MEMORY = "bad_alloc"

# Started between this script and a command: a child counts its parent's memory from before exec as its own,
# and this script with matplotlib has more than most commands.
BETWEEN = """
import json, resource, subprocess, sys
try:
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    done = subprocess.run(sys.argv[3:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=float(sys.argv[1]), check=False)
    status, output = done.returncode, done.stdout
except subprocess.TimeoutExpired:
    status, output = None, ""
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"status": status, "output": output, "memory_bytes": usage.ru_maxrss * 1024,
                  "processor_seconds": usage.ru_utime + usage.ru_stime}))
"""


@dataclasses.dataclass
class Child:
    """What a command took: processor time, because others may run beside it, and memory of its own."""

    status: int  # None: it was ended at the time limit
    output: str
    memory_bytes: int
    processor_seconds: float

    @staticmethod
    def run(command):
        words = [sys.executable, "-I", "-S", "-c", BETWEEN, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES, *command]
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True)
        return Child(**json.loads(done.stdout))

    def over(self, what):
        """Which limit it ran into, if one; fails where it went wrong otherwise."""
        if self.status is None:
            return f"more than {TIME_LIMIT_SECONDS} s"
        if OUT_OF_MEMORY in self.output:
            return f"more than {MEMORY_LIMIT_BYTES >> 30} GiB"
        if self.status != 0:
            raise training.Failure(f"{what}: exit status {self.status}\n{self.output}")
        return None
