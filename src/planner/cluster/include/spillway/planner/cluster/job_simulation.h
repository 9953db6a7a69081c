#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/planner/cluster/cluster_links.h"
#include "spillway/planner/cluster/collectives.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::cluster {

/// Which device has which rank.
enum class PlacementOrder : std::uint8_t {
  kPipelineFirst,  ///< A pipeline on neighbouring devices.
  kFolded,         ///< The same, rank r beside rank ranks − 1 − r: GEMS reduces within nodes.
  kDataParallelFirst,  ///< Equal ranks of all pipelines on neighbouring devices.
};

/// The place where parameters are updated.
enum class UpdatePlace : std::uint8_t {
  kDevice,  ///< Reductions and steps as the action lists say.
  /// Out-of-core data parallelism: the gradients of a stage are summed in the node, leave for the
  /// hosts, are summed between them, each host updates its share, and the weights come back. A
  /// stage of the next repetition waits for its own weights alone. Weights that the action lists
  /// swap in stay on the host until then.
  kHost,
};

enum class SwapTarget : std::uint8_t { kHost, kDisk };

/// A schedule on the devices of a cluster, `schedule.data_parallel` times.
struct Job {
  schedule::Schedule schedule;                       ///< Schedule of one pipeline.
  std::vector<planner_schedule::StageCosts> stages;  ///< On a device of nominal speed.
  schedule::StashShares shares;
  PlacementOrder order = PlacementOrder::kPipelineFirst;
  UpdatePlace update = UpdatePlace::kDevice;
  double bytes_per_parameter = 4.0;  ///< Bytes of one weight, for the rate of a host's optimizer.
  SwapTarget swap_target = SwapTarget::kHost;
  /// Memory of each device, as `ScheduleCosts::memory`: a rank that needs room waits for stashes
  /// under way that would make some. None: no rank waits.
  std::optional<Bytes> memory{};
  std::optional<CollectiveAlgorithm> algorithm{};  ///< Empty: the fastest for each size.
  /// Action lists in a row. From two on, the result is of the last one, which the ones before have
  /// brought into step.
  std::uint32_t repetitions = 1;
  bool simulates_all_pipelines = false;  ///< Also where one stands for all.
  std::uint32_t traced_ranks = 0;        ///< The first ones, for `spans`.
};

struct JobRank {
  double busy_seconds = 0.0;
  double exposed_communication_seconds = 0.0;  ///< Waiting for what was on its way, or summed.
  double exposed_swap_seconds = 0.0;           ///< Waiting for copies between device and host.
};

/// Links of one class, of the nodes that the job is on; of the spine those of their leaf switches.
struct LinkClassLoad {
  LinkClass kind = LinkClass::kPcie;
  std::uint32_t links = 0;
  double carried = 0.0;  ///< Bytes in all repetitions; parameters of hosts' optimizers.
  double mean = 0.0;     ///< Share of what they could have carried.
  double busiest = 0.0;  ///< The same of the fullest one.
};

/// Something of a traced rank.
struct JobSpan {
  enum class Lane : std::uint8_t { kCompute, kMessage, kOut, kIn, kReduction };

  std::uint32_t rank = 0;  ///< Rank in the job.
  Lane lane = Lane::kCompute;
  schedule::Action action;
  std::uint32_t repetition = 0;
  double start_seconds = 0.0;  ///< When it could begin; messages may wait for others then.
  double end_seconds = 0.0;
};

struct JobTiming {
  double step_seconds = 0.0;
  double bubble = 0.0;  ///< Share of all ranks' step that is not compute.
  std::uint32_t pipelines = 1;
  /// 1 where all pipelines provably do the same at the same time: the one stands for all.
  std::uint32_t simulated_pipelines = 1;
  std::uint32_t nodes = 1;  ///< Nodes that the job uses.
  /// Bytes in the fullest host: what its devices have swapped, each at its worst moment; where
  /// hosts update, also gradients, weights and states of the optimizer.
  Bytes host_memory;
  std::vector<JobRank> ranks;  ///< Ranks of the simulated pipelines, one pipeline after the other.
  /// The most bytes that each rank of a pipeline holds: what the simulation saw where memory has a
  /// limit, else as `time_schedule` counts; where hosts update, without gradients on their way
  /// there.
  std::vector<Bytes> peak_memory;
  std::vector<LinkClassLoad> links;  ///< Loads of the classes of links that the cluster has.
  std::vector<JobSpan> spans;
  std::uint64_t events = 0;
};

/// The action lists of one pipeline as a job of so many, with what they were planned with: stages,
/// shares and memory.
Job make_job(schedule::Schedule actions, const planner_schedule::ScheduleCosts& costs,
             std::uint32_t pipelines);

/// Devices by rank: rank r of pipeline k is number k · ranks + r. Throws ConfigError for a cluster
/// with fewer devices.
std::vector<std::uint32_t> place_ranks(const Cluster& cluster, std::uint32_t pipelines,
                                       std::uint32_t ranks, PlacementOrder order);

/// Runs a job in discrete events. Action lists mean what they mean to `time_schedule`; but
/// messages, copies and reductions are flows that share links fairly. Messages between two ranks,
/// copies of a rank in one direction, and reductions of a rank go one after the other, as NCCL and
/// copy engines do.
///
/// Throws what `time_schedule` throws for action lists that make no sense, ConfigError for a
/// cluster that is too small, or lacks what the job needs, and for repetitions of action lists that
/// do not give back what they take.
JobTiming simulate_job(const Job& job, const Cluster& cluster);

/// The spans as JSON in Chrome's trace event format: a process per rank, a lane per `Lane`.
std::string to_chrome_trace(const JobTiming& timing);

}  // namespace spillway::cluster
