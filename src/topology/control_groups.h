#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/topology/machine.h"

namespace spillway::topology {

/// The memory limits of the cgroup of this process and of all above it, innermost first, of cgroup
/// v1 and v2.
std::vector<MemoryLimit> read_memory_limits(const std::string& root);

/// The smallest processor quota on the way up, in cores; nothing when there is none.
std::optional<double> read_processor_quota(const std::string& root);

}  // namespace spillway::topology
