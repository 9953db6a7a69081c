#include "spillway/planner/schedule/generators.h"

#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/named_values.h"

namespace spillway::planner {
namespace {

// Far beyond any machine; lists of all ranks together stay below some gigabytes.
constexpr std::uint32_t kMostRanks = 1U << 16U;
constexpr std::uint64_t kMostCells = std::uint64_t{1} << 26U;

void check_range(std::string_view generator, std::string_view what, std::uint32_t count) {
  if (count == 0 || count > kMostRanks)
    throw ConfigError("{} needs between 1 and {} {}, not {}", generator, kMostRanks, what, count);
}

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

Schedule ScheduleGenerator::generate(const ScheduleRequest& request) const {
  check_range(name, "ranks", request.ranks);
  check_range(name, "micro-batches", request.micro_batches);
  if (request.replicas != 0) check_range(name, "replicas", request.replicas);
  if (stages_per_rank == StagesPerRank::kAsRequested)
    check_range(name, "stages per rank", request.stages_per_rank);
  check_range(name, "slots", request.slots);
  const std::uint64_t passes = stage_count(request) * request.micro_batches;
  if (passes > kMostCells)
    throw ConfigError("{}: {} passes of micro-batches through stages are too many (use up to {})",
                      name, passes, kMostCells);
  Schedule schedule = make(request);
  schedule.name = name;
  check_shape(schedule);
  return schedule;
}

const ScheduleGenerator& schedule_generator_named(std::string_view name) {
  std::vector<Named<const ScheduleGenerator*>> named;
  for (const ScheduleGenerator& generator : schedule_generators())
    named.push_back({generator.name, &generator});
  return *value_named(name, named, "schedule");
}

}  // namespace spillway::planner
