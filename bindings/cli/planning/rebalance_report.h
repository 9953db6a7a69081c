#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "spillway/planner/job/job_rebalance.h"

namespace spillway::cli {

/// A stored plan that was taken up with a new profile.
struct RebalanceReport {
  std::string profile;  ///< Path.
  std::string path;     ///< Path of the stored plan.
  std::optional<double> steps_left;
  planner::JobFile stored;
  planner::JobRequest request;
  planner::RebalancedJob job;
  double search_seconds = 0.0;

  /// The moves to make; null where the stages stay.
  const planner::RebalanceChoice* chosen() const {
    return job.chosen ? &job.choices[*job.chosen] : nullptr;
  }
};

/// The step before and after, each move, whether it pays, other choices, and the stages.
std::string rebalance_text(const RebalanceReport& report);

/// The keys that planning_output.md describes.
nlohmann::ordered_json rebalance_json(const RebalanceReport& report);

}  // namespace spillway::cli
