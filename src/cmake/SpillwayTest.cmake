# spillway_add_test(<name> SOURCES <file>... [DEPENDS <target>...] [LABELS <label>...]
#                   [ENVIRONMENT <VAR=value>...] [TIMEOUT <seconds>] [RUN_SERIAL] [NO_PCH] [OWN_PROCESSES])
#
# One GoogleTest executable spillway_<name>_test, one ctest case per test, named <name>.<Suite>.<case>.
# Without LABELS the label is `unit`; the labels in use are unit, conformance, equality, life_cycle, stress, slow,
# cuda-emulated, gpu. `test.sh` leaves those out that have `slow` among them.
# RUN_SERIAL is for cases that need the machine alone; stress implies it.
# NO_PCH is for targets that link LibTorch (see SpillwayPch.cmake).
# Tests find a folder `texts` beside them (tests/support/golden_folder.h).
# OWN_PROCESSES is for cases that change what later ones in their process find.

if(SPILLWAY_BUILD_TESTS)
  find_package(GTest CONFIG QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest was not found. On Debian: apt-get install libgtest-dev "
      "libgmock-dev (or configure with -DSPILLWAY_BUILD_TESTS=OFF)")
  endif()
  include(GoogleTest)
  find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    message(FATAL_ERROR "Python 3.9 or later was not found. On Debian: apt-get install python3 "
      "(or configure with -DSPILLWAY_BUILD_TESTS=OFF)")
  endif()
endif()

# spillway_discover_cases(<target> <prefix> [PROPERTIES <name> <value>...] [ENVIRONMENT <VAR=value>...])
#
# A ctest case per test of the executable, named <prefix>.<Suite>.<case>. One executable may have several prefixes.
# With sanitizers it is one for all, <prefix>.cases, unless OWN_PROCESSES are asked for: to start a process takes
# longer there than most tests.
function(spillway_discover_cases target prefix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "OWN_PROCESSES" "" "PROPERTIES;ENVIRONMENT")
  if(SPILLWAY_SANITIZE AND NOT arg_OWN_PROCESSES)
    add_test(NAME ${prefix}.cases COMMAND ${target})
    # What takes longest begins first.
    get_target_property(sources ${target} SOURCES)
    list(LENGTH sources cost)
    set_tests_properties(${prefix}.cases PROPERTIES ${arg_PROPERTIES} TIMEOUT 1800 COST ${cost}
      ENVIRONMENT "${arg_ENVIRONMENT}")
    return()
  endif()
  gtest_discover_tests(${target}
    TEST_PREFIX "${prefix}."
    TEST_LIST ${prefix}_cases
    NO_PRETTY_TYPES
    NO_PRETTY_VALUES
    DISCOVERY_TIMEOUT 120
    PROPERTIES ${arg_PROPERTIES})
  # Among those properties it would lose all variables but the first.
  if(arg_ENVIRONMENT)
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${prefix}_environment.cmake")
    file(GENERATE OUTPUT "${file}" CONTENT "if(${prefix}_cases)
  set_tests_properties(\${${prefix}_cases} PROPERTIES ENVIRONMENT [==[${arg_ENVIRONMENT}]==])
endif()
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
  endif()
endfunction()

function(spillway_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RUN_SERIAL;NO_PCH;OWN_PROCESSES" "TIMEOUT"
    "SOURCES;DEPENDS;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "spillway_add_test(${name}) has unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "spillway_add_test(${name}) needs SOURCES")
  endif()
  foreach(dependency IN LISTS arg_DEPENDS)
    if(NOT TARGET ${dependency})
      message(FATAL_ERROR "spillway_add_test(${name}) DEPENDS ${dependency}, which is not defined")
    endif()
  endforeach()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  if("stress" IN_LIST arg_LABELS)
    set(arg_RUN_SERIAL TRUE)
  endif()

  set(target spillway_${name}_test)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_DEPENDS} GTest::gmock_main spillway_warnings)
  target_compile_options(${target} PRIVATE ${SPILLWAY_TEST_FLAGS})
  if(IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/texts")
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/golden_folder.cpp")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/support/golden_folder.cpp" PROPERTIES
      COMPILE_DEFINITIONS "SPILLWAY_TEST_GOLDEN=\"${CMAKE_CURRENT_SOURCE_DIR}/texts\""
      SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(NOT arg_NO_PCH)
    spillway_use_test_pch(${target})
  endif()
  set(properties LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if(arg_RUN_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(SPILLWAY_SANITIZE MATCHES "thread")
    list(APPEND arg_ENVIRONMENT "TSAN_OPTIONS=history_size=7 second_deadlock_stack=1 \
suppressions=${PROJECT_SOURCE_DIR}/tests/thread_sanitizer_debt.txt")
  endif()
  set(processes "")
  if(arg_OWN_PROCESSES)
    set(processes OWN_PROCESSES)
  endif()
  spillway_discover_cases(${target} ${name} ${processes} PROPERTIES ${properties} ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()

# An emulated GPU for small models; for tests in Python it is tests/support/small_gpu.py.
set(SPILLWAY_SMALL_GPU OMP_NUM_THREADS=1 EMU_CUDA_GRAIN=64KiB CUBLAS_WORKSPACE_CONFIG=:16:8)

# spillway_on_emulated_cuda(<name> <variant> [<VAR=value>...])
#
# The cases of spillway_<name>_test, which run on the GPU that they find, once more on the emulated one, in these
# surroundings, named <name>_<variant>.<Suite>.<case>.
function(spillway_on_emulated_cuda name variant)
  add_dependencies(spillway_${name}_test spillway_emulated_driver)
  spillway_discover_cases(spillway_${name}_test ${name}_${variant}
    PROPERTIES LABELS cuda-emulated TIMEOUT 600
    ENVIRONMENT LD_LIBRARY_PATH=$<TARGET_FILE_DIR:spillway_emulated_cudart> ${ARGN})
endfunction()

# spillway_add_python_test(<name> SOURCE <file> [LABELS <label>...] [ENVIRONMENT <VAR=value>...])
#
# One ctest case per method of a unittest file that needs the standard library alone, named
# <name>.<Class>.<method>. PYTHONPATH names the folder of the file and tests/support. skipTest skips
# the ctest case too. `@slow` before a class or a method (tests/support/slow_cases.py) adds that label.
function(spillway_add_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE;TIMEOUT" "LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCE)
    message(FATAL_ERROR
      "spillway_add_python_test(${name}) needs SOURCE, and knows nothing of: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${arg_SOURCE}")
  get_filename_component(module "${arg_SOURCE}" NAME_WE)
  file(STRINGS "${arg_SOURCE}" lines REGEX "^(class [A-Za-z]+|    def [a-z0-9_]+| *@slow$)")
  set(count 0)
  set(class_label "")
  set(label "")
  foreach(line IN LISTS lines)
    if(line MATCHES "@slow$")
      set(label slow)
    elseif(line MATCHES "^class ([A-Za-z]+)")
      set(class "${CMAKE_MATCH_1}")
      set(class_label ${label})
      set(label "")
    elseif(line MATCHES "def (test_[a-z0-9_]+)")
      set(method "${CMAKE_MATCH_1}")
      string(REGEX REPLACE "^test_" "" sentence "${method}")
      set(case "${name}.${class}.${sentence}")
      set(labels ${arg_LABELS} ${class_label} ${label})
      add_test(NAME ${case}
        COMMAND "${Python3_EXECUTABLE}" -B -m unittest -v ${module}.${class}.${method})
      set_tests_properties(${case} PROPERTIES
        LABELS "${labels}" TIMEOUT ${arg_TIMEOUT}
        SKIP_REGULAR_EXPRESSION "OK \\(skipped="
        ENVIRONMENT
          "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}:${PROJECT_SOURCE_DIR}/tests/support;${arg_ENVIRONMENT}")
      set(label "")
      math(EXPR count "${count} + 1")
    elseif(label)
      message(FATAL_ERROR "spillway_add_python_test(${name}): ${arg_SOURCE} has @slow before what is no test: ${line}")
    endif()
  endforeach()
  if(count EQUAL 0)
    message(FATAL_ERROR "spillway_add_python_test(${name}): ${arg_SOURCE} has no method test_...")
  endif()
endfunction()

# spillway_start_by_mpi(<variable> <target>...)
#
# For programs that tests start as ranks of an MPI: builds its modules before them, and leaves in <variable> the
# environment for spillway_add_python_test. SPILLWAY_TEST_SHIMS names the modules that could be built.
function(spillway_start_by_mpi variable)
  set(shims "")
  foreach(mpi IN ITEMS mpich openmpi)
    if(TARGET spillway_mpi_${mpi})
      list(APPEND shims ${mpi})
      foreach(program IN LISTS ARGN)
        add_dependencies(${program} spillway_mpi_${mpi})
      endforeach()
    endif()
  endforeach()
  list(JOIN shims "," shims)
  set(environment SPILLWAY_TEST_SHIMS=${shims})
  # MPIs leave memory behind, of modules that they have closed, which no suppression can name any more.
  if(SPILLWAY_SANITIZE MATCHES "address")
    list(APPEND environment ASAN_OPTIONS=detect_leaks=0)
  endif()
  # UCX, of MPICH, redirects calls for memory, also at a moment when the sanitizer has let go of the thread.
  if(SPILLWAY_SANITIZE MATCHES "thread")
    list(APPEND environment UCX_MEM_EVENTS=no
      TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/thread_sanitizer_debt.txt)
  endif()
  set(${variable} "${environment}" PARENT_SCOPE)
endfunction()
