#include <algorithm>

#include "bottleneck_search.h"
#include "predicted_peaks.h"
#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Fills devices from the left up to a threshold, one unit at least, and leaves one for each device
/// behind; the last device takes the rest. Where the peak falls when a unit joins, that is not the
/// farthest it could get. Gives the peak of the fullest device.
double fill(const PredictedPeaks& peaks, const CutRange& range, double threshold, Cuts& cuts) {
  cuts.assign(1, range.first_unit);
  double most = 0.0;
  for (std::uint32_t k = 0; k < range.stages(); ++k) {
    const std::uint32_t first = cuts.back();
    const std::uint32_t last = range.end_unit - (range.stages() - 1 - k);
    std::uint32_t end = first + 1;
    while (end < last && peaks.of(first, end + 1) <= threshold) ++end;
    if (k + 1 == range.stages()) end = last;
    cuts.push_back(end);
    most = std::max(most, peaks.of(first, end));
  }
  return most;
}

/// Bisection of the threshold in whole bytes.
SolvedCuts bisect(const PredictedPeaks& peaks, const CutRange& range) {
  SolvedCuts best;
  std::int64_t low = 0;
  std::int64_t high = std::int64_t{1} << 60;
  while (low <= high) {
    const std::int64_t middle = (low + high) / 2;
    Cuts cuts;
    const double most = fill(peaks, range, static_cast<double>(middle), cuts);
    if (most > static_cast<double>(middle)) {
      low = middle + 1;
    } else {
      high = middle - 1;
      best = {std::move(cuts), most};
    }
  }
  if (best.cuts.empty()) best.worst = fill(peaks, range, kNever, best.cuts);  // Beyond an exabyte.
  return best;
}

/// The bottleneck stays, and both its sides are cut anew.
std::optional<Cuts> cut_capslog(const SegmentCosts& costs) {
  // Its profiles are of single units and of pairs.
  const PredictedPeaks peaks(costs, 1);
  const RawGoal goal([&](Segment segment) { return peaks.of(segment.first, segment.end); });
  const SolveRange solve = [&](const CutRange& range) { return bisect(peaks, range); };
  return balanced_by_freezing(goal, whole(costs), solve)->cuts;
}

}  // namespace

extern const Partitioner kCapslog{
    "capslog", "least peak of memory by bisection and filling from the left, then both sides",
    "Dreuning et al., CAPSlog, PDP 2024; repository henkdr/CAPSlog", Reading::kAsPublished,
    cut_capslog};

}  // namespace spillway::partition
