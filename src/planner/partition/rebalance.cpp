#include "spillway/planner/partition/rebalance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bottleneck_search.h"
#include "cheapest_cuts.h"
#include "spillway/planner/partition/partition_estimate.h"

namespace spillway::planner {
namespace {

constexpr std::size_t kMostExact = 16;
constexpr std::size_t kMostChoices = 32;

double exact_worst(const SegmentCosts& costs, const Cuts& cuts) {
  const TimeGoal goal(costs);
  double worst = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k)
    worst = std::max(worst, goal.cost({cuts[k], cuts[k + 1], k}, Borders::kExact));
  return worst;
}

}  // namespace

std::vector<NearCuts> rebalance_choices(const SegmentCosts& measured, const Cuts& now) {
  check(measured, now);
  std::vector<NearCuts> choices;
  CheapestCuts cheapest(measured, now);
  double worst = exact_worst(measured, now);
  double best = -1.0;  // Not known before the choices are many.
  while (choices.size() < kMostChoices) {
    // Just better than the choice before; of many choices, a good part of what is left better.
    double at = worst == kNever ? std::numeric_limits<double>::max() : std::nextafter(worst, 0.0);
    if (choices.size() >= kMostExact) {
      if (best < 0.0) {
        const auto solved = least_bottleneck(TimeGoal(measured), whole(measured));
        best = solved ? solved->cost : worst;
      }
      at = std::min(at, std::max(best, worst - (worst - best) / 4));
    }
    if (worst <= 0.0 || best >= worst) break;
    auto cuts = cheapest.run(at);
    if (!cuts) break;
    worst = exact_worst(measured, *cuts);
    choices.push_back({std::move(*cuts), worst});
  }
  return choices;
}

}  // namespace spillway::planner
