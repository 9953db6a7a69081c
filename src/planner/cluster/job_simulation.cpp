#include "spillway/planner/cluster/job_simulation.h"

#include <algorithm>
#include <cmath>

#include "flow_table.h"
#include "job_run.h"
#include "job_tasks.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// What a cluster offers without any sharing, for the check of the lists and the peaks of memory.
ScheduleCosts nominal_costs(const Job& job, const Cluster& cluster) {
  ScheduleCosts costs;
  costs.stages = job.stages;
  costs.shares = job.shares;
  if (job.update == UpdatePlace::kHost)
    for (StageCosts& stage : costs.stages) stage.gradients = stage.optimizer_state = Bytes(0);
  const ClusterNode& node = cluster.node;
  costs.peer = cluster.nodes > 1 ? node.nic : node.nvlink ? *node.nvlink : node.pcie;
  costs.host = node.pcie;
  costs.reduce = costs.peer;
  return costs;
}

void check_job(const Job& job) {
  if (job.repetitions == 0 || job.repetitions > 1000)
    throw ConfigError("a job cannot run its lists {} times (give 1 to 1000)", job.repetitions);
  if (job.update == UpdatePlace::kHost && job.repetitions < 2)
    throw ConfigError("what an update on the hosts costs shows in the next step only: a job needs "
                      "2 repetitions, not {}",
                      job.repetitions);
  if (!(job.bytes_per_parameter > 0.0) || !std::isfinite(job.bytes_per_parameter))
    throw ConfigError("a parameter cannot have {} bytes (give 2 or 4)", job.bytes_per_parameter);
}

std::vector<LinkClassLoad> loads_of(const ClusterLinks& links, double seconds,
                                    const std::vector<double>& carried) {
  std::vector<LinkClassLoad> loads(kLinkClasses);
  std::vector<double> capacity(kLinkClasses, 0.0);
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    LinkClassLoad& load = loads[static_cast<std::size_t>(links.kind(link))];
    load.kind = links.kind(link);
    ++load.links;
    load.carried += carried[link];
    const double most = links.rate(link) * seconds;
    capacity[static_cast<std::size_t>(load.kind)] += most;
    if (most > 0.0) load.busiest = std::max(load.busiest, carried[link] / most);
  }
  for (std::size_t kind = 0; kind < loads.size(); ++kind)
    if (capacity[kind] > 0.0) loads[kind].mean = loads[kind].carried / capacity[kind];
  std::erase_if(loads, [](const LinkClassLoad& load) { return load.links == 0; });
  return loads;
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

JobTiming simulate_job(const Job& job, const Cluster& cluster) {
  check_job(job);
  const ClusterLinks links(cluster);
  const ScheduleTiming nominal =
      time_schedule(job.update == UpdatePlace::kHost ? without_steps(job.schedule) : job.schedule,
                    nominal_costs(job, cluster));
  const std::uint32_t pipelines = job.schedule.data_parallel;
  const std::uint32_t ranks = job.schedule.rank_count();
  const std::vector<std::uint32_t> devices = place_ranks(cluster, pipelines, ranks, job.order);
  const std::vector<double> slowdowns = device_slowdowns(cluster);

  std::uint32_t simulated = 1;
  FlowTable flows(links, devices, pipelines);
  TaskGraph graph = JobTasks(job, slowdowns, simulated, flows).build();
  LinkColours colours = colours_of(flows);
  const bool is_one_enough =
      !job.simulates_all_pipelines && colours.are_alike && are_equally_fast(slowdowns, flows);
  if (!is_one_enough && pipelines > 1) {
    simulated = pipelines;
    graph = JobTasks(job, slowdowns, simulated, flows).build();
  }
  const bool is_by_colour = simulated < pipelines || pipelines == 1;
  const auto route_of = [&](const Task& task) {
    const Route& route = flows.route(task.flow, task.rank / ranks);
    return TaskRoute{is_by_colour ? colours.routes[task.flow] : route.uses, route.latency_seconds};
  };
  JobRun run(job, graph, simulated * ranks, is_by_colour ? colours.rates : links.rates(), route_of);
  JobTiming timing = run.run();
  timing.pipelines = pipelines;
  timing.simulated_pipelines = simulated;
  for (const RankTiming& rank : nominal.ranks) timing.peak_memory.push_back(rank.peak_memory);
  std::vector<double> carried(links.size(), 0.0);
  if (is_by_colour)
    carried = spread_over_links(colours, links, run);
  else
    for (std::uint32_t link = 0; link < links.size(); ++link) carried[link] = run.carried(link);
  timing.links = loads_of(links, run.end_seconds(), carried);
  return timing;
}

}  // namespace spillway::planner
