# Finds LibTorch without its own CMake package, which drags CUDA in. Gives
#   spillway_torch             libtorch_cpu and libc10 with their headers
#   SPILLWAY_TORCH_MINOR       for example 2.11; names the core library
#   LibTorch_ROOT_DIR          the folder that holds include/ and lib/
#   LibTorch_VERSION, LibTorch_FOUND
# and no other variable to the caller.
# Searched in this order: SPILLWAY_LIBTORCH_DIR (variable, then environment; nothing else is tried
# when it is set), CMAKE_PREFIX_PATH, the torch of the active Python, and what fetch_libtorch.sh made:
# ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-2.11.0.
# Part of the installed package too.

# Sets OUT to the version in the headers below ROOT, or to nothing when ROOT holds no LibTorch.
function(spillway_read_torch_version root out)
  set(${out} "" PARENT_SCOPE)
  if(NOT EXISTS "${root}/lib/libtorch_cpu.so")
    return()
  endif()
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines REGEX "TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      if(lines MATCHES "MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+)")
        set(${out} "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# Lists the folders to try, best first.
function(spillway_torch_candidates out)
  set(candidates "")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    # torch.utils.cmake_prefix_path is <torch>/share/cmake.
    list(APPEND candidates "${prefix}" "${prefix}/torch" "${prefix}/../..")
  endforeach()
  find_program(SPILLWAY_PYTHON3 python3)
  mark_as_advanced(SPILLWAY_PYTHON3)
  if(SPILLWAY_PYTHON3)
    execute_process(
      COMMAND "${SPILLWAY_PYTHON3}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE from_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(from_python)
      list(APPEND candidates "${from_python}")
    endif()
  endif()
  set(cache "$ENV{XDG_CACHE_HOME}")
  if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
  endif()
  list(APPEND candidates "${cache}/spillway/libtorch-2.11.0/torch")
  set(${out} "${candidates}" PARENT_SCOPE)
endfunction()

# Accepts ROOT into the results of spillway_search_torch, or appends the reason against it to its
# `rejected`.
macro(spillway_try_torch root)
  spillway_read_torch_version("${root}" version)
  if(version)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
    if(minor IN_LIST supported)
      get_filename_component(LibTorch_ROOT_DIR "${root}" ABSOLUTE)
      set(LibTorch_VERSION "${version}")
      set(SPILLWAY_TORCH_MINOR "${minor}")
    else()
      string(APPEND rejected "\n  ${root}: LibTorch ${version}, not supported")
    endif()
  endif()
endmacro()

function(spillway_import_torch)
  if(TARGET spillway_torch)
    return()
  endif()
  foreach(library IN ITEMS c10 torch_cpu)
    add_library(spillway_${library} SHARED IMPORTED GLOBAL)
    set_target_properties(spillway_${library} PROPERTIES
      IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/lib${library}.so"
      IMPORTED_SONAME "lib${library}.so")
  endforeach()
  add_library(spillway_torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(spillway_torch SYSTEM INTERFACE
    "${LibTorch_ROOT_DIR}/include"
    "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  # Without NDEBUG the headers declare and assert what the shipped libraries were built without.
  target_compile_definitions(spillway_torch INTERFACE NDEBUG)
  target_link_libraries(spillway_torch INTERFACE spillway_torch_cpu spillway_c10)
endfunction()

function(spillway_search_torch)
  set(supported 2.11)
  set(rejected "")
  set(LibTorch_ROOT_DIR "")
  set(named "${SPILLWAY_LIBTORCH_DIR}")
  if(NOT named)
    set(named "$ENV{SPILLWAY_LIBTORCH_DIR}")
  endif()
  if(named)
    spillway_try_torch("${named}")
    if(NOT LibTorch_ROOT_DIR)
      spillway_try_torch("${named}/torch")
    endif()
    if(NOT LibTorch_ROOT_DIR AND NOT rejected)
      set(rejected "\n  ${named}: no lib/libtorch_cpu.so with headers")
    endif()
  else()
    spillway_torch_candidates(candidates)
    foreach(candidate IN LISTS candidates)
      if(NOT LibTorch_ROOT_DIR)
        spillway_try_torch("${candidate}")
      endif()
    endforeach()
  endif()

  if(LibTorch_ROOT_DIR)
    spillway_import_torch()
    foreach(result IN ITEMS LibTorch_ROOT_DIR LibTorch_VERSION SPILLWAY_TORCH_MINOR)
      set(${result} "${${result}}" PARENT_SCOPE)
    endforeach()
    set(LibTorch_FOUND TRUE PARENT_SCOPE)
    if(NOT LibTorch_FIND_QUIETLY)
      message(STATUS "LibTorch ${LibTorch_VERSION}: ${LibTorch_ROOT_DIR}")
    endif()
    return()
  endif()
  set(LibTorch_FOUND FALSE PARENT_SCOPE)
  if(rejected)
    set(rejected " Found, but of no use:${rejected}\n")
  endif()
  set(reason "Spillway needs LibTorch ${supported}.${rejected}")
  set(LibTorch_NOT_FOUND_MESSAGE "${reason}" PARENT_SCOPE)
  if(LibTorch_FIND_REQUIRED)
    message(FATAL_ERROR "${reason} "
      "Fetch it with src/cmake/setup/fetch_libtorch.sh, or set SPILLWAY_LIBTORCH_DIR to the folder "
      "`torch` of an unpacked wheel, or configure with -DSPILLWAY_WITH_TORCH=OFF.")
  endif()
endfunction()

spillway_search_torch()
