#include "spillway/planner/cluster/job_simulation.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "flow_table.h"
#include "fullest_host.h"
#include "job_run.h"
#include "job_tasks.h"
#include "link_loads.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// What a cluster offers without any sharing, for the check of the action lists and the peaks of
/// memory.
ScheduleCosts nominal_costs(const Job& job, const Cluster& cluster) {
  ScheduleCosts costs;
  costs.stages = job.stages;
  costs.shares = job.shares;
  costs.memory = job.memory;
  if (job.update == UpdatePlace::kHost)
    for (StageCosts& stage : costs.stages)
      stage.gradients = stage.optimizer_state = stage.update_peak = Bytes(0);
  const ClusterNode& node = cluster.node;
  costs.peer = cluster.nodes > 1 ? node.nic : node.nvlink ? *node.nvlink : node.pcie;
  costs.host = node.pcie;
  costs.reduce = costs.peer;
  return costs;
}

void check_job(const Job& job) {
  if (job.repetitions == 0 || job.repetitions > 1000)
    throw ConfigError("a job cannot run its action lists {} times (give 1 to 1000)",
                      job.repetitions);
  if (job.update == UpdatePlace::kHost && job.repetitions < 2)
    throw ConfigError("what an update on the hosts costs shows in the next step only: a job needs "
                      "2 repetitions, not {}",
                      job.repetitions);
  if (!(job.bytes_per_parameter > 0.0) || !std::isfinite(job.bytes_per_parameter))
    throw ConfigError("a parameter cannot have {} bytes (give 2 or 4)", job.bytes_per_parameter);
}

/// The tasks of so many actions, and what they wait for, take some 4 GiB.
void check_size(const Job& job, std::uint32_t pipelines) {
  constexpr double kMostActions = 5e7;
  double actions = 0.0;
  for (const auto& list : job.schedule.ranks) actions += static_cast<double>(list.size());
  actions *= static_cast<double>(pipelines) * job.repetitions;
  if (actions > kMostActions)
    throw ConfigError("{} pipelines, {} times each, have {} actions to be simulated, more than {} "
                      "(use fewer micro-batches, ranks or repetitions; without stragglers one "
                      "pipeline may stand for all)",
                      pipelines, job.repetitions, actions, kMostActions);
}

/// In the order of their numbers, each once.
std::vector<std::uint32_t> nodes_of(const ClusterLinks& links,
                                    std::span<const std::uint32_t> devices) {
  std::set<std::uint32_t> nodes;
  for (const std::uint32_t device : devices) nodes.insert(links.node_of(device));
  return {nodes.begin(), nodes.end()};
}

/// Of the links of a colour, one carries what each of them does.
std::vector<double> spread_over_links(const LinkColours& colours, const ClusterLinks& links,
                                      const JobRun& run) {
  std::vector<double> carried(links.size(), 0.0);
  for (std::uint32_t link = 0; link < links.size(); ++link)
    if (colours.colour_of[link] != LinkColours::kNoColour)
      carried[link] = run.carried(colours.colour_of[link]);
  return carried;
}

/// Whether the devices of all pipelines are equally fast, rank by rank.
bool are_equally_fast(std::span<const double> slowdowns, const FlowTable& flows) {
  for (std::uint32_t pipeline = 1; pipeline < flows.pipelines(); ++pipeline)
    for (std::uint32_t rank = 0; rank < flows.ranks(); ++rank)
      if (slowdowns[flows.device(rank, pipeline)] != slowdowns[flows.device(rank, 0)]) return false;
  return true;
}

}  // namespace

Job make_job(Schedule actions, const ScheduleCosts& costs, std::uint32_t pipelines) {
  Job job;
  job.schedule = std::move(actions);
  job.schedule.data_parallel = pipelines;
  job.stages = costs.stages;
  job.shares = costs.shares;
  job.memory = costs.memory;
  return job;
}

std::vector<std::uint32_t> place_ranks(const Cluster& cluster, std::uint32_t pipelines,
                                       std::uint32_t ranks, PlacementOrder order) {
  const std::uint64_t wanted = std::uint64_t{pipelines} * ranks;
  if (wanted > cluster.device_count())
    throw ConfigError("{} pipelines of {} ranks need {} devices, and cluster {} has {} (use fewer "
                      "ranks, or a larger cluster)",
                      pipelines, ranks, wanted, cluster.name, cluster.device_count());
  std::vector<std::uint32_t> devices;
  for (std::uint32_t pipeline = 0; pipeline < pipelines; ++pipeline)
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t mirror = ranks - 1 - rank;
      const std::uint32_t folded = rank <= mirror ? 2 * rank : 2 * mirror + 1;
      switch (order) {
        case PlacementOrder::kPipelineFirst: devices.push_back(pipeline * ranks + rank); break;
        case PlacementOrder::kFolded: devices.push_back(pipeline * ranks + folded); break;
        case PlacementOrder::kDataParallelFirst: devices.push_back(rank * pipelines + pipeline);
      }
    }
  return devices;
}

/// Hosts update, where the weights may be then, and keep the states of the optimizer.
static Schedule without_steps(Schedule schedule) {
  for (auto& list : schedule.ranks)
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::kStep; });
  return schedule;
}

/// What the action lists do to memory, where that has a limit.
static MemoryEffects limited_effects(const Job& job, const Schedule& action_lists,
                                     const ScheduleCosts& costs) {
  if (!job.memory) return {};
  MemoryEffects effects = memory_effects(action_lists, costs);
  for (std::size_t rank = 0; rank < effects.actions.size() && job.repetitions > 1; ++rank) {
    double kept = 0.0;
    for (const MemoryEffect& each : effects.actions[rank]) kept += each.at_start + each.at_end;
    if (std::abs(kept) > 1.0)
      throw ConfigError("rank {} ends with {} bytes more than it begins with, so under a limit of "
                        "memory its action list runs once, not {} times",
                        rank, kept, job.repetitions);
  }
  return effects;
}

/// By rank of all simulated pipelines.
static std::vector<double> held_at_begin(const MemoryEffects& effects, std::uint32_t pipelines) {
  std::vector<double> held;
  for (std::uint32_t i = 0; i < pipelines; ++i)
    held.insert(held.end(), effects.at_begin.begin(), effects.at_begin.end());
  return held;
}

static std::vector<Bytes> peaks_of(const Job& job, const ScheduleTiming& nominal, const JobRun& run,
                                   std::uint32_t pipelines) {
  std::vector<Bytes> peaks;
  const auto ranks = static_cast<std::uint32_t>(nominal.ranks.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (!job.memory) {
      peaks.push_back(nominal.ranks[rank].peak_memory);
      continue;
    }
    double most = 0.0;
    for (std::uint32_t i = 0; i < pipelines; ++i)
      most = std::max(most, run.most_held(i * ranks + rank));
    peaks.emplace_back(static_cast<std::uint64_t>(std::llround(std::max(0.0, most))));
  }
  return peaks;
}

JobTiming simulate_job(const Job& job, const Cluster& cluster) {
  std::uint32_t simulated = 1;
  check_job(job);
  check_size(job, simulated);
  const ClusterLinks links(cluster);
  const Schedule action_lists =
      job.update == UpdatePlace::kHost ? without_steps(job.schedule) : job.schedule;
  const ScheduleCosts costs = nominal_costs(job, cluster);
  const ScheduleTiming nominal = time_schedule(action_lists, costs);
  const MemoryEffects effects = limited_effects(job, action_lists, costs);
  const std::uint32_t pipelines = job.schedule.data_parallel;
  const std::uint32_t ranks = job.schedule.rank_count();
  const std::vector<std::uint32_t> devices = place_ranks(cluster, pipelines, ranks, job.order);
  const std::vector<double> slowdowns = device_slowdowns(cluster);

  FlowTable flows(links, devices, pipelines);
  TaskGraph graph = JobTasks(job, slowdowns, simulated, effects, flows).build();
  LinkColours colours = colours_of(flows);
  const bool is_one_enough =
      !job.simulates_all_pipelines && colours.are_alike && are_equally_fast(slowdowns, flows);
  if (!is_one_enough && pipelines > 1) {
    simulated = pipelines;
    check_size(job, simulated);
    graph = JobTasks(job, slowdowns, simulated, effects, flows).build();
  }
  const bool is_by_colour = simulated < pipelines || pipelines == 1;
  const auto route_of = [&](const Task& task) {
    const Route& route = flows.route(task.flow, task.rank / ranks);
    return TaskRoute{is_by_colour ? colours.routes[task.flow] : route.uses, route.latency_seconds};
  };
  const std::vector<double> held = held_at_begin(effects, simulated);
  JobRun run(job, graph, simulated * ranks, is_by_colour ? colours.rates : links.rates(), route_of,
             held);
  JobTiming timing = run.run();
  timing.pipelines = pipelines;
  timing.simulated_pipelines = simulated;
  timing.peak_memory = peaks_of(job, nominal, run, simulated);
  std::vector<double> carried(links.size(), 0.0);
  if (is_by_colour)
    carried = spread_over_links(colours, links, run);
  else
    for (std::uint32_t link = 0; link < links.size(); ++link) carried[link] = run.carried(link);
  const std::vector<std::uint32_t> nodes = nodes_of(links, devices);
  timing.nodes = static_cast<std::uint32_t>(nodes.size());
  timing.host_memory = fullest_host(job, links, devices);
  timing.links = loads_of(links, nodes, run.end_seconds(), carried);
  return timing;
}

}  // namespace spillway::planner
