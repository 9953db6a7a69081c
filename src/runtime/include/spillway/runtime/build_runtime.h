#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/recording/transfer_meter.h"
#include "spillway/runtime/runtime.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/mapper_choice.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/runtime/settings/spill_directories.h"

namespace spillway::runtime {

/// Surroundings of a run; tests give their own.
struct RunSurroundings {
  topology::Machine machine;
  unsigned ranks_here = 1;  ///< Processes of the same job on the machine, this one included.
  MapperSurroundings mappers;
  DirectorySurroundings directories;
};

/// This machine, as `settings` want to know it. Throws as `real_surroundings`.
RunSurroundings surroundings_of_this_process(const Settings& settings);

/// The parts of a run, in the order in which they are made, and what was chosen for them. The
/// runtime and its engine point to those above it.
struct RunParts {
  ResolvedBudget budget;
  memory::MapperKind mapper{};
  std::string store_name;
  std::vector<std::string> directories;
  Bytes endurance;  ///< Rated writes of all spill drives together; 0: they do not wear.
  std::shared_ptr<const planner::PlanFile> plan;  ///< Plan that the user gave; may be null.
  std::unique_ptr<StepTraceRecorder> trace;       ///< With `trace` only.
  std::unique_ptr<ProfileRecording> recording;    ///< With `profile_out` only.
  std::unique_ptr<TransferMeter> transfers;
  std::unique_ptr<Runtime> runtime;
};

/// Makes the runtime that `settings` ask for. Tells its choices by the log. Throws one of
/// Spillway's errors for what cannot be, with nothing left behind. `clock` outlives the parts.
RunParts build_runtime(const Settings& settings, const RunSurroundings& surroundings,
                       const Clock& clock);

}  // namespace spillway::runtime
