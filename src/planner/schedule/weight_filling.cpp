#include <deque>

#include "action_list_building.h"
#include "awake_ranks.h"
#include "spillway/base/assert.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner {
namespace {

/// All ranks side by side, in ticks of one action each.
class WeightFilling {
 public:
  WeightFilling(Schedule& schedule, std::uint32_t most_held)
      : schedule_(schedule),
        most_held_(most_held),
        ranks_(schedule.ranks.size()),
        done_(2 * std::size_t{schedule.stages} * schedule.micro_batches, kNotYet),
        awake_(schedule.rank_count()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].order = std::move(schedule.ranks[rank]);
      schedule.ranks[rank].clear();
      for (const Action& action : ranks_[rank].order)
        left_ += action.kind == ActionKind::kForward ? 1 : 2;  // With its weight gradient.
    }
  }

  std::uint64_t run() {
    for (std::uint64_t tick = 0; left_ > 0; ++tick) {
      bool has_moved = false;
      for (const std::uint32_t rank : awake_.begin_tick()) {
        if (!advance(rank, tick)) continue;
        has_moved = true;
        --left_;
        awake_.wake(rank);
      }
      SPILLWAY_ASSERT(has_moved);  // Else `most_held` is too small, or the order has a cycle.
    }
    return awake_.visits();
  }

 private:
  static constexpr std::uint64_t kNotYet = static_cast<std::uint64_t>(-1);

  struct Rank {
    std::vector<Action> order;
    std::size_t next = 0;
    std::deque<Action> owed;  // Weight gradients.
    std::uint32_t held = 0;
  };

  std::uint64_t& done(ActionKind kind, std::uint32_t stage, std::uint32_t micro_batch) {
    const std::size_t cell = std::size_t{stage} * schedule_.micro_batches + micro_batch;
    return done_[2 * cell + (kind == ActionKind::kForward ? 0 : 1)];
  }

  /// Whether what it needs was done before this tick.
  bool can_run(const Rank& rank, const Action& action, std::uint64_t tick) {
    const std::uint32_t stage = action.stage;
    const auto is_there = [&](ActionKind kind, std::uint32_t at) {
      const std::uint64_t when = done(kind, at, action.micro_batch);
      return when != kNotYet && when < tick;
    };
    if (action.kind == ActionKind::kForward)
      return rank.held < most_held_ && (stage == 0 || is_there(action.kind, stage - 1));
    return is_there(ActionKind::kForward, stage) &&
           (stage + 1 == schedule_.stages || is_there(action.kind, stage + 1));
  }

  bool advance(std::uint32_t number, std::uint64_t tick) {
    Rank& rank = ranks_[number];
    auto& list = schedule_.ranks[number];
    if (rank.next < rank.order.size() && can_run(rank, rank.order[rank.next], tick)) {
      const Action action = rank.order[rank.next++];
      list.push_back(action);
      done(action.kind, action.stage, action.micro_batch) = tick;
      if (const auto stage = output_stage(schedule_, action))
        awake_.wake(schedule_.rank_of(action.replica, *stage));
      if (action.kind == ActionKind::kForward)
        ++rank.held;
      else
        rank.owed.push_back(weight_gradient(action.stage, action.micro_batch));
      return true;
    }
    if (rank.owed.empty()) return false;
    list.push_back(rank.owed.front());
    rank.owed.pop_front();
    --rank.held;
    return true;
  }

  Schedule& schedule_;
  std::uint32_t most_held_;
  std::vector<Rank> ranks_;
  std::vector<std::uint64_t> done_;
  AwakeRanks awake_;
  std::uint64_t left_ = 0;
};

}  // namespace

std::uint64_t fill_with_weight_gradients(Schedule& schedule, std::uint32_t most_held) {
  return WeightFilling(schedule, most_held).run();
}

}  // namespace spillway::planner
