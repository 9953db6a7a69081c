#include "spillway/planner/partition/partitioners.h"

#include <array>
#include <utility>
#include <vector>

#include "plain_figures.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/named_values.h"

namespace spillway::partition {

std::optional<Cuts> Partitioner::find(const SegmentCosts& costs) const {
  std::optional<Cuts> cuts = make(costs);
  if (cuts) check(costs, *cuts);
  return cuts;
}

std::string Partitioner::refusal(const SegmentCosts& costs) const {
  // What the devices would have to hold: the same without their limits.
  PartitionProblem endless = costs.problem();
  for (StageDevice& device : endless.devices) device.memory = kNoLimit;
  constexpr double kLongEnough = 1e12;
  const auto least =
      least_memory_cuts(SegmentCosts(std::move(endless)), kLongEnough, memory_reduction);
  const bool swaps =
      memory_reduction == MemoryReduction::kSwapAndRecompute && can_swap(costs.problem());
  return message(
      "no cuts of {} for {} fit into their devices, whatever is {}recomputed: the "
      "fullest one takes {} at least; use more memory{}",
      counted(costs.problem().chain.layers.size(), "layer"), counted(costs.stages(), "stage"),
      swaps ? "swapped and " : "", least ? to_string(as_bytes(least->worst)) : "more than there is",
      swaps ? ", or a schedule with fewer micro-batches in flight"
            : ", a schedule with fewer micro-batches in flight, or swaps (--link-out and "
              "--link-in, and no :recompute)");
}

Cuts Partitioner::cut(const SegmentCosts& costs) const {
  std::optional<Cuts> cuts = find(costs);
  if (!cuts) throw PlanError("{}", refusal(costs));
  return std::move(*cuts);
}

const Partitioner& partitioner_named(std::string_view name) {
  std::vector<Named<const Partitioner*>> named;
  for (const Partitioner& each : partitioners()) named.push_back({each.name, &each});
  return *value_named(name, named, "partitioner");
}

std::string_view to_string(Reading reading) {
  constexpr std::array<Named<Reading>, 3> kNames{{{"ours", Reading::kOurs},
                                                  {"as published", Reading::kAsPublished},
                                                  {"inferred", Reading::kInferred}}};
  return name_in(kNames, reading);
}

}  // namespace spillway::partition
