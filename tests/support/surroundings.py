"""A small disk that a run is put on, and what a process has open."""
import os
import pathlib
import shutil
import subprocess

from memory_group import Unavailable


class SmallDisk:
    """A real file system of a given size: ext4 in a file, behind a loop device.

    Raises Unavailable with the reason where this machine does not allow it."""

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
    sizes = {}
    # Each thread may have descriptors of its own.
    for entry in pathlib.Path(f"/proc/{process_id}/task").glob("*/fd/*"):
        try:
            target = os.readlink(entry)
            if target.startswith(f"{folder}/") and target.endswith(" (deleted)"):
                sizes[target] = os.stat(entry).st_blocks * 512
        except FileNotFoundError:
            continue
    return list(sizes.values())
