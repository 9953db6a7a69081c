#include <algorithm>

#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

/// Memory of a device with these units alone and without more: no time, no stage, no relief.
double device_peak(const SegmentCosts& costs, std::uint32_t first, std::uint32_t end) {
  return costs.load({first, end, 0}).raw_bytes();
}

/// Fills devices from the left up to a threshold, and leaves a unit for each one behind. Where the
/// peak falls when a unit joins, that is not the farthest it could get.
bool fill(const SegmentCosts& costs, const CutRange& range, double threshold, Cuts& cuts) {
  cuts.assign(1, range.first_unit);
  for (std::uint32_t k = 0; k < range.stages(); ++k) {
    const std::uint32_t first = cuts.back();
    const std::uint32_t last = range.end_unit - (range.stages() - 1 - k);
    std::uint32_t end = first;
    while (end < last && device_peak(costs, first, end + 1) <= threshold) ++end;
    if (end == first) return false;
    cuts.push_back(end);
  }
  return cuts.back() == range.end_unit;
}

/// Bisection of the threshold in whole bytes.
Cuts bisect(const SegmentCosts& costs, const CutRange& range) {
  Cuts best;
  std::uint64_t low = 0;
  std::uint64_t high = std::uint64_t{1} << 60;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    Cuts cuts;
    if (fill(costs, range, static_cast<double>(middle), cuts)) {
      high = middle;
      best = std::move(cuts);
    } else {
      low = middle + 1;
    }
  }
  if (best.empty()) fill(costs, range, kNever, best);
  return best;
}

/// The bottleneck stays, and both its sides are cut anew.
Cuts cut_capslog(const SegmentCosts& costs) {
  Cuts all(costs.stages() + 1, costs.units());
  std::vector<CutRange> left{whole(costs)};
  while (!left.empty()) {
    const CutRange range = left.back();
    left.pop_back();
    const Cuts cuts = bisect(costs, range);
    std::copy(cuts.begin(), cuts.end(), all.begin() + range.first_stage);
    std::uint32_t worst = 0;
    double most = 0.0;
    for (std::uint32_t k = 0; k < range.stages(); ++k) {
      const double peak = device_peak(costs, cuts[k], cuts[k + 1]);
      if (peak > most) most = peak, worst = k;
    }
    const std::uint32_t stage = range.first_stage + worst;
    if (worst > 1) left.push_back({range.first_unit, cuts[worst], range.first_stage, stage});
    if (worst + 2 < range.stages())
      left.push_back({cuts[worst + 1], range.end_unit, stage + 1, range.end_stage});
  }
  return all;
}

}  // namespace

extern const Partitioner kCapslogPartitioner{
    "capslog", "least peak of memory by bisection and filling from the left, then both sides",
    "Dreuning et al., CAPSlog, PDP 2024; repository henkdr/CAPSlog", Reading::kAsPublished,
    cut_capslog};

}  // namespace spillway::planner
