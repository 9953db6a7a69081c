#include <limits>
#include <optional>

#include "action_list_building.h"
#include "awake_ranks.h"
#include "spillway/base/assert.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner {
namespace {

/// All ranks side by side, in ticks of one action.
class GreedyOrder {
 public:
  GreedyOrder(Schedule& schedule, const std::vector<std::uint32_t>& most_held)
      : schedule_(schedule),
        most_held_(most_held),
        done_(2 * schedule.all_micro_batches() * schedule.stages, kNotYet),
        next_(2 * std::size_t{schedule.replica_count()} * schedule.stages, 0),
        stages_of_(schedule.ranks.size()),
        held_(schedule.ranks.size(), 0),
        awake_(schedule.rank_count()) {
    for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
      for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
        stages_of_[schedule.rank_of(replica, stage)].push_back({replica, stage});
  }

  std::uint64_t run() {
    std::uint64_t left = done_.size();
    for (std::uint64_t tick = 0; left > 0; ++tick) {
      bool has_moved = false;
      for (const std::uint32_t rank : awake_.begin_tick()) {
        std::optional<Action> action = oldest_backward(rank, tick);
        if (!action && held_[rank] < most_held_[rank]) action = farthest_forward(rank, tick);
        if (!action) continue;
        has_moved = true;
        --left;
        take(rank, *action, tick);
      }
      SPILLWAY_ASSERT(has_moved);
    }
    return awake_.visits();
  }

 private:
  static constexpr std::uint64_t kNotYet = std::numeric_limits<std::uint64_t>::max();

  struct Pass {
    std::uint32_t replica = 0;
    std::uint32_t stage = 0;
  };

  static std::size_t is_back(const Action& action) {
    return action.kind == ActionKind::kForward ? 0 : 1;
  }
  std::size_t pass(const Action& action) const {
    return std::size_t{action.replica} * schedule_.stages + action.stage;
  }
  std::uint64_t& done(const Action& action) {
    return done_[2 * (pass(action) * schedule_.micro_batches + action.micro_batch) +
                 is_back(action)];
  }
  /// The micro-batch whose turn it is for such an action.
  std::uint32_t& next(const Action& action) { return next_[2 * pass(action) + is_back(action)]; }
  bool is_there(const Action& action, std::uint64_t tick) { return done(action) < tick; }

  std::optional<Action> oldest_backward(std::uint32_t rank, std::uint64_t tick) {
    std::optional<Action> oldest;
    for (const auto [replica, stage] : stages_of_[rank]) {
      Action action = backward(stage, 0, replica);
      const std::uint32_t i = action.micro_batch = next(action);
      if (i == schedule_.micro_batches || !is_there(forward(stage, i, replica), tick)) continue;
      if (stage + 1 < schedule_.stages && !is_there(backward(stage + 1, i, replica), tick))
        continue;
      if (!oldest || i < oldest->micro_batch) oldest = action;
    }
    return oldest;
  }

  std::optional<Action> farthest_forward(std::uint32_t rank, std::uint64_t tick) {
    std::optional<Action> farthest;
    for (const auto [replica, stage] : stages_of_[rank]) {
      Action action = forward(stage, 0, replica);
      const std::uint32_t i = action.micro_batch = next(action);
      if (i == schedule_.micro_batches) continue;
      if (stage > 0 && !is_there(forward(stage - 1, i, replica), tick)) continue;
      if (!farthest || stage > farthest->stage) farthest = action;
    }
    return farthest;
  }

  void take(std::uint32_t rank, const Action& action, std::uint64_t tick) {
    schedule_.ranks[rank].push_back(action);
    done(action) = tick;
    ++next(action);
    held_[rank] = is_back(action) ? held_[rank] - 1 : held_[rank] + 1;
    awake_.wake(rank);
    if (const auto stage = output_stage(schedule_, action))
      awake_.wake(schedule_.rank_of(action.replica, *stage));
  }

  Schedule& schedule_;
  const std::vector<std::uint32_t>& most_held_;
  std::vector<std::uint64_t> done_;  // The tick, by replica, stage, micro-batch and direction.
  std::vector<std::uint32_t> next_;  // By replica, stage and direction.
  std::vector<std::vector<Pass>> stages_of_;
  std::vector<std::uint32_t> held_;
  AwakeRanks awake_;
};

}  // namespace

std::uint64_t order_greedily(Schedule& schedule, const std::vector<std::uint32_t>& most_held) {
  return GreedyOrder(schedule, most_held).run();
}

}  // namespace spillway::planner
