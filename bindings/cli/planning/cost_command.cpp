#include "planning/commands.h"

#include <algorithm>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>

#include "planning/report_table.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using partition::Partitioner;
using partition::StageEstimate;

namespace {

/// Cuts of a list of costs.
struct CostCuts {
  std::string partitioner;
  std::string refusal;  ///< Empty: the rest holds.
  std::vector<partition::StageEstimate> stages;
  double worst_seconds = 0.0;
  double all_seconds = 0.0;
  double bound_seconds = 0.0;  ///< Seconds of the slowest stage under the best cuts.
  double search_seconds = 0.0;

  bool is_possible() const { return refusal.empty(); }
  /// Share of all stages' time that they wait for the slowest one.
  double bubble() const {
    const double whole = worst_seconds * static_cast<double>(stages.size());
    return whole > 0.0 ? std::max(0.0, 1.0 - all_seconds / whole) : 0.0;
  }
  double gap() const { return share_above(worst_seconds, bound_seconds); }
};

constexpr std::size_t kStagesShown = 8;

/// "0-3 4-11", and how many more there are.
std::string stages_text(const std::vector<StageEstimate>& stages) {
  std::string text;
  for (std::size_t k = 0; k < std::min(stages.size(), kStagesShown); ++k)
    text += message("{}{}-{}", k == 0 ? "" : " ", stages[k].first_layer, stages[k].last_layer);
  if (stages.size() > kStagesShown) text += message(" and {} more", stages.size() - kStagesShown);
  return text;
}

Table stage_table(const std::vector<StageEstimate>& stages) {
  return {stages.size(),
          {{"", "first", of(stages, &StageEstimate::first_layer)},
           {"", "last", of(stages, &StageEstimate::last_layer)},
           {"", "seconds", of(stages, &StageEstimate::seconds, Figure::duration)},
           {"", "memory_bytes", of(stages, &StageEstimate::memory)},
           {"", "raw_memory_bytes", of(stages, &StageEstimate::raw_memory)}}};
}

/// Of a refusal, only that.
Table table_of(std::span<const CostCuts> cuts) {
  const auto stages = [](const std::vector<StageEstimate>& all) {
    return Figure{stages_text(all), table_json(stage_table(all))};
  };
  return {cuts.size(),
          {{"partitioner", "partitioner", of(cuts, &CostCuts::partitioner)},
           {"", "is_possible", of(cuts, &CostCuts::is_possible)},
           {"", "refusal", of(cuts, &CostCuts::refusal)},
           {"stages", "stages", if_possible(cuts, &CostCuts::stages, stages)},
           {"slowest stage", "step_seconds",
            if_possible(cuts, &CostCuts::worst_seconds, Figure::duration)},
           {"idle", "bubble", if_possible(cuts, &CostCuts::bubble, Figure::share)},
           {"", "bound", if_possible(cuts, &CostCuts::bound_seconds, Figure::duration)},
           {"above the best", "gap", if_possible(cuts, &CostCuts::gap, Figure::share)},
           {"planned", "search_seconds",
            if_possible(cuts, &CostCuts::search_seconds, Figure::duration)}}};
}

std::string cost_cuts_text(std::span<const CostCuts> cuts) {
  std::vector<CostCuts> possible;
  std::string reasons;
  bool leaves_out = false;
  for (const CostCuts& each : cuts) {
    if (each.is_possible())
      possible.push_back(each);
    else
      reasons += message("  {}: {}\n", each.partitioner, each.refusal);
    leaves_out |= each.stages.size() > kStagesShown;
  }
  return table_text(table_of(possible), {"partitioner", "slowest stage", "idle", "above the best",
                                         "planned", "stages"}) +
         (leaves_out ? "--json tells all stages\n" : "") +
         (reasons.empty() ? "" : "Why some are none:\n" + reasons);
}

CostCuts cut_with(const Partitioner& partitioner, const partition::SegmentCosts& costs,
                  double best_seconds, const Clock& clock) {
  CostCuts result;
  result.partitioner = partitioner.name;
  result.bound_seconds = best_seconds;
  const TimePoint begin = clock.now();
  const std::optional<partition::Cuts> cuts = partitioner.find(costs);
  result.search_seconds = seconds(clock.now() - begin);
  if (!cuts) {
    result.refusal = partitioner.refusal(costs);
    return result;
  }
  const partition::PartitionEstimate estimate = partition::evaluate(costs, *cuts);
  result.stages = estimate.stages;
  result.worst_seconds = estimate.seconds;
  result.all_seconds = costs.layer_seconds(0, costs.units());
  return result;
}

// "1,5" is a number where the comma is the decimal sign, and two costs elsewhere.
bool is_ambiguous(std::string_view word) {
  const std::size_t comma = word.find(',');
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return comma != std::string_view::npos && comma > 0 && comma + 1 < word.size() &&
         std::count(word.begin(), word.end(), ',') == 1 &&
         std::all_of(word.begin(), word.end(), [&](char c) { return c == ',' || is_digit(c); });
}

}  // namespace

std::vector<double> costs_in(const std::string& text, const std::string& file) {
  std::vector<double> costs;
  std::istringstream lines(text);
  std::size_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) {
      if (is_ambiguous(word))
        throw ConfigError("{}, line {}: '{}' may be one number or two (write a decimal point, or a "
                          "blank between two costs)",
                          file, number, shown_text(word));
      for (const std::string& each : comma_separated(word)) {
        if (each.empty()) continue;
        const std::optional<double> cost = number_in(each);
        if (!cost || !(*cost >= 0.0))
          throw ConfigError("{}, line {}: '{}' is no time (one number of seconds, at least 0, for "
                            "each layer, between blanks or commas)",
                            file, number, shown_text(each));
        costs.push_back(*cost);
      }
    }
  }
  if (costs.empty()) throw ConfigError("{}: there is no number in it (one for each layer)", file);
  return costs;
}

void cut_costs(const CostOptions& options, std::ostream& out, const Clock& clock) {
  const std::string text = topology::text_of_file(options.costs);
  partition::PartitionProblem problem;
  try {
    problem.chain = job::chain_of_costs(costs_in(text, options.costs));
    problem.devices.resize(options.ranks);
    check(problem);
  } catch (const ConfigError& error) {
    const std::string_view sentence = error.what();
    throw ConfigError("{}{}", sentence.starts_with(options.costs) ? "" : options.costs + ": ",
                      sentence);
  }
  const partition::SegmentCosts costs(std::move(problem));
  const auto best = partition::least_time_cuts(costs);
  std::vector<CostCuts> cuts;
  for (const Partitioner& each : partition::partitioners())
    if (options.compare || each.name == options.partitioner)
      cuts.push_back(cut_with(each, costs, best ? best->worst : 0.0, clock));
  if (!options.compare && !cuts.front().refusal.empty())
    throw PlanError("{}: {}", options.partitioner, cuts.front().refusal);
  const ordered_json list = table_json(table_of(cuts));
  out << (options.json ? json_text(options.compare ? list : list.front()) : cost_cuts_text(cuts));
}

}  // namespace spillway::cli
