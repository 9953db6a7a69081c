#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "search_limits.h"
#include "spillway/planner/recomputation.h"

namespace spillway::planner {

/// Goes through the step with what is there, and notes the replays that bring back what is not.
/// May be used for any number of questions, one after the other; a new one costs time that grows
/// with the step.
class ReplayWalk {
 public:
  explicit ReplayWalk(const Recomputation& all);

  /// The replays that bring one value into the state in which operator `before` finds it, when all
  /// others are as in the original tape. Empty if it takes more than `most` or cannot be done.
  std::vector<OpIndex> restore_alone(ValueIndex value, OpIndex before,
                                     std::size_t most = kMostReplays);

  /// See Recomputation::can_drop.
  bool can_drop(ValueIndex value, OpIndex after) { return !cheapest_replays(value, after).empty(); }

  /// The least that runs again for such a drop, in order, when everything else that is alive in
  /// the original tape is there. Empty when it cannot be dropped.
  std::vector<OpIndex> cheapest_replays(ValueIndex value, OpIndex after);

  /// See Recomputation::replays. None if more operators than these would have to run again.
  std::optional<std::vector<Replay>> walk(
      std::span<const Drop> drops,
      std::size_t most_in_all = std::numeric_limits<std::size_t>::max());

 private:
  static constexpr std::uint32_t kAbsent = static_cast<std::uint32_t>(-1);

  struct State {
    bool is_dropped = false;
    bool drops_each_time = false;
    std::uint32_t version = kAbsent;  ///< Of a dropped value that is there in part or for now.
  };
  struct Presence {
    std::size_t seen_in = 0;  ///< Valid while this is the number of the current operator.
    std::uint32_t version = kAbsent;
  };
  struct DropMoment {
    OpIndex op = 0;
    Drop drop;
  };

  std::vector<DropMoment> moments_of(std::span<const Drop> drops);
  void bring_back_inputs(OpIndex op);
  void begin_restoring(OpIndex before, std::size_t most);
  void keep_parents();
  std::uint32_t& version_of(ValueIndex value);
  bool is_replaceable(ValueIndex value) const;
  bool restore(ValueIndex value, std::uint32_t version);
  bool replay(OpIndex op);

  const Recomputation& all_;
  const StepTape& tape_;
  std::vector<State> state_;        ///< Per value.
  std::vector<Presence> presence_;  ///< Per value, around the operator that is provided for.
  std::vector<ValueIndex> seen_;    ///< Values with a presence there.
  std::size_t restoring_ = 0;       ///< Number of the operator that is provided for.
  OpIndex before_ = 0;
  std::vector<Replay> replays_;
  std::size_t begun_ = 0;  ///< Replays before it, with those that are being provided.
  std::size_t begun_in_all_ = 0;
  std::size_t most_ = 0;
};

}  // namespace spillway::planner
