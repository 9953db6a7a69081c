#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/base/json_reader.h"
#include "spillway/schedule/execution_plan.h"

namespace spillway::schedule {

/// Version 1 has no `step`, version 2 always has it; both call `data_parallel` "groups" and the
/// schedule option "idle-offload" "windows".
inline constexpr std::uint64_t kPlanVersion = 3;

/// The execution part of a plan, and the JSON objects of its stages for their other keys.
struct ExecutionText {
  ExecutionPlan plan;
  std::vector<JsonObject> stages;
};

/// Reads the keys of a plan for many ranks that tell what is executed, and leaves the others to its
/// caller. Throws ConfigError that begins with `name`, the file, for another format or a newer one,
/// for keys that are missing, of another type, out of range, or that contradict each other.
ExecutionText read_execution_plan(JsonObject& root, const std::string& name);

}  // namespace spillway::schedule
