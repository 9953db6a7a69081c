#include "planning/cost_command.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exit_codes.h"
#include "planning/cost_report.h"
#include "planning/job_contradictions.h"
#include "planning/job_json.h"
#include "planning/plan_report.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::Partitioner;

namespace {

CostCuts cut_with(const Partitioner& partitioner, const planner::SegmentCosts& costs,
                  double best_seconds, const Clock& clock) {
  CostCuts result;
  result.partitioner = partitioner.name;
  result.bound_seconds = best_seconds;
  const TimePoint begin = clock.now();
  try {
    const planner::Cuts cuts = partitioner.cut(costs);
    result.search_seconds = seconds(clock.now() - begin);
    const planner::PartitionEstimate estimate = planner::evaluate(costs, cuts);
    result.stages = estimate.stages;
    result.worst_seconds = estimate.seconds;
    result.all_seconds = costs.layer_seconds(0, costs.units());
  } catch (const PlanError& error) {
    result.refusal = error.what();
  }
  return result;
}

}  // namespace

namespace {

// "1,5" is a number where the comma is the decimal sign, and two costs elsewhere.
bool is_ambiguous(std::string_view word) {
  const std::size_t comma = word.find(',');
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return comma != std::string_view::npos && comma > 0 && comma + 1 < word.size() &&
         std::count(word.begin(), word.end(), ',') == 1 &&
         std::all_of(word.begin(), word.end(), [&](char c) { return c == ',' || is_digit(c); });
}

std::string_view word_at(const char* begin, const char* end) {
  const char* const stop = std::find_if(begin, end, [](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#';
  });
  return {begin, static_cast<std::size_t>(stop - begin)};
}

}  // namespace

std::vector<double> costs_in(std::string_view text, const std::string& file) {
  std::vector<double> costs;
  std::size_t line = 1;
  const char* at = text.data();
  const char* evaluated = at;  // Words before it are not ambiguous.
  const char* const end = at + text.size();
  const auto is_between = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == ','; };
  while (at != end) {
    if (*at == '\n') {
      ++line;
      ++at;
    } else if (*at == '#') {
      at = std::find(at, end, '\n');
    } else if (is_between(*at)) {
      ++at;
    } else {
      const std::string_view word = word_at(at, end);
      if (at >= evaluated && is_ambiguous(word))
        throw ConfigError("{}, line {}: '{}' may be one number or two (write a decimal point, or a "
                          "blank between two costs)",
                          file, line, shown_text(word));
      evaluated = std::max(evaluated, word.data() + word.size());
      const char* const stop =
          std::find_if(at, end, [&](char c) { return c == '\n' || c == '#' || is_between(c); });
      double value = 0.0;
      const auto [parsed, status] = std::from_chars(at, stop, value);
      if (status != std::errc() || parsed != stop)
        throw ConfigError("{}, line {}: '{}' is no number (one cost for each layer, between blanks "
                          "or commas)",
                          file, line, shown_text({at, static_cast<std::size_t>(stop - at)}));
      costs.push_back(value);
      at = stop;
    }
  }
  if (costs.empty()) throw ConfigError("{}: there is no number in it (one for each layer)", file);
  return costs;
}

int cut_costs(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  const JobOptions& job = options.job;
  refuse_any(options_of_job(options), "has no place beside --costs, which is about time alone");
  refuse_any({{"PROFILE", &options.common.profile}},
             "has no place beside --costs: name one of both");
  const std::uint32_t ranks = ranks_in(job);
  const Partitioner& asked = job.partitioner.empty() ? planner::partitioners().front()
                                                     : planner::partitioner_named(job.partitioner);
  const std::string text = topology::text_of_file(job.costs);
  planner::PartitionProblem problem;
  try {
    problem.chain = planner::chain_of_costs(costs_in(text, job.costs));
    problem.devices.resize(ranks);
    check(problem);
  } catch (const ConfigError& error) {
    const std::string_view sentence = error.what();
    throw ConfigError("{}{}", sentence.starts_with(job.costs) ? "" : job.costs + ": ", sentence);
  }
  const planner::SegmentCosts costs(std::move(problem));
  const auto best = planner::least_time_cuts(costs);
  std::vector<CostCuts> cuts;
  for (const Partitioner& each : planner::partitioners())
    if (job.compare || each.name == asked.name)
      cuts.push_back(cut_with(each, costs, best ? best->worst : 0.0, clock));
  if (!job.compare && !cuts.front().refusal.empty())
    throw PlanError("{}: {}", asked.name, cuts.front().refusal);
  if (!options.common.json) {
    out << cost_cuts_text(cuts);
    return kDone;
  }
  auto list = ordered_json::array();
  for (const CostCuts& each : cuts) list.push_back(cost_cuts_json(each));
  out << json_text(job.compare ? list : list.front());
  return kDone;
}

}  // namespace spillway::cli
