#include "spillway/planner/partition/rebalance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bottleneck_search.h"
#include "cheapest_cuts.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partition_referee.h"

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

/// One flush: each border goes as far towards its place as the layers of its two stages let it.
Cuts after_flush(const SegmentCosts& costs, const Cuts& now, RebalancePlan& plan) {
  const auto& links = costs.problem().links;
  Cuts next = now;
  double slowest = 0.0;
  for (std::uint32_t k = 1; k < costs.stages(); ++k) {
    next[k] = std::clamp(plan.cuts[k], now[k - 1], now[k + 1]);
    if (next[k] == now[k]) continue;
    const double bytes = moved_bytes(costs, now[k], next[k]);
    const StageLink link = links.empty() ? StageLink{} : links[k - 1];
    const double seconds = link.fixed_seconds + bytes * link.seconds_per_byte;
    const bool goes_right = next[k] < now[k];
    plan.moves.push_back({plan.flushes, costs.first_layer(std::min(now[k], next[k])),
                          costs.first_layer(std::max(now[k], next[k])) - 1, goes_right ? k - 1 : k,
                          goes_right ? k : k - 1,
                          Bytes(static_cast<std::uint64_t>(std::llround(bytes))), seconds});
    plan.bytes += plan.moves.back().bytes;
    slowest = std::max(slowest, seconds);
  }
  plan.move_seconds += slowest;
  return next;
}

RebalancePlan plan_to(const SegmentCosts& costs, const Cuts& now, const Cuts& cuts,
                      const RebalanceOptions& options) {
  RebalancePlan plan;
  plan.cuts = cuts;
  plan.seconds_before = exact_worst(costs, now);
  plan.seconds_after = exact_worst(costs, cuts);
  for (Cuts here = now; here != cuts; ++plan.flushes) {
    here = after_flush(costs, here, plan);
    plan.move_seconds += options.flush_seconds;
  }
  const double per_second = options.steps_left * options.micro_batches;
  if (!plan.moves.empty()) {
    // Cuts that do not fit any more have nothing to go back to.
    plan.gained_seconds = plan.seconds_before == kNever
                              ? kNever
                              : per_second * (plan.seconds_before - plan.seconds_after);
    plan.pays = plan.gained_seconds > plan.move_seconds;
  }
  return plan;
}

void check_options(const RebalanceOptions& options) {
  if (!(options.steps_left >= 0.0) || std::isinf(options.steps_left))
    throw ConfigError("{} steps are left to re-balance for; give a number of at least 0",
                      options.steps_left);
  if (options.micro_batches == 0)
    throw ConfigError("a step of 0 micro-batches runs nothing; give 1 at least");
  if (!(options.flush_seconds >= 0.0) || std::isinf(options.flush_seconds))
    throw ConfigError("a flush takes {} s; times are finite and at least 0", options.flush_seconds);
}

}  // namespace

std::vector<RebalancePlan> rebalance_choices(const SegmentCosts& measured, const Cuts& now,
                                             const RebalanceOptions& options) {
  check_options(options);
  check(measured, now);
  std::vector<RebalancePlan> choices;
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
    const auto cuts = cheapest.run(at);
    if (!cuts) break;
    choices.push_back(plan_to(measured, now, *cuts, options));
    worst = choices.back().seconds_after;
  }
  return choices;
}

RebalancePlan rebalance(const SegmentCosts& measured, const Cuts& now,
                        const RebalanceOptions& options) {
  const std::vector<RebalancePlan> choices = rebalance_choices(measured, now, options);
  const double per_second = options.steps_left * options.micro_batches;
  const auto total = [&](const RebalancePlan& plan) {
    return per_second * plan.seconds_after + plan.move_seconds;
  };
  RebalancePlan best = plan_to(measured, now, now, options);
  for (const RebalancePlan& choice : choices)
    if (choice.pays && (best.moves.empty() || total(choice) < total(best))) best = choice;
  return best;
}

}  // namespace spillway::planner
