#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/schedule/generators.h"

namespace spillway::job {

/// The way in which a plan reduces memory to that of its devices.
enum class JobMemoryReduction : std::uint8_t {
  kStages,       ///< Each stage swaps a part of every stash and recomputes layers.
  kRecompute,    ///< Each stage recomputes layers and swaps nothing.
  kIdleOffload,  ///< Whole stashes are swapped in idle time; ranks that are too full recompute.
};

/// "stages", "recompute", "idle-offload"
std::string_view to_string(JobMemoryReduction memory_reduction);

/// Handling of the second copy of weights on ranks that have two stages and alternate between them.
enum class SecondCopy : std::uint8_t {
  kStepped,      ///< Both copies stay on the device, and both are updated there.
  kParked,       ///< The copy that is not in use is on the host.
  kSingleOwner,  ///< One copy owns the stage: it sends weights, receives gradients and updates.
};

/// Options of a schedule; 0: the planner chooses.
struct JobVariant {
  std::uint32_t chunks = 0;    ///< Stages per rank, of schedules that leave them open.
  std::uint32_t slots = 0;     ///< 1f1b-capped: limit of micro-batches in flight.
  std::uint32_t replicas = 0;  ///< gems-basic, gems-master: passes over the model.
  SecondCopy second_copy = SecondCopy::kStepped;
  std::optional<JobMemoryReduction> memory_reduction{};  ///< Empty: the fastest one.

  bool operator==(const JobVariant&) const = default;
};

/// "slots=3", "replicas=4,parked", "idle-offload"; empty where all options are open.
std::string to_string(const JobVariant& variant);

/// Whether it takes `SecondCopy::kParked`: ranks have two copies of weights or several stages, and
/// never work on two of them at once. With another number of stages than two it is refused.
bool can_park(const planner_schedule::ScheduleGenerator& generator);

/// A schedule with its options.
struct NamedSchedule {
  const planner_schedule::ScheduleGenerator* generator = nullptr;
  JobVariant variant;
};

/// Reads "1f1b-capped", "1f1b-capped:slots=3" or "gems-mast:parked,idle-offload". Throws
/// ConfigError for an unknown schedule, with the nearest name, and for options that the schedule
/// does not have.
NamedSchedule schedule_in(std::string_view text);

/// What such a text may begin with: the schedules, and with each count that one leaves open once
/// more: "1f1b-capped:slots=".
std::vector<std::string> schedule_beginnings();

/// Writes "1f1b-capped:slots=3", which `schedule_in` reads.
std::string schedule_text(std::string_view schedule, const JobVariant& variant);
/// The same for options that `to_string` has written.
std::string schedule_text(std::string_view schedule, std::string_view variant);

/// Throws ConfigError for options that the schedule does not have.
void check(const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant);

/// The request to the generator for one pipeline of `ranks` and its micro-batches. Defaults of open
/// options: two stages per rank, half of the micro-batches in flight of 1F1B, and the largest
/// number of replicas that the generator takes.
planner_schedule::ScheduleRequest schedule_request_for(
    const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant,
    std::uint32_t ranks, std::uint32_t micro_batches);

/// The variant with open options as the action lists have them; an open kind of memory reduction
/// stays open.
JobVariant as_made(const planner_schedule::ScheduleGenerator& generator, const JobVariant& variant,
                   const schedule::Schedule& compute);

}  // namespace spillway::job
