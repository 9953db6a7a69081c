#pragma once

#include <optional>
#include <string>

#include "spillway/topology/machine.h"

namespace spillway::topology {

/// Reads what the NUMA nodes hold that this process may take memory from, where these are not all
/// of the machine's: the cpuset's (Mems_allowed), or those of them that a binding memory policy
/// names (numactl
/// --membind). `roots` as for discover_machine. Nothing where all nodes are allowed or too little
/// is known.
std::optional<MemoryLimit> read_node_limit(const Roots& roots);

}  // namespace spillway::topology
