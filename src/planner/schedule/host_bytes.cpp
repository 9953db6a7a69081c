#include "spillway/planner/schedule/host_bytes.h"

#include <algorithm>
#include <set>

namespace spillway::planner {

std::vector<Bytes> stashes_on_host(const Schedule& schedule,
                                   const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank;
  for (const auto& list : schedule.ranks) {
    Bytes now;
    Bytes most;
    for (const Action& action : list) {
      const StageCosts& stage = stages[action.stage];
      if (action.kind == ActionKind::kForward) now += stage.swapped;
      if (action.kind == ActionKind::kSwapOut) now += stage.stash;
      most = std::max(most, now);
      if (makes_input_gradient(action.kind)) now -= stage.swapped;
      if (action.kind == ActionKind::kSwapIn) now -= stage.stash;
    }
    by_rank.push_back(most);
  }
  return by_rank;
}

std::vector<Bytes> weights_on_host(const Schedule& schedule,
                                   const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank;
  for (const auto& list : schedule.ranks) {
    std::set<std::uint32_t> parked;
    for (const Action& action : list)
      if (action.kind == ActionKind::kSwapInWeights) parked.insert(action.stage);
    Bytes& bytes = by_rank.emplace_back();
    for (const std::uint32_t stage : parked) bytes += stages[stage].weights;
  }
  return by_rank;
}

std::vector<Bytes> host_bytes(const Schedule& schedule, const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank = stashes_on_host(schedule, stages);
  const std::vector<Bytes> weights = weights_on_host(schedule, stages);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) by_rank[rank] += weights[rank];
  return by_rank;
}

}  // namespace spillway::planner
