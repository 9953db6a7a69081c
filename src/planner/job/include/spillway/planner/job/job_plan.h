#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partition_referee.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// What one rank holds at its fullest moment.
struct RankMemory {
  Bytes peak;   ///< By the schedule's referee, with `fixed`.
  Bytes fixed;  ///< What no action moves: working peak, relayed tensors, reserved bytes.
  Bytes host;   ///< Swapped stash of all micro-batches in flight.
};

/// How a plan gets into the memory of its devices.
enum class JobRelief : std::uint8_t {
  kStages,   ///< Each stage swaps a part of every stash, and computes layers again.
  kWindows,  ///< Whole stashes leave in idle windows; ranks that are still too full compute again.
};

/// "stages", "windows"
std::string_view to_string(JobRelief relief);

/// A model cut into stages, and what each rank does with them in which order.
struct JobPlan {
  std::string partitioner;
  std::string schedule;
  std::uint32_t ranks = 1;          ///< Of all groups.
  std::uint32_t groups = 1;         ///< That do the same with micro-batches of their own.
  std::uint32_t micro_batches = 1;  ///< Of all groups.
  Bytes device_memory = kNoLimit;
  JobRelief relief = JobRelief::kStages;

  std::vector<StageEstimate> stages;     ///< Layers, times, what is swapped and computed again.
  std::vector<StageFactors> factors;     ///< By stage, that the cuts were made for.
  double seconds_per_micro_batch = 0.0;  ///< Of the slowest stage.
  double rounding_gap = 0.0;  ///< What recomputing whole layers costs there, over fractions.

  Schedule actions;  ///< Of one group, with messages.
  ScheduleCosts costs;
  ScheduleTiming timing;
  std::vector<RankMemory> memory;  ///< By rank of a group.

  double step_seconds = 0.0;
  double bound_seconds = 0.0;

  double gap() const { return bound_seconds > 0.0 ? step_seconds / bound_seconds - 1.0 : 0.0; }
  Bytes peak() const;
  double exposed_communication_seconds() const;  ///< Of the rank that waits most.
};

/// The stages that a partitioner cuts for a schedule, and their step by the schedule's referee.
/// Stages get the memory of their device in equal parts where a rank has several. Where stages need
/// relief, there is a link to the host, and lists are short (1,024 passes of micro-batches through
/// stages), both kinds of relief are tried, and the faster one counts.
///
/// Throws ConfigError for counts that the schedule cannot serve, with ones that it can, for more
/// stages than layers and for a layer that fits on no device; PlanError where cuts or ranks do not
/// fit, with the fullest one.
JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const ScheduleGenerator& generator, std::uint32_t groups);

}  // namespace spillway::planner
