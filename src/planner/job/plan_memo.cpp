#include "spillway/planner/job/plan_memo.h"

#include <algorithm>

namespace spillway::planner {
namespace {

/// What a stage holds is no matter where devices have no end.
bool is_endless(const PartitionProblem& problem) {
  return std::all_of(problem.devices.begin(), problem.devices.end(),
                     [](const StageDevice& device) { return device.memory == kNoLimit; });
}

std::vector<double> figures_of_first_stage(const PartitionProblem& problem) {
  const HeldCounts& held = problem.devices.front().held;
  return {static_cast<double>(problem.devices.size()),
          static_cast<double>(problem.devices.front().reserved.count()), held.in_flight,
          held.weight_versions, held.state_copies};
}

std::vector<double> figures_of(const PartitionProblem& problem, bool with_what_stages_hold) {
  std::vector<double> figures{static_cast<double>(problem.devices.size()),
                              problem.transfers_hide ? 1.0 : 0.0};
  for (const StageDevice& device : problem.devices) {
    figures.push_back(device.slowdown);
    figures.push_back(static_cast<double>(device.memory.count()));
    if (with_what_stages_hold)
      figures.insert(figures.end(), {static_cast<double>(device.reserved.count()),
                                     device.swap_rate.bytes_per_second(), device.held.in_flight,
                                     device.held.weight_versions, device.held.state_copies});
  }
  for (const LinkCosts& link : problem.links)
    figures.insert(figures.end(), {link.rate.bytes_per_second(), link.latency_seconds});
  return figures;
}

}  // namespace

const OrderChoice& CutMemo::order(const PartitionProblem& problem, const OrderEffort& effort) {
  std::pair key{effort.steps, figures_of(problem, !is_endless(problem))};
  const auto known = orders_.find(key);
  if (known != orders_.end()) return known->second;
  return orders_.emplace(std::move(key), choose_order(problem, effort)).first->second;
}

const std::optional<Cuts>& CutMemo::cuts(const Partitioner& partitioner,
                                         const SegmentCosts& costs) {
  // Others look at what is held wherever they cut.
  const bool is_time_alone = partitioner.reading == Reading::kOurs && is_endless(costs.problem());
  std::pair key{&partitioner, partitioner.sees_first_stage_alone
                                  ? figures_of_first_stage(costs.problem())
                                  : figures_of(costs.problem(), !is_time_alone)};
  const auto known = cuts_.find(key);
  if (known != cuts_.end()) return known->second;
  return cuts_.emplace(std::move(key), partitioner.find(costs)).first->second;
}

}  // namespace spillway::planner
