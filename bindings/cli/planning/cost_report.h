#pragma once

#include <span>
#include <string>
#include <vector>

#include "spillway/planner/partition/partition_estimate.h"

namespace spillway::cli {

/// Cuts of a list of costs.
struct CostCuts {
  std::string partitioner;
  std::string refusal;  ///< Empty: the rest holds.
  std::vector<planner::StageEstimate> stages;
  double worst_seconds = 0.0;
  double all_seconds = 0.0;
  double bound_seconds = 0.0;  ///< Seconds of the slowest stage under the best cuts.
  double search_seconds = 0.0;

  double bubble() const;  ///< Share of all stages' time that they wait for the slowest one.
  double gap() const;
};

std::string cost_cuts_text(std::span<const CostCuts> cuts);

}  // namespace spillway::cli
