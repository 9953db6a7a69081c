# Finds LibTorch without its own CMake package, which drags CUDA in. Gives
#   spillway_torch             libtorch_cpu and libc10 with their headers
#   SPILLWAY_TORCH_MINOR       for example 2.11; names the core library
#   LibTorch_ROOT_DIR          the folder that holds include/ and lib/
#   LibTorch_VERSION, LibTorch_FOUND
# and no other variable to the caller.
# SPILLWAY_LIBTORCH names the minor that is wanted; without it the first that is found is taken.
# Searched in this order: SPILLWAY_LIBTORCH_DIR (variable, then environment; nothing else is tried
# when it is set), CMAKE_PREFIX_PATH, the torch of the active Python, and what fetch_libtorch.sh made:
# ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-VERSION, in the order of libtorch_versions.txt.
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

# Sets OUT to the releases that are served, as 2.11.0, oldest first.
function(spillway_served_torch out)
  file(STRINGS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/libtorch_versions.txt" lines REGEX "^[0-9]")
  list(TRANSFORM lines REPLACE " .*" "")
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Lists the folders to try, best first; of what was fetched, those of RELEASES.
function(spillway_torch_candidates releases out)
  set(candidates "")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    # torch.utils.cmake_prefix_path is <torch>/share/cmake.
    list(APPEND candidates "${prefix}" "${prefix}/torch" "${prefix}/../..")
  endforeach()
  find_program(SPILLWAY_PYTHON3 python3 NO_CACHE)
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
  foreach(release IN LISTS releases)
    list(APPEND candidates "${cache}/spillway/libtorch-${release}/torch")
  endforeach()
  set(${out} "${candidates}" PARENT_SCOPE)
endfunction()

# Accepts ROOT into the results of spillway_locate_torch, or appends the reason against it to its
# `rejected`.
macro(spillway_try_torch root)
  spillway_read_torch_version("${root}" version)
  if(version)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
    if(minor IN_LIST wanted)
      get_filename_component(found "${root}" ABSOLUTE)
      set(found_version "${version}")
    else()
      string(APPEND rejected "\n  ${root}: LibTorch ${version}")
    endif()
  endif()
endmacro()

# spillway_locate_torch(<prefix> <minors> <folder>...): sets PREFIX_ROOT and PREFIX_VERSION to the first LibTorch of
# these minors, or to nothing and PREFIX_REJECTED to what was found instead.
function(spillway_locate_torch prefix wanted)
  set(found "")
  set(found_version "")
  set(rejected "")
  foreach(folder IN LISTS ARGN)
    if(NOT found)
      spillway_try_torch("${folder}")
    endif()
  endforeach()
  set(${prefix}_ROOT "${found}" PARENT_SCOPE)
  set(${prefix}_VERSION "${found_version}" PARENT_SCOPE)
  set(${prefix}_REJECTED "${rejected}" PARENT_SCOPE)
endfunction()

# Makes TARGET of the LibTorch in ROOT.
function(spillway_import_torch target root)
  if(TARGET ${target})
    return()
  endif()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  foreach(library IN ITEMS torch_cpu c10)
    add_library(${target}_${library} SHARED IMPORTED GLOBAL)
    set_target_properties(${target}_${library} PROPERTIES
      IMPORTED_LOCATION "${root}/lib/lib${library}.so"
      IMPORTED_SONAME "lib${library}.so")
    target_link_libraries(${target} INTERFACE ${target}_${library})
  endforeach()
  target_include_directories(${target} SYSTEM INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  # Without NDEBUG the headers declare and assert what the shipped libraries were built without.
  target_compile_definitions(${target} INTERFACE NDEBUG)
endfunction()

# Sets OUT to the minors that are served, oldest first, or to the one that SPILLWAY_LIBTORCH names.
function(spillway_wanted_torch out)
  spillway_served_torch(minors)
  list(TRANSFORM minors REPLACE "\\.[0-9]+$" "")
  if(SPILLWAY_LIBTORCH)
    if(NOT SPILLWAY_LIBTORCH IN_LIST minors)
      list(JOIN minors ", " served)
      message(FATAL_ERROR "SPILLWAY_LIBTORCH=${SPILLWAY_LIBTORCH} names no minor release of LibTorch that "
        "Spillway serves: ${served}")
    endif()
    set(minors "${SPILLWAY_LIBTORCH}")
  endif()
  set(${out} "${minors}" PARENT_SCOPE)
endfunction()

function(spillway_search_torch)
  spillway_wanted_torch(minors)
  set(named "${SPILLWAY_LIBTORCH_DIR}")
  if(NOT named)
    set(named "$ENV{SPILLWAY_LIBTORCH_DIR}")
  endif()
  if(named)
    set(candidates "${named}" "${named}/torch")
  else()
    spillway_served_torch(releases)
    spillway_torch_candidates("${releases}" candidates)
  endif()
  spillway_locate_torch(best "${minors}" ${candidates})
  if(named AND NOT best_ROOT AND NOT best_REJECTED)
    set(best_REJECTED "\n  ${named}: no lib/libtorch_cpu.so with headers")
  endif()
  if(best_ROOT)
    spillway_import_torch(spillway_torch "${best_ROOT}")
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${best_VERSION}")
    set(LibTorch_ROOT_DIR "${best_ROOT}" PARENT_SCOPE)
    set(LibTorch_VERSION "${best_VERSION}" PARENT_SCOPE)
    set(SPILLWAY_TORCH_MINOR "${minor}" PARENT_SCOPE)
    set(LibTorch_FOUND TRUE PARENT_SCOPE)
    if(NOT LibTorch_FIND_QUIETLY)
      message(STATUS "LibTorch ${best_VERSION}: ${best_ROOT}")
    endif()
    return()
  endif()
  set(LibTorch_FOUND FALSE PARENT_SCOPE)
  if(best_REJECTED)
    set(best_REJECTED " Found, but of no use:${best_REJECTED}\n")
  endif()
  list(JOIN minors ", " wanted)
  if(SPILLWAY_LIBTORCH)
    string(APPEND wanted " (SPILLWAY_LIBTORCH)")
  endif()
  set(reason "Spillway needs LibTorch ${wanted}.${best_REJECTED}")
  set(LibTorch_NOT_FOUND_MESSAGE "${reason}" PARENT_SCOPE)
  if(LibTorch_FIND_REQUIRED)
    list(GET minors -1 newest)
    message(FATAL_ERROR "${reason} "
      "Fetch it with src/cmake/setup/fetch_libtorch.sh ${newest}, or set SPILLWAY_LIBTORCH_DIR to the folder "
      "`torch` of an unpacked wheel, or configure with -DSPILLWAY_WITH_TORCH=OFF.")
  endif()
endfunction()

spillway_search_torch()
