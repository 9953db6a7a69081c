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

void refuse_contradictions(const PlanWords& words) {
  const PlanningWords& common = words.common;
  if (!words.picture.empty() && !words.frontier)
    throw ConfigError("write --frontier {} for a picture", words.picture);
  if (words.frontier) {
    if (!common.budget.empty())
      throw ConfigError(
          "--frontier plans for all budgets, so --budget {} has no place beside it (leave "
          "one out)",
          common.budget);
    if (!words.out.empty())
      throw ConfigError(
          "--out {} stores one plan, and --frontier makes many (name a --budget instead)",
          words.out);
    if (!words.picture.empty()) check_picture_path(words.picture);
    return;
  }
  if (!words.points.empty())
    throw ConfigError(
        "--points {} belongs to --frontier, which is missing (add it, or leave both out)",
        words.points);
  if (common.budget.empty())
    throw ConfigError("--budget is missing: name one (4GiB, 50%), or ask for all with --frontier");
  if (common.strategy == kAll && !words.out.empty())
    throw ConfigError("--out {} stores one plan, and --strategy all makes many (name one strategy)",
                      words.out);
}

std::vector<NamedFile> outputs_of(const PlanWords& words) {
  return {{"--out", words.out}, {"--frontier", words.picture}};
}

nlohmann::ordered_json json_of(const PlanningStep& step, const ChosenRates& rates,
                               const std::vector<PlanFigures>& plans) {
  auto list = nlohmann::ordered_json::array();
  for (const PlanFigures& plan : plans) list.push_back(figures_json(step, rates, plan));
  return list;
}

int draw_frontier(const PlanWords& words, const PlanningStep& step, const ChosenRates& rates,
                  std::ostream& out, const Clock& clock) {
  const auto strategies = chosen_strategies(words.common.strategy);
  ProgressLine progress;
  const Frontier frontier =
      plan_frontier(step, rates, bound_effort(words.common.bound), strategies,
                    points_in(words.points), effort_seconds(words.common.effort, kSecondsOfMany),
                    clock, [&](std::size_t done, std::size_t all, const std::string& next) {
                      progress.show(message("plan {} of {}: {}", done + 1, all, next));
                    });
  progress.clear();
  if (!words.picture.empty()) write_picture(step, rates, frontier, words.picture);
  if (words.common.json) {
    out << json_text(json_of(step, rates, frontier.plans));
    return kDone;
  }
  out << frontier_text(step, rates, frontier);
  if (!words.picture.empty()) out << "\ndrawn in " << words.picture << '\n';
  return kDone;
}

int compare_strategies(const PlanWords& words, const PlanningStep& step, const ChosenRates& rates,
                       Bytes budget, std::ostream& out, const Clock& clock) {
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, rates), bound_effort(words.common.bound));
  std::vector<PlanFigures> plans;
  ProgressLine progress;
  const auto all = planner::strategies();
  for (const Strategy& strategy : all) {
    progress.show(message("plan {} of {}: {}", plans.size() + 1, all.size(), strategy.name));
    plans.push_back(
        plan_with(strategy, planning, effort_seconds(words.common.effort, kSecondsOfMany), clock)
            .figures);
  }
  progress.clear();
  std::stable_sort(plans.begin(), plans.end(), [](const PlanFigures& a, const PlanFigures& b) {
    if (a.is_possible() != b.is_possible()) return a.is_possible();
    return a.step_seconds < b.step_seconds;
  });
  out << (words.common.json ? json_text(json_of(step, rates, plans))
                            : comparison_text(step, rates, plans));
  return kDone;
}

}  // namespace

std::vector<std::string> split_frontier(const std::vector<std::string>& words) {
  constexpr std::string_view kOption = "--frontier";
  constexpr std::array<std::string_view, 8> kPictures{".svg", ".png",  ".pdf", ".jpg",
                                                      ".gif", ".jpeg", ".eps", ".webp"};
  const auto is_picture = [&](const std::string& word) {
    return word.front() != '-' && std::any_of(kPictures.begin(), kPictures.end(), [&](auto ending) {
             return word.size() > ending.size() && word.ends_with(ending);
           });
  };
  std::vector<std::string> split;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    const bool has_value = word.starts_with(std::string(kOption) + "=");
    if (word != kOption && !has_value) {
      split.push_back(word);
      continue;
    }
    split.emplace_back(kOption);
    if (has_value)
      split.push_back("--picture=" + word.substr(kOption.size() + 1));
    else if (at + 1 < words.size() && !words[at + 1].empty() && is_picture(words[at + 1]))
      split.push_back("--picture=" + words[++at]);
  }
  return split;
}

std::vector<NamedFile> files_read(const PlanningWords& words) {
  const std::string& rates = words.rates.rates;
  // The recorded rates of this machine are in nobody's words, and nobody wants them gone.
  return {{"PROFILE", words.profile},
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

EvaluatedPlan plan_asked_for(const PlanningWords& words, const PlanningCase& planning,
                             const Clock& clock) {
  const Strategy strategy = chosen_strategies(words.strategy).front();
  ProgressLine progress;
  progress.show(message("planning a step of {} operators within {}",
                        planning.step.profile.tape.ops.size(), planning.budget));
  EvaluatedPlan evaluated =
      plan_with(strategy, planning, effort_seconds(words.effort, kSecondsForOnePlan), clock);
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

int plan_from_profile(const PlanWords& words, std::ostream& out, const Clock& clock) {
  if (words.job.is_given()) return plan_for_ranks(words, out, clock);
  if (words.common.profile.empty())
    throw ConfigError("PROFILE is missing: the step, as `spillway profile` recorded it (see "
                      "spillway plan --help)");
  refuse_contradictions(words);
  check_outputs(files_read(words.common), outputs_of(words));
  if (words.common.strategy != kAll) chosen_strategies(words.common.strategy);
  points_in(words.points);
  bound_effort(words.common.bound);
  effort_seconds(words.common.effort, kSecondsOfMany);
  const PlanningStep step = load_step(words.common.profile);
  const ChosenRates rates = choose_rates(words.common.rates, step.profile);
  if (words.frontier) return draw_frontier(words, step, rates, out, clock);
  const Bytes budget = budget_in(step, words.common.budget);
  if (words.common.strategy == kAll)
    return compare_strategies(words, step, rates, budget, out, clock);
  const planner::SwapLimits limits = limits_for(step, budget, rates);
  const PlanningCase planning = case_for(step, budget, limits, bound_effort(words.common.bound));
  const EvaluatedPlan evaluated = plan_asked_for(words.common, planning, clock);
  if (!words.out.empty())
    topology::write_file_at_once(
        words.out, planner::to_text(planner::describe_plan(evaluated.plan, planning.bound,
                                                           step.profile, limits, budget)));
  if (words.common.json) {
    out << json_text(figures_json(step, rates, evaluated.figures));
    return kDone;
  }
  out << plan_text(step, rates, evaluated.figures);
  if (!words.out.empty())
    out << "plan stored in " << words.out << "; look at the step with: spillway simulate "
        << shell_word(words.common.profile) << " --plan " << shell_word(words.out)
        << " --trace step.json\n";
  return kDone;
}

}  // namespace spillway::cli
