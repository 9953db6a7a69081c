# Precompiled headers, each a copy that several targets share. The compiler takes a copy only under
# equal flags. Sources still include what they use.

# spillway_add_pch(<name> HEADERS <header>... LIBRARIES <target>... FLAGS <flag>...): the object
# library that carries one.
function(spillway_add_pch name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES;FLAGS")
  set(source "${PROJECT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Carries the precompiled headers of ${name}.\n")
  add_library(${name} OBJECT "${source}")
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} spillway_warnings)
  target_compile_options(${name} PRIVATE ${arg_FLAGS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# spillway_use_torch_pch(<target>): for units that include torch/torch.h. A no-op when
# SPILLWAY_TORCH_PCH is OFF. The target must link spillway_torch and spillway_warnings.
function(spillway_use_torch_pch target)
  if(NOT SPILLWAY_TORCH_PCH)
    return()
  endif()
  if(NOT TARGET spillway_torch_pch)
    spillway_add_pch(spillway_torch_pch HEADERS <torch/torch.h> LIBRARIES spillway_torch
      FLAGS -fPIC -fpch-preprocess)
  endif()
  # An executable would get -fPIE.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM spillway_torch_pch)
endfunction()

# spillway_use_test_pch(<target>): GoogleTest's headers, for a test. A no-op when SPILLWAY_TEST_PCH is
# OFF. A target that links LibTorch, and with it gets NDEBUG in every build type, cannot share them. A
# no-op too where warnings are errors: GCC 12 forgets in the copy which warnings the standard
# library's headers suppress.
function(spillway_use_test_pch target)
  if(NOT SPILLWAY_TEST_PCH OR SPILLWAY_WARNINGS_AS_ERRORS)
    return()
  endif()
  if(NOT TARGET spillway_test_pch)
    spillway_add_pch(spillway_test_pch HEADERS <gmock/gmock.h> <gtest/gtest.h>
      LIBRARIES GTest::gmock_main FLAGS -fPIE -fpch-preprocess ${SPILLWAY_TEST_FLAGS})
    # Flags of an executable: of its own an object library would get -fPIC.
    set_target_properties(spillway_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM spillway_test_pch)
endfunction()
