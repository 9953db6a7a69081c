#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner_schedule {

/// Request to a generator. It ignores options that it does not have.
struct ScheduleRequest {
  std::uint32_t ranks = 0;
  std::uint32_t micro_batches = 0;  ///< All in the action list, of all replicas together.
  /// GEMS: passes over the model, one after the other. 0: one for gems-basic, two for gems-mast,
  /// one per micro-batch for gems-master.
  std::uint32_t replicas = 0;
  std::uint32_t stages_per_rank = 2;  ///< Of the schedules that take it as requested.
  std::uint32_t slots = 1;            ///< Memory-capped 1F1B: micro-batches in flight at most.
};

/// How many stages each rank has.
enum class StagesPerRank : std::uint8_t {
  kOne,
  kTwo,
  kAsRequested,  ///< `ScheduleRequest::stages_per_rank`.
};

/// How passes over the model follow each other.
enum class Alternation : std::uint8_t {
  kNone,   ///< Forwards and backwards of a pass overlap.
  kApart,  ///< Each pass has all its forwards first, and ends before the next one begins.
  kMeet,   ///< The next pass has its last stage on the rank where the one before ends.
};

/// What the action lists of a generator have in common, whatever their counts: proven bounds and
/// the search for variants rest on it. What a generator does not say is what holds for all.
struct ScheduleTraits {
  std::uint32_t copies = 2;  ///< Ranks of one pipeline that can share the work of a layer.
  bool is_whole = false;     ///< No backward is split, so gradients are sent at its end.
  bool has_pairs = false;    ///< A forward and a backward of two stages run as one.
  Alternation alternation = Alternation::kNone;
  std::uint32_t passes = 1;  ///< Where passes alternate and no replicas are asked for; 0: one for
                             ///< each micro-batch.
  bool has_slots = false;    ///< `ScheduleRequest::slots` counts.
  /// `ScheduleRequest::replicas` counts, and is worth a try from this number on: fewer are other
  /// schedules. 0: it does not count.
  std::uint32_t fewest_replicas = 0;
};

/// A way to order the work of a pipeline. The action lists hold compute and steps; messages,
/// reductions and copies are added by passes (schedule_passes.h).
struct ScheduleGenerator {
  using Make = Schedule (*)(const ScheduleRequest& request);
  using Fault = std::optional<std::string> (*)(const ScheduleRequest& request);

  /// Why it cannot serve these counts, with ones that it can; nothing where it can.
  std::optional<std::string> fault(const ScheduleRequest& request) const;

  /// The schedule, named. Throws ConfigError with the fault.
  Schedule generate(const ScheduleRequest& request) const;

  /// Returns the number of stages of all ranks of such action lists together.
  std::uint64_t stage_count(const ScheduleRequest& request) const;

  std::string_view name;
  std::string_view summary;  ///< One line for users.
  std::string_view source;   ///< Paper or repository that it follows.
  Make make;
  StagesPerRank stages_per_rank = StagesPerRank::kOne;
  ScheduleTraits traits{};
  Fault own_fault = nullptr;  ///< Of counts within the ranges that hold for all.
};

/// All of them: 1f1b, which of equals is the plainest, then by the names of their files.
std::span<const ScheduleGenerator> schedule_generators();

/// Throws ConfigError with the nearest name.
const ScheduleGenerator& schedule_generator_named(std::string_view name);

}  // namespace spillway::planner_schedule
