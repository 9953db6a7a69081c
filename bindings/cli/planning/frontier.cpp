#include "planning/frontier.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "planning/frontier_picture.h"
#include "planning/plan_report.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

namespace {

FrontierPicture picture_of(const PlanningStep& step, const ChosenRates& rates,
                           const Frontier& frontier) {
  FrontierPicture picture;
  const std::string& program = step.profile.origin.program;
  picture.title =
      message("{}: time of a step under a budget",
              program.empty() ? step.path : std::filesystem::path(program).filename().string());
  picture.subtitle = rates_text(rates);
  picture.needed = step.needed;
  picture.incore_seconds = step.incore_seconds;
  picture.curves.resize(frontier.strategies);
  for (std::size_t i = 0; i < frontier.plans.size(); ++i) {
    const PlanFigures& plan = frontier.plans[i];
    PictureCurve& curve = picture.curves[i % frontier.strategies];
    curve.name = plan.strategy;
    PicturePoint point{plan.budget, {}};
    if (plan.is_possible()) point.seconds = plan.step_seconds;
    curve.points.push_back(point);
    // The bound is the same for all, but only a plan tells it.
    auto& bound = picture.bound.points;
    const bool is_known = !bound.empty() && bound.back().budget == plan.budget;
    if (!is_known && plan.is_possible()) bound.push_back({plan.budget, plan.bound_seconds});
  }
  return picture;
}

/// Why a row has dashes: for each strategy the first reason.
std::string refusals_text(const std::vector<PlanFigures>& plans) {
  std::string text;
  std::set<std::string_view> told;
  for (const PlanFigures& plan : plans)
    if (!plan.is_possible() && told.insert(plan.strategy).second)
      text += message("{} has no plan for {}: {}\n", plan.strategy, plan.budget, plan.refusal);
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::vector<Bytes> frontier_budgets(const PlanningStep& step, std::size_t points) {
  // Rounded up: what an operator outside of the step needs may be no whole number of pages.
  const Bytes page = step.profile.page_size;
  const std::uint64_t least = (step.smallest - step.profile.small_bytes + page - Bytes(1)) / page;
  const std::uint64_t most =
      std::max(least, (step.needed - step.profile.small_bytes) / step.profile.page_size);
  std::vector<Bytes> budgets;
  for (std::size_t i = 0; i < points; ++i) {
    const std::uint64_t pages = points < 2 ? most : least + (most - least) * i / (points - 1);
    const Bytes budget = in_memory(step, pages);
    if (budgets.empty() || budgets.back() != budget) budgets.push_back(budget);
  }
  return budgets;
}

Frontier plan_frontier(
    const PlanningStep& step, const ChosenRates& rates, BoundEffort bound,
    std::span<const planner::Strategy> strategies, std::size_t points, double most_seconds,
    const Clock& clock,
    const std::function<void(std::size_t, std::size_t, const std::string&)>& on_progress) {
  Frontier frontier;
  frontier.strategies = strategies.size();
  const std::vector<Bytes> budgets = frontier_budgets(step, points);
  for (const Bytes budget : budgets) {
    on_progress(frontier.plans.size(), budgets.size() * strategies.size(),
                message("bound at {}", budget));
    const PlanningCase planning = case_for(step, budget, limits_for(step, budget, rates), bound);
    for (const planner::Strategy& strategy : strategies) {
      on_progress(frontier.plans.size(), budgets.size() * strategies.size(),
                  message("{} at {}", strategy.name, budget));
      frontier.plans.push_back(plan_with(strategy, planning, most_seconds, clock).figures);
    }
  }
  return frontier;
}

std::string frontier_text(const PlanningStep& step, const ChosenRates& rates,
                          const Frontier& frontier) {
  const std::size_t rows = frontier.plans.size();
  return step_text(step, rates) + "\n" +
         table_text(plan_columns(step, rates, frontier.plans), rows,
                    {"budget", "share", "strategy", "step", "x in-core", "bound", "gap", "out",
                     "in", "recomputed"},
                    rows) +
         refusals_text(frontier.plans);
}

std::string frontier_svg(const PlanningStep& step, const ChosenRates& rates,
                         const Frontier& frontier) {
  return to_svg(picture_of(step, rates, frontier));
}

}  // namespace spillway::cli
