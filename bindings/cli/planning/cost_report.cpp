#include "planning/cost_report.h"

#include <algorithm>

#include "planning/planning_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using planner::StageEstimate;

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
  for (const CostCuts& each : cuts) {
    if (!each.refusal.empty()) {
      reasons += message("  {}: {}\n", each.partitioner, each.refusal);
      continue;
    }
    std::string stages;
    for (const StageEstimate& stage : each.stages)
      stages += message("{}{}-{}", stages.empty() ? "" : " ", stage.first_layer, stage.last_layer);
    rows.push_back({each.partitioner, seconds_text(each.worst_seconds), percent_text(each.bubble()),
                    percent_text(each.gap()), seconds_text(each.search_seconds), stages});
  }
  return table_text(rows) + (reasons.empty() ? "" : "Why some are none:\n" + reasons);
}

}  // namespace spillway::cli
