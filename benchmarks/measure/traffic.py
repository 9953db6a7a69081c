"""A process that moves bytes on the disk beside a trainer."""
import contextlib
import json
import signal
import time

from measure import training

SECONDS_TO_START = 2
BLOCK_BYTES, FILE_BYTES = 2 << 20, 1 << 30  # In plain bytes: fio's units depend on --kb_base.


class Traffic:
    """fio that reads and writes a file past the page cache, at given bytes per second."""

    def __init__(self, folder, rates):
        self.file = folder / "spillway-traffic"
        self.rates = rates

    def words(self):
        every = ["--size", FILE_BYTES, "--bs", BLOCK_BYTES, "--direct", 1, "--ioengine", "io_uring",
                 "--iodepth", 8, "--filename", self.file, "--thread", "--refill_buffers=0"]
        flow = ["--time_based", "--runtime", "1d"]
        return ["fio", "--output-format=json", "--group_reporting",
                "--name=in", *every, *flow, "--rw=read", f"--rate={self.rates[0]:.0f}",
                "--name=out", *every, *flow, "--rw=write", f"--rate=,{self.rates[1]:.0f}"]

    @contextlib.contextmanager
    def moving(self, achieved):
        """Runs it meanwhile; appends the bytes per second that it did move, both ways together."""
        process = training.start(self.words(), training.HUGE_PAGES)
        try:
            time.sleep(SECONDS_TO_START)
            if process.poll() is not None:
                raise training.Failure(f"fio ended: {process.stdout.read()}")
            yield
            process.send_signal(signal.SIGINT)
            text = process.communicate()[0]
            jobs = json.loads(text[text.index("{"):text.rindex("}") + 1])["jobs"]
            achieved.append(sum(job[way]["bw_bytes"] for job in jobs for way in ("read", "write")))
        finally:
            training.kill_group(process)
            process.wait()

    def remove(self):
        self.file.unlink(missing_ok=True)
