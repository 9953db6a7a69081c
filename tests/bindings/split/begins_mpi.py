"""Starts MPICH, as mpi4py does where it is imported first: alone it tells how many ranks there are;
python3 begins_mpi.py SCRIPT WORD... goes on with a script, and MPI ends with Python."""
import ctypes
import runpy
import sys


def open_mpich():
    for name in ("libmpi.so.12", "libmpich.so.12"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            break
        except OSError as error:
            missing = error
    else:
        raise missing
    return ctypes.CDLL(None)  # As a library finds it that is linked with it.


def main():
    mpi = open_mpich()
    multiple, world, ranks = 3, 0x44000000, ctypes.c_int()
    mpi.MPI_Init_thread(None, None, multiple, ctypes.byref(ctypes.c_int()))
    mpi.MPI_Comm_size(world, ctypes.byref(ranks))
    if len(sys.argv) == 1:
        print("ranks:", ranks.value, flush=True)
        mpi.MPI_Finalize()
        return
    ctypes.pythonapi.Py_AtExit(mpi.MPI_Finalize)
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
