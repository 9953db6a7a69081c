#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// Request to a generator. It ignores options that it does not have.
struct ScheduleRequest {
  std::uint32_t ranks = 0;
  std::uint32_t micro_batches = 0;  ///< All in the action list, of all replicas together.
  /// GEMS: passes over the model, one after the other. 0: one for gems-basic, two for gems-mast,
  /// one per micro-batch for gems-master.
  std::uint32_t replicas = 0;
  std::uint32_t stages_per_rank = 2;  ///< Interleaved and breadth-first.
  std::uint32_t slots = 1;            ///< Memory-capped 1F1B: micro-batches in flight at most.
  std::uint32_t update_every = 0;     ///< PipeDream-2BW: micro-batches; 0: as many as ranks.
};

/// How many stages each rank has.
enum class StagesPerRank : std::uint8_t {
  kOne,
  kTwo,
  kAsRequested,  ///< `ScheduleRequest::stages_per_rank`.
};

/// A way to order the work of a pipeline. The action lists hold compute and steps; messages,
/// reductions and copies are added by passes (schedule_passes.h).
struct ScheduleGenerator {
  using Make = Schedule (*)(const ScheduleRequest& request);

  /// The schedule, named. Throws ConfigError for counts that it cannot serve, with ones that it
  /// can.
  Schedule generate(const ScheduleRequest& request) const;

  /// Returns the number of stages of all ranks of such action lists together.
  std::uint64_t stage_count(const ScheduleRequest& request) const;

  std::string_view name;
  std::string_view summary;  ///< One line for users.
  std::string_view source;   ///< Paper or repository that it follows.
  Make make;
  StagesPerRank stages_per_rank = StagesPerRank::kOne;
};

/// All of them: 1f1b, which of equals is the plainest, then by the names of their files.
std::span<const ScheduleGenerator> schedule_generators();

/// Throws ConfigError with the nearest name.
const ScheduleGenerator& schedule_generator_named(std::string_view name);

}  // namespace spillway::planner
