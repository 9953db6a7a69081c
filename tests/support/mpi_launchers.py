"""What starts the ranks of each MPI, by a name that is its own.

Several MPIs share the names mpiexec and mpirun; which of them these mean differs between machines."""
import shutil

LAUNCHERS = {"MPICH": ("mpiexec.mpich", "mpiexec.hydra"), "Open MPI": ("mpiexec.openmpi", "orterun")}

# What Open MPI has to be told, as root and for more ranks than cores. MPICH passes over it.
RANKS_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def mpi_launcher(case, mpi):
    """The path of a launcher. Skips the case where that MPI is not installed."""
    for name in LAUNCHERS[mpi]:
        path = shutil.which(name)
        if path is not None:
            return path
    return case.skipTest(f"{mpi} is not installed ({' or '.join(LAUNCHERS[mpi])})")
