#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/runtime/recording/stall_ledger.h"
#include "spillway/runtime/reporting/refusal.h"

namespace spillway::runtime {

/// Calls that were compared with a second run, bit for bit. A kind is an operator with the shapes
/// and types of its tensors and its other arguments.
struct VerifiedReplays {
  std::uint64_t equal_kinds = 0;
  std::uint64_t differing_kinds = 0;               ///< These are not run again.
  std::map<std::string, std::uint64_t> operators;  ///< How many of the equal kinds each has.
};

/// How one process fared: what the statistics file and the summary are made of. The key of each
/// field in the file is its name, with `_bytes` where the type is Bytes; meanings are in the
/// statistics.md.
struct RunStatistics {
  std::string spillway_version;
  std::string libtorch_version;
  std::string device = "cpu";
  std::string program;
  std::int64_t process_id = 0;
  std::optional<std::string> rank;

  Bytes budget;
  std::string budget_origin;  ///< As ResolvedBudget tells it.
  Bytes peak;
  Bytes needed;
  Bytes small_peak;
  Bytes peak_rss;
  Bytes largest_op_needs;  ///< The smallest budget that surely does; 0: unknown.
  std::string largest_op;
  Refusal refusal;  ///< Why the run could not go on, or only slowly.

  std::uint64_t steps = 0;
  double step_seconds_median = 0.0;
  double run_seconds = 0.0;

  double fetch_wait_seconds = 0.0;
  double write_wait_seconds = 0.0;
  double trap_wait_seconds = 0.0;
  std::uint64_t trap_count = 0;
  double intercept_seconds = 0.0;
  double disk_busy_seconds = 0.0;

  Bytes spilled;
  Bytes fetched;
  Bytes disk_written;  ///< What the store brought to its disks; 0 for stores in memory.
  Bytes clean_leaves;
  Bytes spill_space_peak;
  Bytes endurance;  ///< Rated writes of all spill drives together; 0: they do not wear.
  std::optional<profile::TransferRates> rates;  ///< Of the store, as plans reckoned with at last.
  std::uint64_t cancelled_writes = 0;
  std::uint64_t io_retries = 0;

  std::uint64_t ops = 0;
  std::uint64_t deviations = 0;
  std::uint64_t step_shapes = 0;
  std::string left_out;               ///< What could not be told, and why; empty: nothing.
  double planned_step_seconds = 0.0;  ///< Of the plan that was followed last; 0 without one.
  double followed_step_seconds =
      0.0;                          ///< What steps under that plan took; 0: none went as planned.
  double bound_step_seconds = 0.0;  ///< No plan can be faster; never above the planned time.
  Bytes planned_peak;               ///< Of that plan, with what never leaves.
  Bytes followed_peak;              ///< Of steps under that plan; 0: none went as planned.
  std::string strategy;             ///< That made it.

  /// The plan that the run was given.
  struct GivenPlan {
    std::string file;
    Bytes budget;                  ///< That it was made for.
    profile::TransferRates rates;  ///< The same.
    double step_seconds = 0.0;     ///< Predicted when it was made.
    std::uint64_t steps = 0;       ///< That went by it from their first operator to the last.
    std::uint64_t all_steps = 0;   ///< That have ended.
    std::string misfit;            ///< Why it was for none of the steps; empty: it was for some.
  };
  std::optional<GivenPlan> given_plan;

  bool recompute = true;  ///< Operators are recorded where plans want to run them again.
  Bytes dropped;          ///< Left without a copy, to be computed again.
  Bytes recorded_peak;    ///< Copies of what recorded operators have read, beside the budget.
  std::uint64_t replays = 0;
  std::uint64_t unplanned_replays = 0;
  std::uint64_t refused_drops = 0;
  double replay_seconds = 0.0;
  VerifiedReplays verified;              ///< With `verify` only.
  std::vector<StallCause> stalls;        ///< Operators that waited longest, the largest first.
  std::vector<ValueStall> value_stalls;  ///< Values that were waited for longest, the same.

  std::string mapper;
  std::string dispatch_key;
  std::string store;
  std::vector<std::string> directories;
  bool prefetch = true;
  bool verify = false;

  /// Time in which the trainer waited for Spillway.
  double stall_seconds() const {
    return fetch_wait_seconds + write_wait_seconds + trap_wait_seconds;
  }
};

/// The JSON text of the statistics file.
std::string to_json(const RunStatistics& statistics);

/// Replaces the file at `path` as a whole. Throws IoError.
void write_statistics(const std::string& path, const RunStatistics& statistics);

}  // namespace spillway::runtime
