"""An emulated GPU for small models: pages of the smallest size, so that these have many, and matrix products that take
a workspace that stays. For CMake it is SPILLWAY_SMALL_GPU in src/cmake/SpillwayTest.cmake."""

SMALL_GPU = {"OMP_NUM_THREADS": "1", "EMU_CUDA_GRAIN": "64KiB", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
