"""A memory cgroup and a swap file, each gone again when its `with` ends."""
import contextlib
import os
import subprocess
import time

from measure.training import Failure
from memory_group import MemoryGroup, Unavailable

PREFIX = "spillway-against-the-kernel"


def remove(group):
    # A killed process may take a moment to leave.
    for _ in range(100):
        try:
            group.remove()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
    print(f"left behind: {group.folder}; remove it with rmdir")


@contextlib.contextmanager
def memory_group():
    try:
        group = MemoryGroup(prefix=PREFIX, enables=True)
        try:
            if group.swap_limit() is None:
                raise Failure(f"{group.folder} has no limit for swap: boot with swapaccount=1")
            yield group
        finally:
            remove(group)
    except Unavailable as reason:
        raise Failure(f"{reason}; this benchmark needs root and the memory controller") from None


def call(*command):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")


@contextlib.contextmanager
def swap_file(folder, size):
    """A swap file that the kernel uses while inside."""
    path = folder / f"{PREFIX}-{os.getpid()}.swap"
    active = False
    try:
        with open(path, "xb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.posix_fallocate(file.fileno(), 0, size)
        call("/sbin/mkswap", path)
        call("/sbin/swapon", path)
        active = True
        yield path
    finally:
        try:
            if active:
                call("/sbin/swapoff", path)
        finally:
            path.unlink(missing_ok=True)
