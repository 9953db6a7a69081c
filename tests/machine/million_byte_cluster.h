#pragma once

#include "cluster/small_clusters.h"
#include "job/even_jobs.h"

namespace spillway::machine {

/// The small cluster, a million times as fast: for layers of megabytes and seconds.
inline cluster::Cluster million_byte_cluster(std::uint32_t nodes, std::uint32_t devices) {
  cluster::Cluster cluster = cluster::small_cluster(nodes, devices);
  cluster::ClusterNode& node = cluster.node;
  for (LinkCosts* link : {&node.pcie, &node.uplink, &*node.nvlink, &node.nic})
    link->rate = link->rate * 1e6;
  node.disk_read_rate = node.disk_read_rate * 1e6;
  node.disk_write_rate = node.disk_write_rate * 1e6;
  cluster.device.memory = Bytes(10'000 * job::kMega);
  return cluster;
}

}  // namespace spillway::machine
