#include "generator_families.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "action_list_building.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::planner_schedule {
namespace {

/// An action of a rank in a pattern of ticks.
struct PlacedAction {
  std::uint64_t tick = 0;
  Action action;
};

constexpr std::uint64_t kSlot = 3;  // Ticks: forward, input gradient, weight gradient.

/// When each rank works on micro-batch 0, in ticks.
class BlockTimes {
 public:
  BlockTimes(const ScheduleRequest& request, std::uint32_t group, Repetition repetition)
      : turns_(request.stages_per_rank) {
    // From rank to rank a forward and a backward take three ticks together, so that ranks keep to
    // their slots. A forward that takes two of them leaves one for the backward: as many as it
    // takes for the backwards of a stage to be through all ranks within a group.
    const std::uint64_t hops = request.ranks - 1;
    const std::uint64_t needed = 2 * std::uint64_t{request.ranks} - 1;
    const std::uint64_t slow = needed > kSlot * group ? needed - kSlot * group : 0;
    SPILLWAY_ASSERT(slow <= hops && hops + slow + 1 <= kSlot * group);
    for (std::uint64_t rank = 0; rank <= hops; ++rank)
      forwards_.push_back(rank + (hops == 0 ? 0 : rank * slow / hops));
    // Evenly repeated, two stages of a rank must not meet in a slot modulo their number.
    const std::uint32_t shared = std::gcd(group, turns_);
    for (std::uint32_t turn = 0; turn < turns_; ++turn)
      slots_.push_back(std::uint64_t{group} * turn +
                       (repetition == Repetition::kEvenly ? turn / (turns_ / shared) : 0));
  }

  std::uint64_t forward(std::uint32_t rank, std::uint32_t turn) const {
    return forwards_[rank] + kSlot * slots_[turn];
  }
  /// The last rank turns around at once; on the way back each hop takes what is left of a slot.
  std::uint64_t input_gradient(std::uint32_t rank, std::uint32_t turn) const {
    const std::uint64_t hops = forwards_.size() - 1 - rank;
    const std::uint64_t turned = forwards_.back() + kSlot * slots_.back() + 1;
    const std::uint64_t back = kSlot * hops - (forwards_.back() - forwards_[rank]);
    return turned + back + kSlot * slots_[turns_ - 1 - turn];
  }

 private:
  std::uint32_t turns_;
  std::vector<std::uint64_t> forwards_;  // On the first of a rank's stages, by rank.
  std::vector<std::uint64_t> slots_;     // Of a rank's stages behind its first one.
};

// Three actions on each of its two stages: the time that a rank works for a micro-batch.
constexpr std::uint32_t kPeriod = 6;

/// One rank's forwards and input gradients by tick.
std::vector<PlacedAction> repeated(const VPattern& pattern, std::uint32_t rank, std::uint32_t ranks,
                                   std::uint32_t micro_batches) {
  const std::uint32_t back = 2 * ranks - 1 - rank;
  std::vector<PlacedAction> placed;
  for (std::uint32_t i = 0; i < micro_batches; ++i) {
    const std::uint64_t begin = std::uint64_t{kPeriod} * i;
    placed.push_back({begin + pattern.forward_down, forward(rank, i)});
    placed.push_back({begin + pattern.forward_back, forward(back, i)});
    placed.push_back({begin + pattern.backward_back, input_gradient(back, i)});
    placed.push_back({begin + pattern.backward_down, input_gradient(rank, i)});
  }
  std::sort(placed.begin(), placed.end(),
            [](const PlacedAction& a, const PlacedAction& b) { return a.tick < b.tick; });
  for (std::size_t i = 1; i < placed.size(); ++i)
    // Else the order, and with it the memory, would be another one than the pattern's.
    SPILLWAY_ASSERT(placed[i - 1].tick != placed[i].tick);
  return placed;
}

/// Most stashes held when each free tick serves the oldest weight gradient that is owed.
std::uint32_t most_held(const std::vector<PlacedAction>& placed) {
  std::uint32_t held = 0;
  std::uint32_t owed = 0;
  std::uint32_t most = 0;
  std::uint64_t tick = 0;
  for (const PlacedAction& each : placed) {
    // Free ticks are all the time that weight gradients have in the pattern.
    const auto served = static_cast<std::uint32_t>(std::min<std::uint64_t>(owed, each.tick - tick));
    held -= served;
    owed -= served;
    if (each.action.kind == ActionKind::kForward)
      most = std::max(most, ++held);
    else
      ++owed;
    tick = each.tick + 1;
  }
  return most;
}

}  // namespace

std::optional<std::string> fault_of_gems(const ScheduleRequest& request, std::uint32_t replicas,
                                         std::string_view name) {
  if (request.micro_batches % replicas == 0) return std::nullopt;
  return message("{} shares its micro-batches among {} replicas, and {} is no multiple (use {})",
                 name, replicas, request.micro_batches,
                 (request.micro_batches / replicas + 1) * replicas);
}

Schedule gems_chain(const ScheduleRequest& request, std::uint32_t replicas,
                    GemsDirection direction) {
  const std::uint32_t stages = request.ranks;
  Schedule schedule =
      one_replica(stages, request.micro_batches / replicas, round_placement(stages, stages));
  for (std::uint32_t replica = 1; replica < replicas; ++replica) {
    const bool is_inverted = direction == GemsDirection::kInTurns && replica % 2 == 1;
    schedule.placement.push_back(is_inverted ? reversed_placement(stages)
                                             : round_placement(stages, stages));
  }
  // A rank begins the next replica when its backwards of this one are over. So the stashes of one
  // replica are there at a time, which is what the chain is for.
  for (std::uint32_t replica = 0; replica < replicas; ++replica)
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      auto& list = schedule.ranks[schedule.rank_of(replica, stage)];
      for (std::uint32_t i = 0; i < schedule.micro_batches; ++i)
        list.push_back(forward(stage, i, replica));
      for (std::uint32_t i = 0; i < schedule.micro_batches; ++i)
        list.push_back(backward(stage, i, replica));
    }
  end_with_steps(schedule);
  return schedule;
}

Schedule repeated_blocks(const ScheduleRequest& request, std::uint32_t group,
                         Repetition repetition) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t turns = request.stages_per_rank;
  const BlockTimes times(request, group, repetition);
  Schedule schedule =
      one_replica(ranks, request.micro_batches, round_placement(ranks, ranks * turns));
  std::vector<PlacedAction> placed;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    placed.clear();
    for (std::uint32_t i = 0; i < request.micro_batches; ++i) {
      // In groups, one takes all stages of the rank in turn before the next one begins.
      const std::uint64_t begin =
          repetition == Repetition::kEvenly
              ? kSlot * turns * i
              : kSlot * (std::uint64_t{i} / group * group * turns + i % group);
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        const std::uint32_t stage = turn * ranks + rank;
        const std::uint64_t back = begin + times.input_gradient(rank, turn);
        placed.push_back({begin + times.forward(rank, turn), forward(stage, i)});
        placed.push_back({back, input_gradient(stage, i)});
        // At once, so that the whole stash is free as soon as it can be.
        placed.push_back({back + 1, weight_gradient(stage, i)});
      }
    }
    std::sort(placed.begin(), placed.end(),
              [](const PlacedAction& a, const PlacedAction& b) { return a.tick < b.tick; });
    for (std::size_t i = 0; i < placed.size(); ++i) {
      // Two actions of one tick would wait for each other's time on every micro-batch, and the
      // memory that the pattern promises would not hold.
      SPILLWAY_ASSERT(i == 0 || placed[i - 1].tick != placed[i].tick);
      schedule.ranks[rank].push_back(placed[i].action);
    }
  }
  end_with_steps(schedule);
  return schedule;
}

Schedule repeated_v(const ScheduleRequest& request,
                    const std::function<VPattern(std::uint32_t rank)>& pattern_of) {
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, folded_placement(request.ranks));
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) {
    const auto placed = repeated(pattern_of(rank), rank, request.ranks, request.micro_batches);
    most = std::max(most, most_held(placed));
    for (const PlacedAction& each : placed) schedule.ranks[rank].push_back(each.action);
  }
  // The bound is what the pattern holds by itself. Less would stop its forwards, more would give
  // away the memory that it is made for.
  fill_with_weight_gradients(schedule, most);
  end_with_steps(schedule);
  return schedule;
}

}  // namespace spillway::planner_schedule
