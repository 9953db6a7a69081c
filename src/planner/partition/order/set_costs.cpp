#include "order/set_costs.h"

#include <algorithm>

namespace spillway::planner {

SetCosts::SetCosts(const UnitCosts& units, const Downsets& sets) : units_(units), sets_(sets) {
  sums_.resize(sets.count());
  for (std::uint32_t set = 0; set < sets.count(); ++set)
    for (const std::uint32_t unit : sets.between(0, set)) sums_[set] += units.load(unit);
}

/// Behind frozen layers alone no gradient returns. Those that lead run first in every order.
double SetCosts::ways(std::uint32_t set) const {
  const std::uint32_t size = sets_.size(set);
  return size > 0 && size <= units_.frozen_units() ? 1.0 : 2.0;
}

/// Of what comes into the stage, the bytes that it keeps for backward.
double SetCosts::kept_bytes(std::uint32_t small, const UnitCosts::Units& between) const {
  const UnitGraph& graph = units_.graph();
  std::vector<std::uint32_t> kept;
  for (const std::uint32_t unit : between)
    for (const UnitInput& input : graph.read[unit])
      if (input.is_kept && sets_.has(small, graph.tensors[input.tensor].producer))
        kept.push_back(input.tensor);
  std::sort(kept.begin(), kept.end());
  double bytes = 0.0;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (i == 0 || kept[i] != kept[i - 1]) bytes += graph.tensors[kept[i]].bytes;
  return bytes;
}

void SetCosts::add_memory(SegmentLoad& load, std::uint32_t small, std::uint32_t large,
                          const StageConstants& stage, const UnitCosts::Units& between) const {
  const UnitLoad& from = sums_[small];
  const UnitLoad& to = sums_[large];
  const SumPair twice = units_.spared(between);
  const double kept = kept_bytes(small, between);
  const double relayed = sets_.crossing_bytes(small) - kept;
  load.stash_bytes = to.stash - from.stash + kept;
  load.fixed_bytes = stage.reserved + stage.state_copies * (to.fixed - from.fixed - twice.a) +
                     stage.weight_versions * (to.versioned - from.versioned - twice.b) +
                     to.buffers - from.buffers + units_.working_peak(between) + relayed;
}

double SetCosts::least_seconds(std::uint32_t small, std::uint32_t large,
                               std::uint32_t index) const {
  const StageConstants& stage = units_.stages()[index];
  SegmentLoad load;
  load.in_flight = stage.in_flight;
  load.swap_bytes_per_second = stage.swap_rate;
  load.seconds = (sums_[large].seconds - sums_[small].seconds) * stage.slowdown;
  const StageEnds ends{sets_.crossing_bytes(small), sets_.crossing_bytes(large), ways(small),
                       ways(large)};
  add_transfers(load, stage, ends, units_.problem());
  if (stage.memory == kNever) return load.busy_seconds();
  const UnitCosts::Units between = sets_.between(small, large);
  add_memory(load, small, large, stage, between);
  const double excess = load.excess_bytes(stage.memory);
  if (excess <= 0.0) return load.busy_seconds();
  if (excess == kNever) return kNever;
  return reduced_seconds(units_.items(between, stage.slowdown), load, excess,
                         load.swap_bytes_per_second);
}

}  // namespace spillway::planner
