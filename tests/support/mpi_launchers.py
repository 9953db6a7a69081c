"""What starts the ranks of each MPI, by a name that is its own.

Several MPIs share the names mpiexec and mpirun; which of them these mean differs between machines."""
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess

LAUNCHERS = {"MPICH": ("mpiexec.mpich", "mpiexec.hydra"), "Open MPI": ("mpiexec.openmpi", "orterun")}

# What Open MPI has to be told, as root and for more ranks than cores. MPICH passes over it.
RANKS_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1"}
PATIENCE_SECONDS = 240  # Of a loaded machine.


def mpi_launcher(case, mpi):
    """The path of a launcher. Skips the case where that MPI is not installed."""
    for name in LAUNCHERS[mpi]:
        path = shutil.which(name)
        if path is not None:
            return path
    return case.skipTest(f"{mpi} is not installed ({' or '.join(LAUNCHERS[mpi])})")


class MpiJob:
    """Ranks that an MPI starts by the words behind its launcher's name, and what they write."""

    def __init__(self, case, mpi, *words, **variables):
        environment = {**os.environ, **RANKS_ALLOWED, **variables}
        self.process = subprocess.Popen(
            [mpi_launcher(case, mpi), *words], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        case.addCleanup(self.kill)

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stdout.close()
        self.process.wait()

    def end(self):
        """Its exit status, and what it has written since."""
        output, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output

    def processes(self, ranks):
        """Descriptors of the processes of all ranks, once each has written "pid NUMBER rank NUMBER;". One that a
        launcher has waited for already has none."""
        text, pids = "", {}
        while len(pids) < ranks:  # Lines of several ranks may become one.
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError("the job ended before all ranks had come: " + text)
            text += line
            pids = {int(rank): int(pid) for pid, rank in re.findall(r"pid (\d+) rank (\d+);", text)}
        descriptors = {}
        for rank, pid in pids.items():
            with contextlib.suppress(ProcessLookupError):
                descriptors[rank] = os.pidfd_open(pid)
        return descriptors


def wait_until_gone(descriptors):
    """The ranks that stay. Closes the descriptors."""
    stayed = []
    for rank, descriptor in descriptors.items():
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(PATIENCE_SECONDS * 1000):
            stayed.append(rank)
        os.close(descriptor)
    return stayed
