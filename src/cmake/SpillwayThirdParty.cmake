# Finds what Debian provides and gives each library one imported target:
#   nlohmann_json::nlohmann_json  spdlog::spdlog  CLI11::CLI11  hwloc::hwloc  liburing::liburing
#   xxhash::xxhash  coinor::clp
# Part of the installed package too, because static libraries name these targets when linked.

# Makes the imported target TARGET from HEADER and LIBRARY; PACKAGE is what Debian calls it.
function(spillway_find_library_pair target header library package)
  if(TARGET ${target})
    return()
  endif()
  string(MAKE_C_IDENTIFIER "${target}" id)
  find_path(SPILLWAY_${id}_INCLUDE ${header})
  find_library(SPILLWAY_${id}_LIBRARY ${library})
  mark_as_advanced(SPILLWAY_${id}_INCLUDE SPILLWAY_${id}_LIBRARY)
  if(NOT SPILLWAY_${id}_INCLUDE OR NOT SPILLWAY_${id}_LIBRARY)
    message(FATAL_ERROR
      "${header} and lib${library} were not found. On Debian: apt-get install ${package}")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${SPILLWAY_${id}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SPILLWAY_${id}_INCLUDE}")
endfunction()

# find_package with a sentence that says what to install.
macro(spillway_find_config package debian_package)
  find_package(${package} CONFIG QUIET GLOBAL)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR
      "The CMake package ${package} was not found. On Debian: apt-get install ${debian_package}")
  endif()
endmacro()

find_package(Threads REQUIRED)
spillway_find_config(nlohmann_json nlohmann-json3-dev)
spillway_find_config(spdlog libspdlog-dev)
spillway_find_library_pair(hwloc::hwloc hwloc.h hwloc libhwloc-dev)
spillway_find_library_pair(xxhash::xxhash xxhash.h xxhash libxxhash-dev)
if(SPILLWAY_WITH_CLP)
  set(clp_package "coinor-libclp-dev (or configure with -DSPILLWAY_WITH_CLP=OFF)")
  spillway_find_library_pair(coinor::clp coin/ClpSimplex.hpp Clp "${clp_package}")
  spillway_find_library_pair(coinor::utils coin/CoinPragma.hpp CoinUtils "${clp_package}")
  set_property(TARGET coinor::clp PROPERTY INTERFACE_LINK_LIBRARIES coinor::utils)
endif()
if(SPILLWAY_WITH_IO_URING)
  spillway_find_library_pair(liburing::liburing liburing.h uring
    "liburing-dev (or configure with -DSPILLWAY_WITH_IO_URING=OFF)")
endif()
if(PROJECT_NAME STREQUAL "Spillway")
  spillway_find_config(CLI11 libcli11-dev)
endif()
