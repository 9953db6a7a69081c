"""What was measured on: processor, memory, disk, kernel, and how busy it was."""
import datetime
import os
import pathlib
import platform
import re
import subprocess

UNKNOWN = "unknown"


def first_line(path, fallback=UNKNOWN):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return fallback


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_bytes():
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    return int(re.search(r"MemTotal:\s+(\d+) kB", text).group(1)) * 1024


def file_system(directory):
    found = subprocess.run(["findmnt", "-no", "FSTYPE,SOURCE", "-T", str(directory)],
                           capture_output=True, text=True, check=False).stdout.split()
    return f"{found[0]} on {pathlib.Path(found[1]).name}" if len(found) == 2 else UNKNOWN


def load():
    return round(os.getloadavg()[0], 2)


def describe(directory):
    """A record for the file of results. No names of hosts or people in it."""
    return {"date": datetime.date.today().isoformat(), "processor": processor(),
            "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory_bytes() / 2**30, 1),
            "kernel": re.match(r"[0-9.]*[0-9]", platform.release()).group(), "disk": file_system(directory),
            "huge_pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            "load_at_start": load()}


def sentence(record):
    """The same in words."""
    return (f"{record['date']}: {record['processor']}, {record['cores']} cores, "
            f"{record['memory_gib']} GiB, Linux {record['kernel']}, {record['disk']}, transparent "
            f"huge pages {record['huge_pages']}; load average {record['load_at_start']} at the "
            f"start, {record.get('load_at_end', UNKNOWN)} at the end.")
