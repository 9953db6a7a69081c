"""Places that a run is put into: a memory cgroup, a small disk; and what a process has open.

Each of them raises Unavailable with the reason where this machine does not allow it.
"""
import os
import pathlib
import shutil
import subprocess
import uuid


class Unavailable(Exception):
    """Says what this machine does not allow."""


def mounted(filesystem, option=None):
    """The first mount point of a file system, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options = line.split()[:4]
        if kind == filesystem and (option is None or option in options.split(",")):
            return pathlib.Path(point)
    return None


def own_group(controller):
    """The path of this process below the mount point of a hierarchy; v2 is the empty controller."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


class MemoryGroup:
    """A memory cgroup of version 1 or 2, without swap, removed at the end."""

    def __init__(self, limit):
        self.name = f"spillway-test-{uuid.uuid4().hex[:12]}"
        self.folder = self.make_v1() or self.make_v2()
        if self.folder is None:
            raise Unavailable("no memory controller of cgroup v1 or v2 is mounted for this user")
        try:
            self.set_limit(limit)
        except OSError as error:
            self.remove()
            raise Unavailable(f"a memory cgroup takes no limit: {error}") from None

    def make_below(self, folders, is_usable):
        for folder in folders:
            if not is_usable(folder):
                continue
            try:
                (folder / self.name).mkdir()
            except OSError:
                continue
            return folder / self.name
        return None

    def make_v1(self):
        root = mounted("cgroup", "memory")
        return root and self.make_below([root / own_group("memory"), root],
                                        lambda folder: (folder / "memory.limit_in_bytes").exists())

    def make_v2(self):
        root = mounted("cgroup2")
        own = root and root / own_group("")

        def is_usable(folder):
            given = folder / "cgroup.subtree_control"
            return given.exists() and "memory" in given.read_text().split()
        return root and self.make_below([own, own.parent, root], is_usable)

    def set_limit(self, limit):
        if (self.folder / "memory.max").exists():
            (self.folder / "memory.max").write_text(str(limit))
            if (self.folder / "memory.swap.max").exists():
                (self.folder / "memory.swap.max").write_text("0")
            return
        (self.folder / "memory.limit_in_bytes").write_text(str(limit))
        with_swap = self.folder / "memory.memsw.limit_in_bytes"
        if with_swap.exists():
            with_swap.write_text(str(limit))

    def enter(self):
        """Called in a child before it becomes the program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def processes(self):
        return (self.folder / "cgroup.procs").read_text().split()

    def remove(self):
        """Fails while a process is left in the group."""
        self.folder.rmdir()


class SmallDisk:
    """A real file system of a given size: ext4 in a file, behind a loop device."""

    def __init__(self, folder, size):
        self.point = folder / "small"
        self.point.mkdir()
        image = folder / "image"
        with open(image, "wb") as file:
            file.truncate(size)
        if os.geteuid() != 0:
            raise Unavailable("mounting a small file system needs root")
        maker = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if maker is None:
            raise Unavailable("mkfs.ext4 is not installed")
        for command in ([maker, "-q", "-F", "-m", "0", image],
                        ["mount", "-o", "loop", image, self.point]):
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode != 0:
                raise Unavailable(f"{command[0]}: {outcome.stderr.strip()}")

    def free(self):
        state = os.statvfs(self.point)
        return state.f_bavail * state.f_frsize

    def fill(self, left):
        """Leaves about `left` bytes."""
        with open(self.point / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, self.free() - left)

    def remove(self):
        """Fails while somebody has a file open there."""
        subprocess.run(["umount", self.point], check=True)


def unnamed_files(process_id, folder):
    """Bytes on disk of each file without a name that a process has open in a folder."""
    sizes = []
    for entry in pathlib.Path(f"/proc/{process_id}/fd").iterdir():
        try:
            target = os.readlink(entry)
            if target.startswith(f"{folder}/") and target.endswith(" (deleted)"):
                sizes.append(os.stat(entry).st_blocks * 512)
        except FileNotFoundError:
            continue
    return sizes
