#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/runtime/learning/step_learner.h"
#include "spillway/runtime/recording/stall_ledger.h"
#include "spillway/runtime/reporting/refusal.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// The part of the report that costs next to nothing, for whoever asks at each step.
struct RuntimeCounts {
  swap::SwapStatistics memory;
  std::uint64_t ops = 0;
  std::uint64_t steps = 0;
};

/// Operators that needed more than the budget and were paged through.
struct OversizeCounts {
  std::uint64_t ops = 0;
  Bytes moved;    ///< To and from the store, while they ran.
  Bytes written;  ///< Part of it: to the store.
};

/// How the trainer fared, beside what the engine counted.
struct RuntimeReport {
  swap::SwapStatistics memory;
  LearnerReport learned;
  std::string not_reported;   ///< Facts that `learned` lacks, with the reason; empty: none.
  std::uint64_t replays = 0;  ///< Operators that ran again to bring dropped tensors back.
  std::uint64_t unplanned_replays =
      0;                            ///< Part of `replays`: in steps that did not match the plan.
  std::uint64_t refused_drops = 0;  ///< Tensors that a plan gave up, and that stayed.
  std::vector<StallCause> stalls;   ///< The largest ones.
  double replay_seconds = 0.0;      ///< Seconds of replays, stalls for room included.
  Bytes sent_to_host;  ///< Left a device when its last operator before the host's work had ended.
  std::uint64_t ops = 0;
  std::uint64_t steps = 0;
  bool has_whole_step = false;       ///< A step has come to its end.
  double step_seconds_median = 0.0;  ///< Median of the latest steps, see Runtime::kStepsTimed.
  double intercept_seconds = 0.0;    ///< Estimated from one operator in 64; without waits.
  Bytes shared_peak;  ///< The most bytes of pages that small storages shared; see SharedPages.
  bool plans_know_shared = false;  ///< Plans count these pages.
  Bytes smallest_budget;  ///< Bytes that the largest operator so far needs at once; 0: none yet.
  std::string largest_op;
  OversizeCounts oversize;
  Refusal refusal;  ///< The latest that still stands.
};

}  // namespace spillway::runtime
