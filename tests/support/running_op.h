#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/base/storage_id.h"
#include "spillway/runtime/runtime.h"

namespace spillway::runtime {

/// An operator that ends however its scope is left, as those of an adapter do.
class RunningOp {
 public:
  /// `text` outlives this.
  RunningOp(Runtime& runtime, std::uint64_t signature, std::span<const RangeUse> uses,
            const OpText& text, const OpTraits& traits = {}, std::span<const RangeUse> shared = {})
      : runtime_(runtime) {
    runtime.announce_op();
    runtime.begin_op(signature, uses, text, traits, shared);
  }
  ~RunningOp() { runtime_.end_op(results); }
  RunningOp(const RunningOp&) = delete;
  RunningOp& operator=(const RunningOp&) = delete;

  std::vector<StorageId> results;  ///< What it hands out.

 private:
  Runtime& runtime_;
};

}  // namespace spillway::runtime
