#pragma once

#include <ATen/core/function_schema.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "spillway/runtime/reporting/run_statistics.h"

namespace spillway::torch_binding {

/// What comparisons with a second run have shown of kinds of call. Any thread.
class ReplayVerdicts {
 public:
  /// So many kinds are kept. Calls of others may not run again, since nobody has compared them.
  explicit ReplayVerdicts(std::size_t most = 65536) : most_(most) {}

  enum class Advice : std::uint8_t {
    kCompare,    ///< It is the first of its kind: one of the three calls below has to follow.
    kRecord,     ///< The same bits came, or another thread compares it right now.
    kLeave,      ///< It differed.
    kLeaveFull,  ///< There are too many kinds.
  };
  /// A call begins. `is_wanted`: a plan wants it to run again; then also what could not be recorded
  /// before is worth another try, as that may have been the arguments' fault.
  Advice begin(std::uint64_t kind, const c10::FunctionSchema& op, bool is_wanted);
  void settle(std::uint64_t kind, bool is_equal);
  void note_unrecordable(std::uint64_t kind);
  /// Nothing was found out: the next call of the kind may tell.
  void forget(std::uint64_t kind);

  runtime::VerifiedReplays sum() const;

 private:
  enum class Outcome : std::uint8_t { kBeingCompared, kEqual, kDiffers, kUnrecordable };
  struct Kind {
    const c10::FunctionSchema* op = nullptr;
    Outcome outcome = Outcome::kBeingCompared;
  };
  void set(std::uint64_t kind, Outcome outcome);

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Kind> kinds_;
};

}  // namespace spillway::torch_binding
