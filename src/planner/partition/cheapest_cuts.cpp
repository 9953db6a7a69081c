#include "cheapest_cuts.h"

#include <algorithm>
#include <deque>

#include "greedy_cuts.h"

namespace spillway::planner {

double moved_bytes(const SegmentCosts& costs, std::uint32_t one, std::uint32_t other) {
  return one == other ? 0.0 : costs.static_bytes(std::min(one, other), std::max(one, other));
}

std::optional<Cuts> CheapestCuts::run(double at) const {
  const GreedyCuts latest = greedy_cuts(goal_, range_, Borders::kNone, at);
  if (!latest.is_complete) return std::nullopt;
  const GreedyCuts earliest = earliest_cuts(goal_, range_, at);
  std::vector<Column> columns(1, Column{0, {0.0}, {0}});
  for (std::uint32_t k = 0; k < range_.stages(); ++k) {
    const std::uint32_t left = range_.stages() - 1 - k;
    std::uint32_t from = std::max(earliest.cuts[k + 1], k + 1);
    if (left == 0) from = range_.end_unit;
    columns.push_back(
        column(columns.back(), k, from, std::min(latest.cuts[k + 1], range_.end_unit - left), at));
  }
  if (columns.back().bytes.empty() || columns.back().bytes[0] == kNever) return std::nullopt;
  Cuts cuts(range_.stages() + 1, range_.end_unit);
  for (std::uint32_t k = range_.stages(); k-- > 0;)
    cuts[k] = columns[k + 1].begins[cuts[k + 1] - columns[k + 1].first];
  return cuts;
}

CheapestCuts::Column CheapestCuts::column(const Column& before, std::uint32_t stage,
                                          std::uint32_t from, std::uint32_t to, double at) const {
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

}  // namespace spillway::planner
