#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "spillway/base/autograd_facts.h"
#include "spillway/pipeline/ownership/ownership.h"

namespace spillway::split {

/// Tells people, on the first rank and once each, of what makes all ranks keep or compute what one
/// of them could. One thread.
class SplitNotices {
 public:
  explicit SplitNotices(Rank rank);

  /// An operator reads a tensor whose memory is not LibTorch's, of which no rank becomes the owner.
  void foreign_read(std::string_view name, OpPhase phase, const at::Tensor& tensor);
  /// An operator is called before any parameter has been dealt, with these storages.
  void called_before_training(std::string_view name, OpPhase phase,
                              std::span<const pipeline::OperatorUse> uses);

 private:
  bool tells_of_foreign_ = false;
  bool tells_of_start_ = false;
};

}  // namespace spillway::split
