"""A memory cgroup of version 1 or 2: a place for programs that may not have all of the memory."""
import os
import pathlib
import uuid


class Unavailable(Exception):
    """Says what this machine does not allow."""


def mounted(filesystem, option=None):
    """The first mount point of a file system, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options = line.split()[:4]
        if kind == filesystem and (option is None or option in options.split(",")):
            return pathlib.Path(point)
    return None


def own_group(controller):
    """The path of this process below the mount point of a hierarchy; v2 is the empty controller."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


class MemoryGroup:
    """Made as near to the own cgroup as this user may; raises Unavailable where that fails.

    `prefix` begins its name. With `enables`, version 2 is told to count memory at its root."""

    def __init__(self, limit=None, *, prefix="spillway-test", enables=False):
        self.name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.folder = self.make_v1() or self.make_v2(enables)
        if self.folder is None:
            raise Unavailable("no memory controller of cgroup v1 or v2 is mounted for this user")
        try:
            if limit is not None:
                self.set_limit(limit)
        except Unavailable:
            self.remove()
            raise

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

    def make_v2(self, enables):
        root = mounted("cgroup2")
        own = root and root / own_group("")

        def is_usable(folder):
            given = folder / "cgroup.subtree_control"
            if not given.exists():
                return False
            if enables and folder == root:
                try:
                    given.write_text("+memory", encoding="ascii")
                except OSError:
                    return False
            return "memory" in given.read_text(encoding="ascii").split()
        return root and self.make_below([own, own.parent, root], is_usable)

    def swap_limit(self):
        """The file that keeps programs from swapping; None where the kernel does not count that."""
        for name in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
            if (self.folder / name).exists():
                return self.folder / name
        return None

    def set_limit(self, limit, swap=False):
        """With `swap`, what does not fit may go to swap; without, the kernel kills the program."""
        first_version = (self.folder / "memory.limit_in_bytes").exists()
        within = self.folder / ("memory.limit_in_bytes" if first_version else "memory.max")
        beyond = self.swap_limit()
        # In version 1 that is memory and swap together, which memory may not exceed at any time.
        values = [(beyond, -1 if first_version else "max"), (within, limit)]
        if not swap:
            values.append((beyond, limit if first_version else 0))
        for file, value in values:
            try:
                if file:
                    file.write_text(str(value), encoding="ascii")
            except OSError as error:
                raise Unavailable(f"{file} does not take {value}: {error.strerror}") from None

    def enter(self):
        """Called in a child before it becomes the program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def command(self, program):
        """`program`, started inside of the group by a shell that becomes it."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.folder / "cgroup.procs", *program]

    def processes(self):
        return (self.folder / "cgroup.procs").read_text(encoding="ascii").split()

    def remove(self):
        """Fails while a process is left in the group."""
        self.folder.rmdir()
