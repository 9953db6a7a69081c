#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planning/plan_figures.h"
#include "planning/planning_rates.h"

namespace spillway::cli {

/// Budgets from the smallest to all that is needed, in equal distances of whole pages; fewer than
/// `points` where pages do not suffice.
std::vector<Bytes> frontier_budgets(const PlanningStep& step, std::size_t points);

/// Plans of every strategy for every budget: by budget, within it as the strategies stand.
struct Frontier {
  std::size_t strategies = 0;
  std::vector<PlanFigures> plans;
};

/// `on_progress` is told before each plan: how many there are, how many will be, and what comes.
Frontier plan_frontier(
    const PlanningStep& step, const ChosenRates& rates, BoundEffort bound,
    std::span<const planner::Strategy> strategies, std::size_t points, double most_seconds,
    const Clock& clock,
    const std::function<void(std::size_t, std::size_t, const std::string&)>& on_progress);

std::string frontier_text(const PlanningStep& step, const ChosenRates& rates,
                          const Frontier& frontier);

/// A self-contained SVG of all plans: step time against budget, the first strategy boldest.
std::string frontier_svg(const PlanningStep& step, const ChosenRates& rates,
                         const Frontier& frontier);

}  // namespace spillway::cli
