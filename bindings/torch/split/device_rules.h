#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "running_call.h"

namespace spillway::split {

/// The GPU that a call of the program uses or names; nothing: it works on the host alone.
std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> arguments);

/// Of programs that train on a GPU: a rank has one, on whose default stream everything runs, so
/// that what the program and the executor give it runs in the order in which they do. Backward runs
/// on the program's thread. For that thread.
class DeviceRules {
 public:
  /// `has_shards`: of several.
  explicit DeviceRules(bool has_shards) : has_shards_(has_shards) {}

  /// Before a call on that device. Why the program cannot be split; empty: it can.
  std::string objection_to(const CalledOperator& called, c10::Device device) const;

 private:
  const bool has_shards_;
};

}  // namespace spillway::split
