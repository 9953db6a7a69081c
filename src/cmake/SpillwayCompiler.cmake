# Language, warnings, sanitizers, output folders: whatever holds for every target.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# bin/spillway finds ../lib in the build tree as in the installed one.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SPILLWAY_CCACHE ccache)
  if(SPILLWAY_CCACHE)
    # A precompiled header is cached only with the two concessions. Checkouts in other folders share the cache.
    set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_NOHASHDIR=true "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${SPILLWAY_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
    set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  endif()
endif()

# ccache compares preprocessed text, and nothing that is installed tells where it was built: the folder of a checkout is
# no part of either.
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

# Linked privately by our own targets; never exported.
add_library(spillway_warnings INTERFACE)
target_compile_options(spillway_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${SPILLWAY_WARNINGS_AS_ERRORS}>:-Werror>)

# Of the tests alone, behind the build type's: their units take long to optimise (see README.md).
if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  # Both are wrong of sums of strings in GCC 12 (its bug 105651), with -O1 in more places than with -O3.
  set(SPILLWAY_TEST_FLAGS -O1 -Wno-restrict -Wno-array-bounds)
endif()

if(SPILLWAY_SANITIZE)
  add_compile_options(-fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SPILLWAY_SANITIZE})
  set(SPILLWAY_TEST_FLAGS -Og)
endif()

# LibTorch is built with the new string ABI, and std::string crosses the border. Without LibTorch, too:
# what was compiled before it was there (quickstart.sh) need not be compiled again.
add_compile_definitions(_GLIBCXX_USE_CXX11_ABI=1)
