#include "spillway/planner/schedule/generators.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"

namespace spillway::planner_schedule {
namespace {

// Far beyond any machine; lists of all ranks together stay below some gigabytes.
constexpr std::uint32_t kMostRanks = 1U << 16U;
constexpr std::uint64_t kMostCells = std::uint64_t{1} << 26U;

std::uint32_t stages_of_a_rank(const ScheduleGenerator& generator, const ScheduleRequest& request) {
  switch (generator.stages_per_rank) {
    case StagesPerRank::kOne: return 1;
    case StagesPerRank::kTwo: return 2;
    case StagesPerRank::kAsRequested: break;
  }
  return request.stages_per_rank;
}

}  // namespace

std::uint64_t ScheduleGenerator::stage_count(const ScheduleRequest& request) const {
  return std::uint64_t{request.ranks} * stages_of_a_rank(*this, request);
}

std::optional<std::string> ScheduleGenerator::fault(const ScheduleRequest& request) const {
  // No replicas are as many as the generator takes by itself, and counts that it ignores are right.
  const bool reads_stages = stages_per_rank == StagesPerRank::kAsRequested;
  for (const auto& [what, count] :
       std::initializer_list<std::pair<std::string_view, std::uint32_t>>{
           {"ranks", request.ranks},
           {"micro-batches", request.micro_batches},
           {"replicas", request.replicas != 0 ? request.replicas : 1},
           {"stages per rank", reads_stages ? request.stages_per_rank : 1},
           {"slots", request.slots}})
    if (count == 0 || count > kMostRanks)
      return message("{} needs between 1 and {} {}, not {}", name, kMostRanks, what, count);
  const std::uint64_t passes = stage_count(request) * request.micro_batches;
  if (passes > kMostCells)
    return message("{}: {} passes of micro-batches through stages are too many (use up to {})",
                   name, passes, kMostCells);
  return own_fault != nullptr ? own_fault(request) : std::nullopt;
}

Schedule ScheduleGenerator::generate(const ScheduleRequest& request) const {
  // Refused before anything is made, as counts may come from a command line.
  if (const auto reason = fault(request)) throw ConfigError("{}", *reason);
  Schedule schedule = make(request);
  schedule.name = name;
  // A generator is tested on small counts. A wrong index at others would be read far away from
  // here.
  schedule::check_shape(schedule);
  return schedule;
}

const ScheduleGenerator& schedule_generator_named(std::string_view name) {
  std::vector<Named<const ScheduleGenerator*>> named;
  for (const ScheduleGenerator& generator : schedule_generators())
    named.push_back({generator.name, &generator});
  return *value_named(name, named, "schedule");
}

}  // namespace spillway::planner_schedule
