#include "repeated_blocks.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "action_list_building.h"
#include "spillway/base/assert.h"

namespace spillway::planner {
namespace {

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

struct Placed {
  std::uint64_t tick = 0;
  Action action;
};

}  // namespace

Schedule repeated_blocks(const ScheduleRequest& request, std::uint32_t group,
                         Repetition repetition) {
  const std::uint32_t ranks = request.ranks;
  const std::uint32_t turns = request.stages_per_rank;
  const BlockTimes times(request, group, repetition);
  Schedule schedule =
      one_replica(ranks, request.micro_batches, round_placement(ranks, ranks * turns));
  std::vector<Placed> placed;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    placed.clear();
    for (std::uint32_t i = 0; i < request.micro_batches; ++i) {
      const std::uint64_t begin =
          repetition == Repetition::kEvenly
              ? kSlot * turns * i
              : kSlot * (std::uint64_t{i} / group * group * turns + i % group);
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        const std::uint32_t stage = turn * ranks + rank;
        const std::uint64_t back = begin + times.input_gradient(rank, turn);
        placed.push_back({begin + times.forward(rank, turn), forward(stage, i)});
        placed.push_back({back, input_gradient(stage, i)});
        placed.push_back({back + 1, weight_gradient(stage, i)});
      }
    }
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.tick < b.tick; });
    for (std::size_t i = 0; i < placed.size(); ++i) {
      SPILLWAY_ASSERT(i == 0 || placed[i - 1].tick != placed[i].tick);
      schedule.ranks[rank].push_back(placed[i].action);
    }
  }
  end_with_steps(schedule);
  return schedule;
}

}  // namespace spillway::planner
