#pragma once

#include <cstdint>

#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "support/generated_schedule.h"

namespace spillway::cluster {

/// Nodes of devices with NVLink 100, PCIe 10 (two devices share an uplink of 10), two cards of 20,
/// four nodes below a leaf; bytes and seconds, no latency.
inline Cluster small_cluster(std::uint32_t nodes, std::uint32_t devices) {
  Cluster cluster;
  cluster.name = "small";
  cluster.nodes = nodes;
  cluster.device.memory = 1_GiB;
  cluster.node.devices = devices;
  cluster.node.devices_per_switch = devices % 2 == 0 ? 2 : 1;
  cluster.node.pcie = {0.0, TransferRate(10.0)};
  cluster.node.uplink = {0.0, TransferRate(10.0)};
  cluster.node.nvlink = LinkCosts{0.0, TransferRate(100.0)};
  cluster.node.nics = 2;
  cluster.node.nic = {0.0, TransferRate(20.0)};
  cluster.node.host_update_parameters_per_second = 50.0;
  cluster.node.disks = 1;
  cluster.node.disk_read_rate = TransferRate(4.0);
  cluster.node.disk_write_rate = TransferRate(2.0);
  cluster.network.nodes_per_leaf = 4;
  return cluster;
}

/// Forward 1 s, backward 2 s on every stage, and some bytes of everything.
inline Job small_job(schedule::Schedule schedule, double bytes = 0.0) {
  Job job;
  planner_schedule::StageCosts stage;
  stage.forward_seconds = stage.input_gradient_seconds = stage.weight_gradient_seconds = 1.0;
  stage.recompute_seconds = 1.0;
  const auto size = Bytes(static_cast<std::uint64_t>(bytes));
  stage.boundary = stage.stash = stage.weights = stage.gradients = size;
  job.stages.assign(schedule.stages, stage);
  job.schedule = std::move(schedule);
  return job;
}

/// Links that only delay, so that the schedule's own simulator, which shares nothing, must agree.
inline Cluster delaying_cluster(std::uint32_t devices, double peer_latency) {
  Cluster cluster = small_cluster(1, devices);
  cluster.node.devices_per_switch = 1;
  cluster.node.nvlink = LinkCosts{peer_latency, TransferRate(1e15)};
  return cluster;
}

/// What that simulator is told of it, with a limit of memory where the job has one.
inline planner_schedule::ScheduleCosts costs_like(const Job& job, const Cluster& cluster) {
  planner_schedule::ScheduleCosts costs;
  costs.stages = job.stages;
  costs.memory = job.memory;
  costs.peer = costs.reduce = *cluster.node.nvlink;
  costs.host = cluster.node.pcie;
  return costs;
}

/// A generated schedule with its messages and reductions.
inline schedule::Schedule complete(const schedule::Schedule& schedule,
                                   std::uint32_t data_parallel = 1) {
  planner_schedule::CommunicationOptions options;
  options.data_parallel = data_parallel;
  return *planner_schedule::with_communication(schedule, options);
}

}  // namespace spillway::cluster
