#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "spillway/base/bytes.h"
#include "spillway/planner/plan_file.h"
#include "spillway/planner/strategies.h"

namespace spillway::runtime {

/// When plans are made: in the background while steps go on, or at once while the step waits; then
/// the search does not depend on the clock. What it is told of does: operators as fast as they
/// were.
enum class PlanningMoment : std::uint8_t { kInBackground, kAtOnce };

/// How a run comes to its plans.
struct PlanningOptions {
  PlanningMoment moment = PlanningMoment::kAtOnce;
  bool recomputes = false;                      ///< Plans may drop values and compute them again.
  const planner::Strategy* strategy = nullptr;  ///< Null: ours, getting better while it is used.
  /// Used for the step that it is for; may be null.
  std::shared_ptr<const planner::PlanFile> stored = {};
  std::string stored_name = {};  ///< Its file, for messages.
  /// What the plan that the user gave is for, where that is something else: "cuda:1", or "the CPU".
  std::string stored_elsewhere = {};
  double processors = 1.0;  ///< That may be used; searches see to it.
};

}  // namespace spillway::runtime
