#pragma once

#include <cstdint>
#include <string>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::scaling {

/// A description in bindings/clusters, cut to so many nodes.
cluster::Cluster cluster_named(const std::string& folder, const std::string& name,
                               std::uint32_t nodes);

// The tables of the README, one function each, and the points of its pictures.
void print_gems(const std::string& folder);
void print_strong(const std::string& folder);
void print_slides(const std::string& folder);
void print_curves(const std::string& folder);
void print_out_of_core(const std::string& folder);
void print_simulator(const std::string& folder);

}  // namespace spillway::scaling
