#include "spillway/planner/partition/cut_solvers.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "bottleneck_search.h"
#include "greedy_cuts.h"
#include "segment_goal.h"
#include "spillway/planner/partition/partition_estimate.h"

namespace spillway::partition {
namespace {

/// Units between where a border is and where it goes.
double moved_bytes(const SegmentCosts& costs, std::uint32_t one, std::uint32_t other) {
  return one == other ? 0.0 : costs.static_bytes(std::min(one, other), std::max(one, other));
}

/// The cuts that move the fewest bytes among those with no stage above a threshold: bytes over each
/// border add up, so a table by border and cut finds them. For each cut it looks at the segments
/// that surely keep to the threshold through the least of a sliding window, and one by one only at
/// those between both bounds of their costs: O(units * stages) where borders cost nothing, however
/// far the threshold is.
class CheapestCuts {
 public:
  CheapestCuts(const SegmentCosts& costs, const Cuts& now)
      : costs_(costs), now_(now), goal_(costs), range_(whole(costs)) {}

  /// Nothing where all cuts have a stage above `at`.
  std::optional<Cuts> run(double at) const {
    const GreedyCuts latest = greedy_cuts(goal_, range_, Borders::kNone, at);
    if (!latest.is_complete) return std::nullopt;
    const GreedyCuts earliest = earliest_cuts(goal_, range_, at);
    std::vector<Column> columns(1, Column{0, {0.0}, {0}});
    for (std::uint32_t k = 0; k < range_.stages(); ++k) {
      const std::uint32_t left = range_.stages() - 1 - k;
      std::uint32_t from = std::max(earliest.cuts[k + 1], k + 1);
      if (left == 0) from = range_.end_unit;
      columns.push_back(column(columns.back(), k, from,
                               std::min(latest.cuts[k + 1], range_.end_unit - left), at));
    }
    if (columns.back().bytes.empty() || columns.back().bytes[0] == kNever) return std::nullopt;
    Cuts cuts(range_.stages() + 1, range_.end_unit);
    for (std::uint32_t k = range_.stages(); k-- > 0;)
      cuts[k] = columns[k + 1].begins[cuts[k + 1] - columns[k + 1].first];
    return cuts;
  }

 private:
  /// Costs for each cut behind a stage, from `first` on.
  struct Column {
    std::uint32_t first = 0;
    std::vector<double> bytes;  ///< Moved over borders up to here; infinite where none lead here.
    std::vector<std::uint32_t> begins;  ///< Of the stage.

    std::uint32_t end() const { return first + static_cast<std::uint32_t>(bytes.size()); }
    double at(std::uint32_t cut) const { return bytes[cut - first]; }
  };

  Column column(const Column& before, std::uint32_t stage, std::uint32_t from, std::uint32_t to,
                double at) const {
    Column here{from, {}, {}};
    // Both only move right while `end` does: segments from `possible` on may keep to the threshold,
    // those from `sure` on do.
    std::uint32_t possible = before.first;
    std::uint32_t sure = before.first;
    std::uint32_t known = before.first;
    std::deque<std::uint32_t> cheapest;  // Begins before `known`, each one dearer than all before.
    for (std::uint32_t end = from; end <= to; ++end) {
      const std::uint32_t last = std::min(end, before.end());
      for (; known < last; ++known) {
        // What is as dear and leaves the window sooner will never be the least.
        while (!cheapest.empty() && before.at(cheapest.back()) >= before.at(known))
          cheapest.pop_back();
        cheapest.push_back(known);
      }
      while (possible < last && goal_.cost({possible, end, stage}, Borders::kNone) > at) ++possible;
      sure = std::max(sure, possible);
      while (sure < last && goal_.cost({sure, end, stage}, Borders::kLargest) > at) ++sure;
      while (!cheapest.empty() && cheapest.front() < sure) cheapest.pop_front();

      double least = kNever;
      std::uint32_t best = 0;
      std::uint32_t unsure_end = sure;
      if (!cheapest.empty()) {
        best = cheapest.front();
        least = before.at(best);
        // Sums that are rounded may pass the threshold in their last bit.
        if (goal_.cost({best, end, stage}, Borders::kExact) > at) {
          least = kNever;
          unsure_end = last;
        }
      }
      for (std::uint32_t begin = unsure_end; begin-- > possible;) {
        if (before.at(begin) >= least) continue;
        if (goal_.cost({begin, end, stage}, Borders::kExact) > at) continue;
        least = before.at(begin);
        best = begin;
      }
      here.bytes.push_back(least + moved_bytes(costs_, now_[stage + 1], end));
      here.begins.push_back(best);
    }
    return here;
  }

  const SegmentCosts& costs_;
  const Cuts& now_;
  const TimeGoal goal_;
  const CutRange range_;
};

constexpr std::size_t kMostExact = 16;
constexpr std::size_t kMostChoices = 32;

}  // namespace

std::vector<SolvedCuts> rebalance_choices(const SegmentCosts& measured, const Cuts& now) {
  check(measured, now);
  std::vector<SolvedCuts> choices;
  const TimeGoal goal(measured);
  const CheapestCuts cheapest(measured, now);
  double worst = bottleneck_of(goal, whole(measured), now);
  double best = -1.0;  // Not known before the choices are many.
  while (choices.size() < kMostChoices) {
    // Just better than the choice before; of many choices, a good part of what is left better.
    double at = worst == kNever ? std::numeric_limits<double>::max() : std::nextafter(worst, 0.0);
    if (choices.size() >= kMostExact) {
      if (best < 0.0) {
        const auto solved = least_bottleneck(goal, whole(measured));
        best = solved ? solved->worst : worst;
      }
      at = std::min(at, std::max(best, worst - (worst - best) / 4));
    }
    if (worst <= 0.0 || best >= worst) break;
    auto cuts = cheapest.run(at);
    if (!cuts) break;
    worst = bottleneck_of(goal, whole(measured), *cuts);
    choices.push_back({std::move(*cuts), worst});
  }
  return choices;
}

}  // namespace spillway::partition
