# The switches of the build. Asked for but impossible is an error, never a silent OFF.

option(SPILLWAY_WITH_TORCH "Build what needs LibTorch" ON)
set(SPILLWAY_WITH_CUDA AUTO CACHE STRING "Build the CUDA device: ON, OFF, or AUTO, where CUDA's headers are found")
option(SPILLWAY_WITH_IO_URING "Build the io_uring spill store" ON)
option(SPILLWAY_WITH_CLP "Build the solver of linear programs for `spillway plan --bound tight`" ON)
option(SPILLWAY_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SPILLWAY_BUILD_BENCHMARKS "Build the benchmarks" OFF)
option(SPILLWAY_BUILD_PYTHON "Build the Python module" OFF)
set(SPILLWAY_UNITY_BUILD OFF CACHE STRING "Compile the sources of a library eight at a time, a third of the time from \
nothing: ON, OFF, or PLAIN for those that include nothing of LibTorch")
set_property(CACHE SPILLWAY_UNITY_BUILD PROPERTY STRINGS ON OFF PLAIN)
option(SPILLWAY_WARNINGS_AS_ERRORS "Stop at the first compiler warning" OFF)
option(SPILLWAY_TORCH_PCH "Precompile torch/torch.h once for all units that include it" ON)
option(SPILLWAY_TEST_PCH "Precompile GoogleTest's headers once for all tests" ON)
set(SPILLWAY_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined or thread")
set(SPILLWAY_CUDA_INCLUDES "" CACHE STRING "Folder with the headers of CUDA, instead of what is found")
set(SPILLWAY_MPI_INCLUDES "" CACHE STRING "Folders with the mpi.h of an MPI, beside those that are found")
set(SPILLWAY_LIBTORCH "" CACHE STRING "Minor release of LibTorch, for example 2.15; what is found first if empty")
set(SPILLWAY_OTHER_CORES "" CACHE STRING
  "Minor releases of LibTorch that get a core too, for example 2.11;2.13, or `all`")
set(SPILLWAY_LIBTORCH_DIR "" CACHE PATH
  "Folder `torch` of an unpacked wheel, or an unpacked LibTorch")

# Stops when OPTION is on although this version has no PATH that would implement it.
function(spillway_require_code option path)
  if(${option} AND NOT EXISTS "${PROJECT_SOURCE_DIR}/${path}")
    message(FATAL_ERROR
      "${option}=ON, but this version of Spillway has no ${path}. Configure with -D${option}=OFF.")
  endif()
endfunction()

spillway_require_code(SPILLWAY_BUILD_PYTHON bindings/python)
spillway_require_code(SPILLWAY_BUILD_TESTS tests)
spillway_require_code(SPILLWAY_BUILD_BENCHMARKS benchmarks)

# Sets CMAKE_UNITY_BUILD to what SPILLWAY_UNITY_BUILD asks for in that folder.
function(spillway_set_unity_build folder)
  set(unity ${SPILLWAY_UNITY_BUILD})
  if(unity STREQUAL "PLAIN")
    set(unity ON)
    if(folder MATCHES "^(recompute|bindings/torch.*)$")
      set(unity OFF)
    endif()
  endif()
  set(CMAKE_UNITY_BUILD ${unity} PARENT_SCOPE)
endfunction()
