#pragma once

#include <string_view>

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

/// The lists of a named generator.
inline Schedule generated(std::string_view name, std::uint32_t ranks, std::uint32_t micro_batches) {
  return schedule_generator_named(name).generate({.ranks = ranks, .micro_batches = micro_batches});
}

inline Schedule generated(std::string_view name, const ScheduleRequest& request) {
  return schedule_generator_named(name).generate(request);
}

/// GEMS with `per_replica` micro-batches in each of `replicas`.
inline Schedule gems(std::uint32_t stages, std::uint32_t per_replica, std::uint32_t replicas) {
  return generated(
      "gems-master",
      {.ranks = stages, .micro_batches = per_replica * replicas, .replicas = replicas});
}

}  // namespace spillway::planner_schedule
