#include "planning/plan_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exit_codes.h"
#include "planning/frontier.h"
#include "planning/job_command.h"
#include "planning/plan_report.h"
#include "planning/progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/plan_file.h"
#include "spillway/planner/strategies.h"
#include "spillway/topology/atomic_file.h"
#include "spillway/topology/disk_rates.h"

namespace spillway::cli {

using planner::Strategy;

namespace {

constexpr std::string_view kAll = "all";
constexpr std::size_t kPoints = 9;
constexpr std::size_t kMostPoints = 1000;

std::vector<Strategy> chosen_strategies(const std::string& name) {
  const auto all = planner::strategies();
  if (name == kAll) return {all.begin(), all.end()};
  return {name.empty() ? all.front() : planner::strategy_named(name)};
}

std::size_t points_in(const std::string& text) {
  if (text.empty()) return kPoints;
  std::size_t points = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, points);
  if (status != std::errc() || stop != end || points < 2 || points > kMostPoints)
    throw ConfigError("--points: '{}' is no whole number from 2 to {}", text, kMostPoints);
  return points;
}

void refuse_contradictions(const PlanOptions& options) {
  const CommonOptions& common = options.common;
  if (!options.picture.empty() && !options.frontier)
    throw ConfigError("write --frontier {} for a picture", options.picture);
  if (options.frontier) {
    if (!common.budget.empty())
      throw ConfigError(
          "--frontier plans for all budgets, so --budget {} has no place beside it (leave "
          "one out)",
          common.budget);
    if (!options.out.empty())
      throw ConfigError(
          "--out {} stores one plan, and --frontier makes many (name a --budget instead)",
          options.out);
    if (!options.picture.empty()) check_picture_path(options.picture);
    return;
  }
  if (!options.points.empty())
    throw ConfigError(
        "--points {} belongs to --frontier, which is missing (add it, or leave both out)",
        options.points);
  if (common.budget.empty())
    throw ConfigError("--budget is missing: name one (4GiB, 50%), or ask for all with --frontier");
  if (common.strategy == kAll && !options.out.empty())
    throw ConfigError("--out {} stores one plan, and --strategy all makes many (name one strategy)",
                      options.out);
}

std::vector<NamedFile> outputs_of(const PlanOptions& options) {
  return {{"--out", options.out}, {"--frontier", options.picture}};
}

nlohmann::ordered_json json_of(const PlanningStep& step, const ChosenRates& rates,
                               const std::vector<PlanFigures>& plans) {
  auto list = nlohmann::ordered_json::array();
  for (const PlanFigures& plan : plans) list.push_back(figures_json(step, rates, plan));
  return list;
}

int draw_frontier(const PlanOptions& options, const PlanningStep& step, const ChosenRates& rates,
                  std::ostream& out, const Clock& clock) {
  const auto strategies = chosen_strategies(options.common.strategy);
  ProgressLine progress;
  const Frontier frontier = plan_frontier(
      step, rates, bound_effort(options.common.bound), strategies, points_in(options.points),
      effort_seconds(options.common.effort, kSecondsOfMany), clock,
      [&](std::size_t done, std::size_t all, const std::string& next) {
        progress.show(message("plan {} of {}: {}", done + 1, all, next));
      });
  progress.clear();
  if (!options.picture.empty()) write_picture(step, rates, frontier, options.picture);
  if (options.common.json) {
    out << json_text(json_of(step, rates, frontier.plans));
    return kDone;
  }
  out << frontier_text(step, rates, frontier);
  if (!options.picture.empty()) out << "\ndrawn in " << options.picture << '\n';
  return kDone;
}

int compare_strategies(const PlanOptions& options, const PlanningStep& step,
                       const ChosenRates& rates, Bytes budget, std::ostream& out,
                       const Clock& clock) {
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, rates), bound_effort(options.common.bound));
  std::vector<PlanFigures> plans;
  ProgressLine progress;
  const auto all = planner::strategies();
  for (const Strategy& strategy : all) {
    progress.show(message("plan {} of {}: {}", plans.size() + 1, all.size(), strategy.name));
    plans.push_back(
        plan_with(strategy, planning, effort_seconds(options.common.effort, kSecondsOfMany), clock)
            .figures);
  }
  progress.clear();
  std::stable_sort(plans.begin(), plans.end(), [](const PlanFigures& a, const PlanFigures& b) {
    if (a.is_possible() != b.is_possible()) return a.is_possible();
    return a.step_seconds < b.step_seconds;
  });
  out << (options.common.json ? json_text(json_of(step, rates, plans))
                              : comparison_text(step, rates, plans));
  return kDone;
}

}  // namespace

std::vector<std::string> split_frontier(const std::vector<std::string>& options) {
  constexpr std::string_view kOption = "--frontier";
  constexpr std::array<std::string_view, 8> kPictures{".svg", ".png",  ".pdf", ".jpg",
                                                      ".gif", ".jpeg", ".eps", ".webp"};
  const auto is_picture = [&](const std::string& word) {
    return word.front() != '-' && std::any_of(kPictures.begin(), kPictures.end(), [&](auto ending) {
             return word.size() > ending.size() && word.ends_with(ending);
           });
  };
  std::vector<std::string> split;
  for (std::size_t at = 0; at < options.size(); ++at) {
    const std::string& word = options[at];
    const bool has_value = word.starts_with(std::string(kOption) + "=");
    if (word != kOption && !has_value) {
      split.push_back(word);
      continue;
    }
    split.emplace_back(kOption);
    if (has_value)
      split.push_back("--picture=" + word.substr(kOption.size() + 1));
    else if (at + 1 < options.size() && !options[at + 1].empty() && is_picture(options[at + 1]))
      split.push_back("--picture=" + options[++at]);
  }
  return split;
}

std::vector<NamedFile> files_read(const CommonOptions& options) {
  const std::string& rates = options.rates.rates;
  // The recorded rates of this machine are in nobody's words, and nobody wants them gone.
  return {{"PROFILE", options.profile},
          {"--rates", rates.empty() ? topology::default_disk_rates_path() : rates}};
}

BoundEffort bound_effort(const std::string& word) {
  constexpr std::array<Named<BoundEffort>, 2> kEfforts{
      {{"quick", BoundEffort::kQuick}, {"tight", BoundEffort::kTight}}};
  return word.empty() ? BoundEffort::kQuick : value_named(word, kEfforts, "bound");
}

double effort_seconds(const std::string& word, double fallback) {
  if (word.empty()) return fallback;
  double value = 0.0;
  const char* const end = word.data() + word.size();
  const auto [stop, status] = std::from_chars(word.data(), end, value);
  if (status != std::errc() || stop != end || !(value >= 0.0 && value <= 1e6))
    throw ConfigError("--effort: '{}' is no number of seconds from 0 to 1000000", word);
  return value;
}

EvaluatedPlan plan_asked_for(const CommonOptions& options, const PlanningCase& planning,
                             const Clock& clock) {
  const Strategy strategy = chosen_strategies(options.strategy).front();
  ProgressLine progress;
  progress.show(message("planning a step of {} operators within {}",
                        planning.step.profile.tape.ops.size(), planning.budget));
  EvaluatedPlan evaluated =
      plan_with(strategy, planning, effort_seconds(options.effort, kSecondsForOnePlan), clock);
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

int plan_from_profile(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  if (options.job.is_given()) return plan_for_ranks(options, out, clock);
  if (options.common.profile.empty())
    throw ConfigError("PROFILE is missing: the step, as `spillway profile` recorded it (see "
                      "spillway plan --help)");
  refuse_contradictions(options);
  check_outputs(files_read(options.common), outputs_of(options));
  if (options.common.strategy != kAll) chosen_strategies(options.common.strategy);
  points_in(options.points);
  bound_effort(options.common.bound);
  effort_seconds(options.common.effort, kSecondsOfMany);
  const PlanningStep step = load_step(options.common.profile);
  const ChosenRates rates = choose_rates(options.common.rates, step.profile);
  if (options.frontier) return draw_frontier(options, step, rates, out, clock);
  const Bytes budget = budget_in(step, options.common.budget);
  if (options.common.strategy == kAll)
    return compare_strategies(options, step, rates, budget, out, clock);
  const planner::SwapLimits limits = limits_for(step, budget, rates);
  const PlanningCase planning = case_for(step, budget, limits, bound_effort(options.common.bound));
  const EvaluatedPlan evaluated = plan_asked_for(options.common, planning, clock);
  if (!options.out.empty())
    topology::write_file_at_once(
        options.out, planner::to_text(planner::describe_plan(evaluated.plan, planning.bound,
                                                             step.profile, limits, budget)));
  if (options.common.json) {
    out << json_text(figures_json(step, rates, evaluated.figures));
    return kDone;
  }
  out << plan_text(step, rates, evaluated.figures);
  if (!options.out.empty())
    out << "plan stored in " << options.out << "; look at the step with: spillway simulate "
        << shell_word(options.common.profile) << " --plan " << shell_word(options.out)
        << " --trace step.json\n";
  return kDone;
}

}  // namespace spillway::cli
