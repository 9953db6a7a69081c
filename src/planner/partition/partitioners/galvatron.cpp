#include <algorithm>

#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

constexpr double kMostOverMean = 1.3;

/// Memory of a unit under a schedule that treats all stages alike.
double unit_bytes(const SegmentCosts& costs, std::uint32_t unit) {
  return costs.load({unit, unit + 1, 0}, Borders::kNone).raw_bytes() -
         static_cast<double>(costs.problem().devices[0].reserved.count());
}

/// Fills stages up to the mean, a unit more when less than half of it is too much; then stages far
/// above the mean give units to the next one.
Cuts cut_galvatron(const SegmentCosts& costs) {
  const std::uint32_t stages = costs.stages();
  std::vector<double> before{0.0};
  for (std::uint32_t unit = 0; unit < costs.units(); ++unit)
    before.push_back(before.back() + unit_bytes(costs, unit));
  const double mean = before.back() / stages;
  Cuts cuts{0};
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    std::uint32_t end = cuts.back();
    while (end < costs.units() && (before[end] + before[end + 1]) / 2 - before[cuts.back()] <= mean)
      ++end;
    cuts.push_back(end);
  }
  cuts.push_back(costs.units());
  cuts = without_empty_stages(std::move(cuts));
  for (std::uint32_t k = 0; k + 1 < stages; ++k) {
    while (before[cuts[k + 1]] - before[cuts[k]] > kMostOverMean * mean &&
           cuts[k + 1] - cuts[k] > 1)
      --cuts[k + 1];
  }
  return cuts;
}

}  // namespace

extern const Partitioner kGalvatronPartitioner{
    "galvatron", "fills stages with memory up to the mean, trims those above 1.3 times it",
    "Wang et al., Galvatron-BMW, arXiv 2307.02031; repository PKU-DAIR/Hetu-Galvatron",
    Reading::kInferred, cut_galvatron};

}  // namespace spillway::planner
