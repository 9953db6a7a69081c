#pragma once

#include <cstdint>
#include <vector>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Part of the stash of one micro-batch on one stage that is left, as a share of the whole.
struct StashShares {
  double input = 0.0;                 ///< Kept by a forward whose rest is recomputed.
  double after_input_gradient = 1.0;  ///< Kept between input gradient and weight gradient.
};

/// Effect of an action on the memory of its stage, in stashes of one micro-batch there.
struct StashEffect {
  double taken = 0.0;             ///< When it starts.
  double returned = 0.0;          ///< When it ends.
  const char* problem = nullptr;  ///< Why it cannot come here; the effect counts only without.
};

/// Follows the stash of every micro-batch through the action lists. States depend on the order in
/// each rank's action list alone, so the action lists may be walked in any order, each from its
/// begin.
///
///     F          -> whole        (or input alone, when the action list holds its RECOMPUTE)
///     RECOMPUTE     input alone -> whole
///     SWAP_OUT      whole -> out
///     SWAP_IN       out -> whole
///     B             whole -> done
///     I             whole -> half
///     W             half -> done
class StashWalk {
 public:
  /// The schedule must outlive it and have passed `check_shape`.
  StashWalk(const Schedule& schedule, const StashShares& shares);

  StashEffect apply(const Action& action);
  /// What it would take, where its turn has come.
  double taken_by(const Action& action) const;

  /// Position of (replica, stage, micro-batch) in tables over all of them.
  std::size_t cell(const Action& action) const {
    return (std::size_t{action.replica} * schedule_->stages + action.stage) *
               schedule_->micro_batches +
           action.micro_batch;
  }
  std::size_t cell_count() const { return states_.size(); }
  bool is_started(const Action& action) const { return states_[cell(action)] != State::kAbsent; }
  bool is_done(const Action& action) const { return states_[cell(action)] == State::kDone; }

 private:
  enum class State : std::uint8_t { kAbsent, kInput, kWhole, kOut, kHalf, kDone };

  StashEffect move(State& state, State from, State to, StashEffect effect) const;

  const Schedule* schedule_;
  StashShares shares_;
  std::vector<State> states_;
  std::vector<bool> is_recomputed_;
};

}  // namespace spillway::schedule
