# spillway_use_test_pch(<target>)
#
# Lets a test share one precompiled copy of GoogleTest's headers. A no-op when SPILLWAY_TEST_PCH is
# OFF. The compiler takes the copy only under equal flags, so a target that links LibTorch, and with
# it gets NDEBUG in every build type, cannot share it. A no-op too where warnings are errors: GCC 12
# forgets in the copy which warnings the standard library's headers suppress. Sources still include
# what they use.

function(spillway_use_test_pch target)
  if(NOT SPILLWAY_TEST_PCH OR SPILLWAY_WARNINGS_AS_ERRORS)
    return()
  endif()
  if(NOT TARGET spillway_test_pch)
    set(source "${PROJECT_BINARY_DIR}/test_pch.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "// Carries the precompiled headers of GoogleTest.\n")
    add_library(spillway_test_pch OBJECT "${source}")
    target_link_libraries(spillway_test_pch PRIVATE GTest::gmock_main spillway_warnings)
    # Flags of an executable: of its own an object library would get -fPIC.
    set_target_properties(spillway_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(spillway_test_pch PRIVATE -fPIE -fpch-preprocess ${SPILLWAY_TEST_FLAGS})
    target_precompile_headers(spillway_test_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM spillway_test_pch)
endfunction()
