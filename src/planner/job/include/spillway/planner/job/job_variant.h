#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {

/// How a plan gets into the memory of its devices.
enum class JobMemoryReduction : std::uint8_t {
  kStages,       ///< Each stage swaps a part of every stash, and recomputes layers.
  kRecompute,    ///< Each stage recomputes layers, and swaps nothing.
  kIdleOffload,  ///< Whole stashes leave in idle time; ranks that are still too full recompute.
};

/// "stages", "recompute", "idle-offload"
std::string_view to_string(JobMemoryReduction memory_reduction);

/// What becomes of weights that a rank does not use: it has two stages, and works on them in turn.
enum class SecondCopy : std::uint8_t {
  kStepped,      ///< They stay, and every copy is updated where it is.
  kParked,       ///< They are on the host while the other ones are in use.
  kSingleOwner,  ///< One of two copies of a stage owns it: it lends, gets gradients back, and
                 ///< steps.
};

/// What a schedule leaves open. 0 leaves it to whoever plans.
struct JobVariant {
  std::uint32_t chunks = 0;    ///< interleaved, breadth-first: stages of each rank.
  std::uint32_t slots = 0;     ///< 1f1b-capped: micro-batches in flight at most.
  std::uint32_t replicas = 0;  ///< gems-basic, gems-master: passes over the model.
  SecondCopy second_copy = SecondCopy::kStepped;
  std::optional<JobMemoryReduction> memory_reduction{};  ///< None: the fastest one.

  bool operator==(const JobVariant&) const = default;
};

/// "slots=3", "replicas=4,parked", "idle-offload"; empty where all is left open.
std::string to_string(const JobVariant& variant);

/// A schedule and what is said of it.
struct NamedSchedule {
  const ScheduleGenerator* generator = nullptr;
  JobVariant variant;
};

/// "1f1b-capped", "1f1b-capped:slots=3", "gems-mast:parked,idle-offload". Throws ConfigError with
/// the nearest name for an unknown schedule, and for what it does not leave open.
NamedSchedule schedule_in(std::string_view text);

/// "1f1b-capped:slots=3": what `schedule_in` reads.
std::string schedule_text(std::string_view schedule, const JobVariant& variant);
/// The same of a variant as `to_string` says it.
std::string schedule_text(std::string_view schedule, std::string_view variant);

/// Throws ConfigError for figures that the schedule has no use for.
void check(const ScheduleGenerator& generator, const JobVariant& variant);

/// What the generator is asked for on so many ranks of one pipeline, with its micro-batches. Left
/// open: two stages per rank, half the slots of what 1F1B holds at its most, replicas as many as
/// the generator takes.
ScheduleRequest schedule_request_for(const ScheduleGenerator& generator, const JobVariant& variant,
                                     std::uint32_t ranks, std::uint32_t micro_batches);

/// The variant with what was left open as the action lists have it, but for the kind of memory
/// reduction.
JobVariant as_made(const ScheduleGenerator& generator, const JobVariant& variant,
                   const Schedule& compute);

}  // namespace spillway::planner
