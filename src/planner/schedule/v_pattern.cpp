#include "v_pattern.h"

#include <algorithm>

#include "action_list_building.h"
#include "spillway/base/assert.h"

namespace spillway::planner {
namespace {

constexpr std::uint32_t kPeriod = 6;

struct Placed {
  std::uint64_t tick = 0;
  Action action;
};

/// One rank's forwards and input gradients by tick.
std::vector<Placed> repeated(const VPattern& pattern, std::uint32_t rank, std::uint32_t ranks,
                             std::uint32_t micro_batches) {
  const std::uint32_t back = 2 * ranks - 1 - rank;
  std::vector<Placed> placed;
  for (std::uint32_t i = 0; i < micro_batches; ++i) {
    const std::uint64_t begin = std::uint64_t{kPeriod} * i;
    placed.push_back({begin + pattern.forward_down, forward(rank, i)});
    placed.push_back({begin + pattern.forward_back, forward(back, i)});
    placed.push_back({begin + pattern.backward_back, input_gradient(back, i)});
    placed.push_back({begin + pattern.backward_down, input_gradient(rank, i)});
  }
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.tick < b.tick; });
  for (std::size_t i = 1; i < placed.size(); ++i)
    SPILLWAY_ASSERT(placed[i - 1].tick != placed[i].tick);
  return placed;
}

/// Most stashes held when each free tick serves the oldest weight gradient that is owed.
std::uint32_t most_held(const std::vector<Placed>& placed) {
  std::uint32_t held = 0;
  std::uint32_t owed = 0;
  std::uint32_t most = 0;
  std::uint64_t tick = 0;
  for (const Placed& each : placed) {
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

Schedule repeated_v(const ScheduleRequest& request,
                    const std::function<VPattern(std::uint32_t rank)>& pattern_of) {
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, folded_placement(request.ranks));
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) {
    const auto placed = repeated(pattern_of(rank), rank, request.ranks, request.micro_batches);
    most = std::max(most, most_held(placed));
    for (const Placed& each : placed) schedule.ranks[rank].push_back(each.action);
  }
  fill_with_weight_gradients(schedule, most);
  end_with_steps(schedule);
  return schedule;
}

}  // namespace spillway::planner
