#pragma once

#include <string>

#include "spillway/topology/machine.h"

namespace spillway::topology {

/// Asks hwloc for cores and NUMA nodes that this process may use; `synthetic` replaces the machine.
Processors read_processors(const std::string& synthetic);

}  // namespace spillway::topology
