#pragma once

#include <cstdint>

namespace spillway::profile {

/// What a storage holds.
enum class StorageClass : std::uint8_t {
  kUnknown,
  kParameter,
  kGradient,
  kOptimizerState,
  kBuffer,
  kActivation,
  kInput,
};

}  // namespace spillway::profile
