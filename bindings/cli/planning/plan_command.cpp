#include "planning/commands.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "planning/frontier.h"
#include "planning/plan_report.h"
#include "planning/svg_drawing.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/plan_file.h"
#include "spillway/planner/strategies.h"
#include "spillway/topology/atomic_file.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {

using planner::Strategy;

namespace {

nlohmann::ordered_json json_of(const PlanningStep& step, const ChosenRates& rates,
                               const std::vector<PlanFigures>& plans) {
  auto list = nlohmann::ordered_json::array();
  for (const PlanFigures& plan : plans) list.push_back(figures_json(step, rates, plan));
  return list;
}

void draw_frontier(const PlanOptions& options, const PlanningStep& step, const ChosenRates& rates,
                   std::ostream& out, const Clock& clock) {
  ProgressLine progress;
  const Frontier frontier =
      plan_frontier(step, rates, options.common.bound, options.common.strategies, options.points,
                    options.common.effort.value_or(kSecondsOfMany), clock,
                    [&](std::size_t done, std::size_t all, const std::string& next) {
                      progress.show(message("plan {} of {}: {}", done + 1, all, next));
                    });
  progress.clear();
  if (!options.picture.empty()) write_picture(frontier_svg(step, rates, frontier), options.picture);
  out << (options.common.json ? json_text(json_of(step, rates, frontier.plans))
                              : frontier_text(step, rates, frontier));
  if (!options.picture.empty() && !options.common.json)
    out << "\ndrawn in " << options.picture << '\n';
}

void compare_strategies(const PlanOptions& options, const PlanningStep& step,
                        const ChosenRates& rates, Bytes budget, std::ostream& out,
                        const Clock& clock) {
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, rates), options.common.bound);
  std::vector<PlanFigures> plans;
  ProgressLine progress;
  const std::vector<Strategy>& all = options.common.strategies;
  for (const Strategy& strategy : all) {
    progress.show(message("plan {} of {}: {}", plans.size() + 1, all.size(), strategy.name));
    plans.push_back(
        plan_with(strategy, planning, options.common.effort.value_or(kSecondsOfMany), clock)
            .figures);
  }
  progress.clear();
  std::stable_sort(plans.begin(), plans.end(), [](const PlanFigures& a, const PlanFigures& b) {
    if (a.is_possible() != b.is_possible()) return a.is_possible();
    return a.step_seconds < b.step_seconds;
  });
  out << (options.common.json ? json_text(json_of(step, rates, plans))
                              : comparison_text(step, rates, plans));
}

}  // namespace

std::vector<NamedFile> files_read(const std::string& profile, const RateOptions& rates) {
  // The recorded rates of this machine are in nobody's words, and nobody wants them gone.
  return {{"PROFILE", profile},
          {"--rates", rates.rates.empty() ? topology::default_disk_rates_path() : rates.rates}};
}

EvaluatedPlan plan_asked_for(const CommonOptions& options, const PlanningCase& planning,
                             const Clock& clock) {
  const Strategy strategy = options.strategies.front();
  ProgressLine progress;
  progress.show(message("planning a step of {} within {}",
                        counted(planning.step.profile.tape.ops.size(), "operator"),
                        planning.budget));
  EvaluatedPlan evaluated =
      plan_with(strategy, planning, options.effort.value_or(kSecondsForOnePlan), clock);
  if (evaluated.figures.ran_out_of_memory)
    throw PlanError("the strategy '{}' has no plan: {} (give the command more memory, or try "
                    "--strategy belady, which does not search)",
                    strategy.name, evaluated.figures.refusal);
  if (evaluated.figures.cannot_replay)
    throw PlanError("the strategy '{}' cannot plan this step: {} (choose another one; --strategy "
                    "all shows which can)",
                    strategy.name, evaluated.figures.refusal);
  if (!evaluated.figures.is_possible())
    throw BudgetError("the strategy '{}' has no plan for {}: {} (a larger --budget, or --strategy "
                      "all shows which do)",
                      strategy.name, planning.budget, evaluated.figures.refusal);
  return evaluated;
}

void plan_from_profile(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  const CommonOptions& common = options.common;
  if (common.strategies.size() > 1 && !options.out.empty())
    throw ConfigError("--out {} stores one plan, and --strategy all makes many (name one strategy)",
                      options.out);
  if (!options.picture.empty()) check_picture_path(options.picture);
  check_outputs(files_read(common.profile, common.rates),
                {{"--out", options.out}, {"--picture", options.picture}});
  const PlanningStep step = load_step(common.profile);
  const ChosenRates rates = choose_rates(common.rates, step.profile);
  if (options.frontier) return draw_frontier(options, step, rates, out, clock);
  const Bytes budget = budget_in(step, *common.budget);
  warn_of_oversize(step, budget);
  if (common.strategies.size() > 1)
    return compare_strategies(options, step, rates, budget, out, clock);
  const planner::SwapLimits limits = limits_for(step, budget, rates);
  const PlanningCase planning = case_for(step, budget, limits, common.bound);
  const EvaluatedPlan evaluated = plan_asked_for(common, planning, clock);
  if (!options.out.empty())
    topology::write_file_at_once(
        options.out, planner::to_text(planner::describe_plan(evaluated.plan, planning.bound,
                                                             step.profile, limits, budget)));
  out << (common.json ? json_text(figures_json(step, rates, evaluated.figures))
                      : plan_text(step, rates, evaluated.figures));
  if (!options.out.empty() && !common.json)
    out << "plan stored in " << options.out << "; look at the step with: spillway simulate "
        << shell_word(common.profile) << " --plan " << shell_word(options.out) << " --trace "
        << shell_word(std::filesystem::path(options.out).replace_extension(".trace.json").string())
        << '\n';
}

}  // namespace spillway::cli
