#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planning/planning_step.h"
#include "spillway/profile/chrome_trace.h"

namespace spillway::cli {

/// One operator with what stands before it (waits, operators that run again for it), up to the next
/// one.
struct OperatorTimes {
  planner::OpIndex op = 0;
  double planned_seconds = 0.0;
  double measured_seconds = 0.0;

  double difference() const { return measured_seconds - planned_seconds; }
};

/// A measured step beside the predicted one.
struct TraceOverlay {
  std::string step;              ///< "step 12"
  double planned_seconds = 0.0;  ///< Seconds of the step.
  double measured_seconds = 0.0;
  double spread_slowdown_seconds = 0.0;  ///< Planned, in one piece, in no operator's time.
  std::vector<OperatorTimes> operators;  ///< Largest difference first, either way.
  profile::StepTrace measured;           ///< The measured step, which begins at 0.
};

/// Lays the latest step of `run` (what `spillway run --trace` wrote, read from the file `name`)
/// that has the operators of `step` beside the prediction. Throws PlanError when there is none.
TraceOverlay overlay(const PlanningStep& step, const profile::StepTrace& predicted,
                     const profile::StepTrace& run, const std::string& name);

/// Sentences and a table of the largest differences.
std::string overlay_text(const PlanningStep& step, const TraceOverlay& overlay);

/// The same for programs; planning_output.md has the keys.
nlohmann::ordered_json overlay_json(const PlanningStep& step, const TraceOverlay& overlay);

}  // namespace spillway::cli
