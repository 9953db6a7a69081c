#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/profile/step_tape.h"

namespace spillway::planner {

using profile::OpIndex;
using profile::StepTape;
using profile::ValueIndex;

/// A second run of operator `op` of the tape, right before operator `before`.
struct Replay {
  OpIndex before = 0;
  OpIndex op = 0;
};

/// A value leaves memory without a copy after operator `after` has touched it, and is recomputed
/// before the next operator that uses it.
struct Drop {
  ValueIndex value = 0;
  OpIndex after = 0;
  /// Recomputed for each need and dropped after it, instead of staying until its own next use.
  bool each_time = false;
};

/// A tape with replays as operators of their own. What was dropped and recomputed is several
/// values, one per stretch of presence, so swaps are planned on it as on any tape.
struct RewrittenTape {
  StepTape tape;
  std::vector<OpIndex> op_of;        ///< Per operator: the one of the original tape that it runs.
  std::vector<bool> is_replay;       ///< Per operator.
  std::vector<ValueIndex> value_of;  ///< Per value: the one of the original tape that it holds.
};

/// Where the operators of the original tape stand in the rewritten one.
std::vector<OpIndex> places_in(const RewrittenTape& steps);

/// Refuses a replay that would not find an input as the first run found it.
class ReplayError : public PlanError {
 public:
  struct Cause {
    OpIndex op = 0;           ///< It would run again,
    OpIndex before = 0;       ///< before this one,
    ValueIndex value = 0;     ///< and read this,
    OpIndex by = 0;           ///< which this operator has changed or ended before.
    bool is_written = false;  ///< It was written in place; else its last use was over.
  };
  explicit ReplayError(const Cause& cause);
  const Cause& cause() const { return cause_; }

 private:
  Cause cause_;
};

/// Inserts replays, which are sorted by `before` and run in this order. A value ends after its last
/// use before it is recomputed; results of replays that nobody needs are none. Values keep
/// their numbers, further presences follow. Throws ReplayError where a replay would not find its
/// inputs as they were, PlanError where another operator would not, where one is not replayable,
/// and for indices out of range.
RewrittenTape rewrite_tape(const StepTape& tape, std::span<const Replay> replays);

/// The rewritten tape with the times of `tape`, which has the operators and values that it was made
/// from.
StepTape retimed(const RewrittenTape& steps, const StepTape& tape);

/// Compute time of the replays.
double replay_seconds(const StepTape& tape, std::span<const Replay> replays);

/// Finds the replays that bring values back. Keeps a reference to the tape.
class Recomputation {
 public:
  explicit Recomputation(const StepTape& tape);

  /// Operator that uses the value next after `after`; kNoOp (-1) without one in this step.
  OpIndex next_use(ValueIndex value, OpIndex after) const;

  /// Whether a value that is dropped after its touch by `after` can be recomputed for its next
  /// use: every operator involved is replayable and every input still is, or can be
  /// recomputed, as it was. Takes time that grows with the step.
  bool can_drop(ValueIndex value, OpIndex after) const;

  /// The replays that a set of drops asks for, sorted for `rewrite_tape`. Parents that were dropped
  /// too are computed on the way and stay until their own next use; what was dead is freed again,
  /// unless a drop after its last use names it: then it stays for further ones that need it.
  /// Other drops that are not possible are ignored.
  std::vector<Replay> replays(std::span<const Drop> drops) const;

 private:
  friend class ReplayWalk;
  struct Writer {
    OpIndex op = 0;
    std::uint32_t version = 0;  ///< Version of the value, once the operator has run.
  };
  struct Touch {
    OpIndex op = 0;
    std::uint32_t needs = 0;  ///< Version of the value that the operator finds.
  };

  std::span<const Writer> writers(ValueIndex value) const;
  std::span<const Touch> touches(ValueIndex value) const;
  std::uint32_t version_before(ValueIndex value, OpIndex op) const;

  const StepTape& tape_;
  std::vector<std::uint32_t>
      first_writer_;  ///< Per value, into `writers_`; the birth is the first.
  std::vector<Writer> writers_;
  std::vector<std::uint32_t> first_touch_;  ///< Per value, into `touches_`.
  std::vector<Touch> touches_;
  PerOp births_;
};

}  // namespace spillway::planner
