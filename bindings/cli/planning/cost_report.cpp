#include "planning/cost_report.h"

#include <algorithm>

#include "planning/planning_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using planner::StageEstimate;

namespace {

constexpr std::size_t kStagesShown = 8;

/// "0-3 4-11", and how many more there are.
std::string stages_text(const std::vector<StageEstimate>& stages) {
  std::string text;
  for (std::size_t k = 0; k < std::min(stages.size(), kStagesShown); ++k)
    text += message("{}{}-{}", k == 0 ? "" : " ", stages[k].first_layer, stages[k].last_layer);
  if (stages.size() > kStagesShown) text += message(" and {} more", stages.size() - kStagesShown);
  return text;
}

}  // namespace

double CostCuts::bubble() const {
  const double whole = worst_seconds * static_cast<double>(stages.size());
  return whole > 0.0 ? std::max(0.0, 1.0 - all_seconds / whole) : 0.0;
}

double CostCuts::gap() const {
  return bound_seconds > 0.0 ? std::max(0.0, worst_seconds / bound_seconds - 1.0) : 0.0;
}

std::string cost_cuts_text(std::span<const CostCuts> cuts) {
  std::vector<std::vector<std::string>> rows{
      {"partitioner", "slowest stage", "idle", "above the best", "planned", "stages"}};
  std::string reasons;
  bool leaves_out = false;
  for (const CostCuts& each : cuts) {
    if (!each.refusal.empty()) {
      reasons += message("  {}: {}\n", each.partitioner, each.refusal);
      continue;
    }
    leaves_out = leaves_out || each.stages.size() > kStagesShown;
    rows.push_back({each.partitioner, seconds_text(each.worst_seconds), percent_text(each.bubble()),
                    percent_text(each.gap()), seconds_text(each.search_seconds),
                    stages_text(each.stages)});
  }
  return table_text(rows) + (leaves_out ? "--json tells all stages\n" : "") +
         (reasons.empty() ? "" : "Why some are none:\n" + reasons);
}

}  // namespace spillway::cli
