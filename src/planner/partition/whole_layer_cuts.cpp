#include "whole_layer_cuts.h"

#include "bottleneck_search.h"
#include "greedy_cuts.h"

namespace spillway::partition {
namespace {

/// What looking at one segment costs, in sets of points.
constexpr std::uint64_t kSetsPerSegment = 10;

/// The best ways to end a stage at the cuts from `first` on.
struct Ends {
  std::uint32_t first = 0;
  std::vector<double> seconds;  ///< Of the worst stage; infinite where no way is quick enough.
  std::vector<std::uint32_t> begins;
};

Ends ends_of(const SegmentCosts& costs, std::uint32_t stage, const Ends& before, std::uint32_t from,
             std::uint32_t to, double limit, Effort& effort) {
  const TimeGoal goal(costs);
  Ends ends{from, {}, {}};
  for (std::uint32_t end = from; end <= to; ++end) {
    double best = kNever;
    std::uint32_t best_begin = 0;
    const auto last =
        std::min(end, before.first + static_cast<std::uint32_t>(before.seconds.size()));
    for (std::uint32_t begin = last; begin-- > before.first && !effort.is_spent();) {
      effort.spend(kSetsPerSegment);
      const double so_far = before.seconds[begin - before.first];
      const double most = std::min(best, limit);
      const Segment segment{begin, end, stage};
      if (so_far < most && goal.cost(segment, Borders::kExact) < most) {
        const double seconds = std::max(so_far, whole_seconds(costs, segment, most, effort));
        if (seconds < most) best = seconds, best_begin = begin;
      } else if (goal.cost(segment, Borders::kNone) >= limit) {
        break;
      }
    }
    ends.seconds.push_back(best);
    ends.begins.push_back(best_begin);
  }
  return ends;
}

}  // namespace

double whole_seconds(const SegmentCosts& costs, Segment segment, double below, Effort& effort) {
  if (effort.is_spent()) return kNever;
  const double bytes = costs.device_bytes(segment.stage);
  const SegmentLoad load = costs.load(segment);
  const WholeActions actions = quickest_actions(costs, segment, bytes, below);
  effort.spend(kSetsPerSegment + actions.sets);
  const double seconds = seconds_with(load, actions, bytes);
  return seconds < below ? seconds : kNever;
}

double whole_seconds(const SegmentCosts& costs, const Cuts& cuts, double below, Effort& effort) {
  effort.spend(kSetsPerSegment * costs.stages());
  // Whole layers take no less time than fractions of them.
  if (effort.is_spent() || bottleneck_of(TimeGoal(costs), whole(costs), cuts) >= below)
    return kNever;
  double worst = 0.0;
  for (std::uint32_t k = 0; k < costs.stages() && worst < kNever; ++k)
    worst = std::max(worst, whole_seconds(costs, Segment{cuts[k], cuts[k + 1], k}, below, effort));
  return worst;
}

std::optional<Cuts> fastest_whole_layer_cuts(const SegmentCosts& costs, double seconds,
                                             Effort& effort) {
  const TimeGoal goal(costs);
  const CutRange range = whole(costs);
  const GreedyCuts latest = greedy_cuts(goal, range, Borders::kNone, seconds);
  const GreedyCuts earliest = earliest_cuts(goal, range, seconds);
  if (!latest.is_complete) return std::nullopt;
  std::uint64_t cells = 0;
  for (std::uint32_t k = 1; k < costs.stages(); ++k)
    cells += latest.cuts[k] - std::min(latest.cuts[k], earliest.cuts[k]) + std::uint64_t{1};
  // It would not get to its end, and half of a dynamic program has no cuts.
  if (cells * kSetsPerSegment > effort.left) return std::nullopt;
  std::vector<Ends> ends{Ends{0, {0.0}, {0}}};
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    const bool is_last = k + 1 == costs.stages();
    // One unit at least is for each stage up to here.
    const std::uint32_t from = is_last ? costs.units() : std::max(earliest.cuts[k + 1], k + 1);
    const std::uint32_t to = is_last ? costs.units() : latest.cuts[k + 1];
    ends.push_back(ends_of(costs, k, ends.back(), from, to, seconds, effort));
    if (effort.is_spent()) return std::nullopt;
  }
  if (ends.back().seconds.front() == kNever) return std::nullopt;
  Cuts cuts(costs.stages() + 1, costs.units());
  for (std::uint32_t k = costs.stages(); k-- > 0;)
    cuts[k] = ends[k + 1].begins[cuts[k + 1] - ends[k + 1].first];
  return cuts;
}

}  // namespace spillway::partition
