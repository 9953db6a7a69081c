# spillway_find_cuda_part(<folder variable> <reason variable>): the folder with torch/lib/libtorch_cuda.so of this
# build's LibTorch and with nvidia/cu13/include, or else the reason why nothing can be tested on an emulated CUDA.
function(spillway_find_cuda_part folder reason)
  set(${folder} "" PARENT_SCOPE)
  if(NOT SPILLWAY_WITH_TORCH)
    set(${reason} "SPILLWAY_WITH_TORCH is OFF" PARENT_SCOPE)
    return()
  endif()
  if(SPILLWAY_SANITIZE)
    set(${reason} "SPILLWAY_SANITIZE is set" PARENT_SCOPE)
    return()
  endif()
  if(NOT SPILLWAY_TORCH_MINOR STREQUAL "2.11")
    set(${reason} "it is there for LibTorch 2.11, not ${SPILLWAY_TORCH_MINOR}" PARENT_SCOPE)
    return()
  endif()
  # Beside what fetch_libtorch.sh made, or a whole wheel with NVIDIA's headers beside it.
  get_filename_component(site "${LibTorch_ROOT_DIR}" DIRECTORY)
  foreach(candidate IN ITEMS "${site}-cuda" "${site}")
    if(EXISTS "${candidate}/torch/lib/libtorch_cuda.so"
        AND EXISTS "${candidate}/nvidia/cu13/include/crt/host_defines.h")
      set(${folder} "${candidate}" PARENT_SCOPE)
      set(${reason} "" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${reason} "LibTorch's CUDA part is not in ${site}-cuda; src/cmake/setup/fetch_libtorch.sh --cuda 2.11 fetches it"
    PARENT_SCOPE)
endfunction()
