# spillway_use_torch_pch(<target>)
#
# Lets a target whose units include torch/torch.h share one precompiled copy of it. A no-op when
# SPILLWAY_TORCH_PCH is OFF. The target must link spillway_torch and spillway_warnings, because the
# compiler takes the copy only under equal flags. Sources still include what they use.

function(spillway_use_torch_pch target)
  if(NOT SPILLWAY_TORCH_PCH)
    return()
  endif()
  if(NOT TARGET spillway_torch_pch)
    set(source "${PROJECT_BINARY_DIR}/torch_pch.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "// Carries the precompiled torch/torch.h.\n")
    add_library(spillway_torch_pch OBJECT "${source}")
    target_link_libraries(spillway_torch_pch PRIVATE spillway_torch spillway_warnings)
    target_compile_options(spillway_torch_pch PRIVATE -fPIC -fpch-preprocess)
    target_precompile_headers(spillway_torch_pch PRIVATE <torch/torch.h>)
  endif()
  # An executable would get -fPIE.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM spillway_torch_pch)
endfunction()
