#include <utility>
#include <vector>

#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

constexpr double kMostOverMean = 1.3;

/// Memory of a unit under a schedule that treats all stages alike.
double unit_bytes(const SegmentCosts& costs, std::uint32_t unit) {
  return costs.load({unit, unit + 1, 0}, Borders::kNone).raw_bytes() -
         static_cast<double>(costs.problem().devices[0].reserved.count());
}

/// Fills stages from the last one on up to the mean, with a unit more when less than half of it is
/// too much; the first stage gets the rest. Then, from the first one on, stages far above the mean
/// give units to the next one, and every stage gets one.
std::optional<Cuts> cut_galvatron(const SegmentCosts& costs) {
  const std::uint32_t stages = costs.stages();
  std::vector<double> before{0.0};
  for (std::uint32_t unit = 0; unit < costs.units(); ++unit)
    before.push_back(before.back() + unit_bytes(costs, unit));
  const double mean = before.back() / stages;
  Cuts cuts(stages + 1, 0);
  cuts[stages] = costs.units();
  for (std::uint32_t k = stages; k-- > 1;) {
    std::uint32_t first = cuts[k + 1];
    while (first > 0 && mean - (before[cuts[k + 1]] - before[first]) >=
                            0.5 * (before[first] - before[first - 1]))
      --first;
    cuts[k] = first;
  }
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    while (cuts[k + 1] > cuts[k] && before[cuts[k + 1]] - before[cuts[k]] > kMostOverMean * mean)
      --cuts[k + 1];
  }
  return without_empty_stages(std::move(cuts));
}

}  // namespace

extern const Partitioner kGalvatron{
    "galvatron", "fills stages from the last with memory up to the mean, trims the first ones",
    "Wang et al., Galvatron-BMW, arXiv 2307.02031; repository PKU-DAIR/Hetu-Galvatron, whose split "
    "alone this is, without its search of strategies",
    Reading::kInferred, cut_galvatron};

}  // namespace spillway::partition
