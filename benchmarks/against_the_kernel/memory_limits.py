"""Memory cgroups of both versions, and a swap file, each gone again when its `with` ends."""
import contextlib
import os
import pathlib
import subprocess
import time

from measure.training import Failure

ROOT = pathlib.Path("/sys/fs/cgroup")
UNLIMITED_V1 = "-1"


def write(path, text):
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        raise Failure(f"cannot write '{text}' to {path}: {error.strerror}; "
                      "this benchmark needs root and the memory controller") from None


class MemoryGroup:
    """A cgroup for one run at a time: `limit` bytes of memory, with or without swap."""

    def __init__(self, name):
        self.first_version = (ROOT / "memory/memory.limit_in_bytes").exists()
        parent = ROOT / "memory" if self.first_version else ROOT
        if not self.first_version:
            self.enable_controller(parent)
        self.folder = parent / name
        try:
            self.folder.mkdir()
        except OSError as error:
            raise Failure(f"cannot make {self.folder}: {error.strerror}; "
                          "this benchmark needs root") from None

    def enable_controller(self, parent):
        enabled = parent / "cgroup.subtree_control"
        if not enabled.exists():
            raise Failure(f"no memory controller of either version below {ROOT}")
        if "memory" not in enabled.read_text(encoding="ascii").split():
            write(enabled, "+memory")

    def set_limit(self, limit, swap):
        """With `swap`, what does not fit may go to swap; without, the kernel kills the program."""
        if not self.first_version:
            write(self.folder / "memory.max", str(limit))
            write(self.folder / "memory.swap.max", "max" if swap else "0")
            return
        both = self.folder / "memory.memsw.limit_in_bytes"
        if not both.exists():
            raise Failure(f"{both} does not exist: boot with swapaccount=1")
        # Memory may never be allowed more than memory and swap together, so one is lifted first.
        write(both, UNLIMITED_V1)
        write(self.folder / "memory.limit_in_bytes", str(limit))
        if not swap:
            write(both, str(limit))

    def command(self, program):
        """`program`, started inside of the group by a shell that becomes it."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.folder / "cgroup.procs", *program]

    def remove(self):
        # A killed process may take a moment to leave.
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
        print(f"left behind: {self.folder}; remove it with rmdir")


@contextlib.contextmanager
def memory_group():
    group = MemoryGroup(f"spillway-against-the-kernel-{os.getpid()}")
    try:
        yield group
    finally:
        group.remove()


def call(*command):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")


@contextlib.contextmanager
def swap_file(folder, size):
    """A swap file that the kernel uses while inside."""
    path = folder / f"spillway-against-the-kernel-{os.getpid()}.swap"
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
