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
  kWorkspace,   ///< Temporaries of the optimizer's update; files call them activations.
  kSharedPage,  ///< Small storages of any class: see `TapeValue::is_shared`.
};

}  // namespace spillway::profile
