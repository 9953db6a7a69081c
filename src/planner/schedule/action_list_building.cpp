#include "action_list_building.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "awake_ranks.h"
#include "spillway/base/assert.h"
#include "spillway/schedule/boundary_stages.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {
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
    // A forward and a backward of each micro-batch on each stage.
    std::uint64_t left = done_.size();
    for (std::uint64_t tick = 0; left > 0; ++tick) {
      bool has_moved = false;
      for (const std::uint32_t rank : awake_.begin_tick()) {
        // Backwards give back what forwards take, and the ranks before wait for them.
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
  // Made in an earlier tick, never in this one: so the ranks of a tick may come in any order.
  bool is_there(const Action& action, std::uint64_t tick) { return done(action) < tick; }

  // The oldest one has held its stash for longest.
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

  // The one nearest to the end of the model is the first to turn around and to give its room back.
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
    if (const auto stage = schedule::output_stage(schedule_, action))
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
      // The list is filled anew in this order, with weight gradients in between.
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
      // At the limit, a forward waits as if its input were missing. So a weight gradient goes first
      // and makes the room.
      return rank.held < most_held_ && (stage == 0 || is_there(action.kind, stage - 1));
    return is_there(ActionKind::kForward, stage) &&
           (stage + 1 == schedule_.stages || is_there(action.kind, stage + 1));
  }

  bool advance(std::uint32_t number, std::uint64_t tick) {
    Rank& rank = ranks_[number];
    auto& list = schedule_.ranks[number];
    // Other ranks wait for forwards and input gradients, and nobody for weight gradients.
    if (rank.next < rank.order.size() && can_run(rank, rank.order[rank.next], tick)) {
      const Action action = rank.order[rank.next++];
      list.push_back(action);
      done(action.kind, action.stage, action.micro_batch) = tick;
      if (const auto stage = schedule::output_stage(schedule_, action))
        awake_.wake(schedule_.rank_of(action.replica, *stage));
      if (action.kind == ActionKind::kForward)
        ++rank.held;
      else
        rank.owed.push_back(weight_gradient(action.stage, action.micro_batch));
      return true;
    }
    if (rank.owed.empty()) return false;
    // The oldest has kept its part of a stash for longest.
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

Schedule one_replica(std::uint32_t ranks, std::uint32_t micro_batches,
                     std::vector<std::uint32_t> placement) {
  Schedule schedule;
  schedule.stages = static_cast<std::uint32_t>(placement.size());
  schedule.micro_batches = micro_batches;
  schedule.placement.push_back(std::move(placement));
  schedule.ranks.resize(ranks);
  return schedule;
}

std::vector<Action> one_forward_one_backward(std::uint32_t stage, std::uint32_t micro_batches,
                                             std::uint32_t warm_up,
                                             Action (*make_backward)(std::uint32_t, std::uint32_t,
                                                                     std::uint32_t)) {
  std::vector<Action> actions;
  std::uint32_t forwards = 0;
  // Few micro-batches do not fill the pipeline; then all forwards come first.
  for (; forwards < std::min(warm_up, micro_batches); ++forwards)
    actions.push_back(forward(stage, forwards));
  for (std::uint32_t backwards = 0; backwards < micro_batches; ++backwards) {
    actions.push_back(make_backward(stage, backwards, 0));
    if (forwards < micro_batches) actions.push_back(forward(stage, forwards++));
  }
  return actions;
}

void end_with_steps(Schedule& schedule) {
  const WeightCopies copies(schedule);
  for (std::uint32_t stage = schedule.stages; stage-- > 0;)
    // Every copy, also where one will own it alone: only `with_communication` knows the owner, and
    // sets the steps anew.
    for (const std::uint32_t rank : copies.holders(stage))
      schedule.ranks[rank].push_back(step(stage));
}

std::uint64_t order_greedily(Schedule& schedule, const std::vector<std::uint32_t>& most_held) {
  return GreedyOrder(schedule, most_held).run();
}

std::uint64_t fill_with_weight_gradients(Schedule& schedule, std::uint32_t most_held) {
  return WeightFilling(schedule, most_held).run();
}

}  // namespace spillway::planner_schedule
