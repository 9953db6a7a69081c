#pragma once

// The part of a core that serves CUDA tensors, a library of its own beside the core. Used by the
// core and by the command, which both tell where it is missing; never by the preload library.

#include <string>

namespace spillway::preload {

/// The minor of LibTorch whose CUDA tensors are served.
inline constexpr const char* kMinorWithCuda = SPILLWAY_CUDA_TORCH_MINOR;

/// "libspillway_core_2.11_cuda.so" for the path or the name of a core, "libspillway_core_2.11.so";
/// empty where that is none.
inline std::string cuda_part_of(const std::string& core) {
  const std::string suffix = ".so";
  const auto end = core.rfind(suffix);
  return end == std::string::npos ? std::string() : core.substr(0, end) + "_cuda" + suffix;
}

/// What a user does where the core for `minor` ("2.11") has no part for CUDA.
inline std::string cure_without_cuda_part(const std::string& minor) {
  const std::string served = kMinorWithCuda;
  if (minor != served)
    return "CUDA tensors are served with LibTorch " + served + " alone, not with " + minor;
  return "build it, in Spillway's folder: cmake build/release -DSPILLWAY_LIBTORCH=" + served +
         " -DSPILLWAY_WITH_CUDA=ON && cmake --build build/release --target spillway_cores";
}

}  // namespace spillway::preload
