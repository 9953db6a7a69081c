#include "spillway/planner/cluster/job_simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "fair_links.h"
#include "flow_table.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/schedule/rank_memory.h"

namespace spillway::cluster {
namespace {

/// What a cluster offers without any sharing, for the check of the action lists and the peaks of
/// memory.
planner_schedule::ScheduleCosts nominal_costs(const Job& job, const Cluster& cluster) {
  planner_schedule::ScheduleCosts costs;
  costs.stages = job.stages;
  costs.shares = job.shares;
  costs.memory = job.memory;
  if (job.update == UpdatePlace::kHost)
    for (planner_schedule::StageCosts& stage : costs.stages)
      // Gradients leave as soon as they are summed, and the rest lives on the hosts.
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

/// The states of so many actions take some 4 GiB.
void check_size(const Job& job, std::uint32_t pipelines) {
  constexpr std::uint64_t kMostActions = 50'000'000;
  double actions = 0.0;  // The product may exceed 64 bits.
  for (const auto& list : job.schedule.ranks) actions += static_cast<double>(list.size());
  actions *= static_cast<double>(pipelines) * job.repetitions;
  if (actions > static_cast<double>(kMostActions))
    throw ConfigError("{}, {} each, have {} actions to be simulated, more than {} "
                      "(use fewer micro-batches, ranks or repetitions; without stragglers one "
                      "pipeline may stand for all)",
                      counted(pipelines, "pipeline"), counted(job.repetitions, "time"),
                      all_digits(actions), kMostActions);
}

/// In the order of their numbers, each once.
std::vector<std::uint32_t> nodes_of(const ClusterLinks& links,
                                    std::span<const std::uint32_t> devices) {
  std::set<std::uint32_t> nodes;
  for (const std::uint32_t device : devices) nodes.insert(links.node_of(device));
  return {nodes.begin(), nodes.end()};
}

/// Of a stage that hosts update: all of its weights and gradients pass each of them, and each keeps
/// its share of the optimizer's states.
void add_updates(const Job& job, const ClusterLinks& links, std::span<const std::uint32_t> devices,
                 std::map<std::uint32_t, Bytes>& hosts) {
  const schedule::Schedule& schedule = job.schedule;
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    // Once for each node, however many of its devices have a copy of the stage.
    std::set<std::uint32_t> nodes;
    for (std::size_t first = 0; first < devices.size(); first += schedule.rank_count())
      for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
        nodes.insert(links.node_of(devices[first + schedule.rank_of(replica, stage)]));
    const planner_schedule::StageCosts& costs = job.stages[stage];
    for (const std::uint32_t node : nodes)
      hosts[node] += costs.weights + costs.gradients + costs.optimizer_state / nodes.size();
  }
}

/// Returns what `JobTiming::host_memory` tells. Devices are by rank, one pipeline after the other.
Bytes fullest_host(const Job& job, const ClusterLinks& links,
                   std::span<const std::uint32_t> devices) {
  std::map<std::uint32_t, Bytes> hosts;
  if (job.swap_target == SwapTarget::kHost) {
    // Hosts that update have all weights anyway.
    const std::vector<Bytes> swapped =
        job.update == UpdatePlace::kHost
            ? planner_schedule::stashes_on_host(job.schedule, job.stages)
            : planner_schedule::host_bytes(job.schedule, job.stages);
    // Devices are in the order of ranks, one pipeline after the other.
    for (std::size_t i = 0; i < devices.size(); ++i)
      hosts[links.node_of(devices[i])] += swapped[i % swapped.size()];
  }
  if (job.update == UpdatePlace::kHost) add_updates(job, links, devices, hosts);
  Bytes most;
  for (const auto& [node, bytes] : hosts) most = std::max(most, bytes);
  return most;
}

/// Loads by class of the links of these nodes, which are sorted. `carried` is by link.
std::vector<LinkClassLoad> loads_of(const ClusterLinks& links, std::span<const std::uint32_t> nodes,
                                    double seconds, std::span<const double> carried) {
  std::vector<LinkClassLoad> loads(kLinkClasses);
  std::vector<double> capacity(kLinkClasses, 0.0);
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    // What the others have is no reserve of the job.
    const NodeRange behind = links.nodes_behind(link);
    const auto first = std::lower_bound(nodes.begin(), nodes.end(), behind.begin);
    if (first == nodes.end() || *first >= behind.end) continue;
    LinkClassLoad& load = loads[static_cast<std::size_t>(links.kind(link))];
    load.kind = links.kind(link);
    ++load.links;
    load.carried += carried[link];
    // The mean of a class is over what its links could have carried, as disks read and write at
    // unlike rates.
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
                                      const FairLinks& run) {
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

Job make_job(schedule::Schedule actions, const planner_schedule::ScheduleCosts& costs,
             std::uint32_t pipelines) {
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
    throw ConfigError("{} of {} need {}, and cluster {} has {} (use fewer "
                      "ranks, or a larger cluster)",
                      counted(pipelines, "pipeline"), counted(ranks, "rank"),
                      counted(wanted, "device"), cluster.name, cluster.device_count());
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
static schedule::Schedule without_steps(schedule::Schedule schedule) {
  for (auto& list : schedule.ranks)
    std::erase_if(list, [](const schedule::Action& action) {
      return action.kind == schedule::ActionKind::kStep;
    });
  return schedule;
}

static void check_repetitions(const Job& job, const planner_schedule::ScheduleTiming& nominal) {
  for (std::size_t rank = 0; rank < nominal.ranks.size() && job.repetitions > 1; ++rank) {
    const planner_schedule::RankTiming& timing = nominal.ranks[rank];
    const double kept = planner_schedule::count_of(timing.memory.back().bytes) -
                        planner_schedule::count_of(timing.at_begin);
    // Else every repetition would hold more than the one before.
    if (std::abs(kept) > 1.0)
      throw ConfigError("rank {} ends with {} bytes more than it begins with, so its action list "
                        "runs once, not {} times",
                        rank, kept, job.repetitions);
  }
}

static std::vector<Bytes> peaks_of(const Job& job, const planner_schedule::ScheduleTiming& nominal,
                                   const planner_schedule::ScheduleTiming& run) {
  std::vector<Bytes> peaks(nominal.ranks.size());
  for (std::size_t rank = 0; rank < peaks.size(); ++rank)
    // With a limit ranks wait for room, and how long depends on the links that they really have.
    if (!job.memory) peaks[rank] = nominal.ranks[rank].peak_memory;
  for (std::size_t rank = 0; rank < run.ranks.size() && job.memory; ++rank) {
    Bytes& peak = peaks[rank % peaks.size()];
    peak = std::max(peak, run.ranks[rank].peak_memory);
  }
  return peaks;
}

/// The lane of an action; none for what takes no time by itself.
static std::optional<JobSpan::Lane> lane_of(const Job& job, const schedule::Action& action) {
  switch (action.kind) {
    case schedule::ActionKind::kSwapOut:
    case schedule::ActionKind::kSwapOutWeights: return JobSpan::Lane::kOut;
    case schedule::ActionKind::kSwapIn:
    case schedule::ActionKind::kSwapInWeights: return JobSpan::Lane::kIn;
    case schedule::ActionKind::kReduce: return JobSpan::Lane::kReduction;
    case schedule::ActionKind::kStep:
      return job.update == UpdatePlace::kHost ? JobSpan::Lane::kReduction : JobSpan::Lane::kCompute;
    default:
      // The message has the span of its send.
      if (schedule::is_receive(action.kind)) return std::nullopt;
      return schedule::is_send(action.kind) ? JobSpan::Lane::kMessage : JobSpan::Lane::kCompute;
  }
}

/// In the order in which they end.
static std::vector<JobSpan> spans_of(const Job& job, const planner_schedule::RunTiming& run) {
  std::vector<JobSpan> spans;
  const auto add = [&](std::uint32_t rank, std::size_t position, bool is_part, double start,
                       double end) {
    const auto& actions = job.schedule.ranks[rank % job.schedule.rank_count()];
    schedule::Action action = actions[position % actions.size()];
    if (is_part) {
      action.kind = action.kind == schedule::ActionKind::kForward ? schedule::ActionKind::kSwapOut
                                                                  : schedule::ActionKind::kSwapIn;
      action.overlaps_next = false;
    }
    const auto lane = lane_of(job, action);
    if (lane && (end > start || lane == JobSpan::Lane::kCompute))
      spans.push_back(
          {rank, *lane, action, static_cast<std::uint32_t>(position / actions.size()), start, end});
  };
  for (std::uint32_t rank = 0; rank < run.schedule.spans.size(); ++rank)
    for (std::size_t i = 0; i < run.schedule.spans[rank].size(); ++i)
      add(rank, i, /*is_part=*/false, run.schedule.spans[rank][i].start_seconds,
          run.schedule.spans[rank][i].end_seconds);
  for (const planner_schedule::PartSpan& part : run.parts)
    add(part.rank, part.position, /*is_part=*/true, part.start_seconds, part.end_seconds);
  std::stable_sort(spans.begin(), spans.end(), [](const JobSpan& a, const JobSpan& b) {
    return a.end_seconds < b.end_seconds;
  });
  return spans;
}

/// By simulated rank.
static planner_schedule::RunOptions options_of(const Job& job, const FlowTable& flows,
                                               std::span<const double> slowdowns,
                                               std::uint32_t simulated) {
  planner_schedule::RunOptions options;
  options.pipelines = simulated;
  options.repetitions = job.repetitions;
  options.updates_on_hosts = job.update == UpdatePlace::kHost;
  options.traced_ranks = job.traced_ranks;
  for (std::uint32_t pipeline = 0; pipeline < simulated; ++pipeline)
    for (std::uint32_t rank = 0; rank < flows.ranks(); ++rank)
      options.slowdowns.push_back(slowdowns[flows.device(rank, pipeline)]);
  return options;
}

JobTiming simulate_job(const Job& job, const Cluster& cluster) {
  check_job(job);
  // Before tables of its size are made; once more when it is known how many pipelines run.
  check_size(job, 1);
  const ClusterLinks links(cluster);
  const planner_schedule::ScheduleCosts costs = nominal_costs(job, cluster);
  // Its times are not used: it tells whether the lists come to their end, and what ranks hold.
  const planner_schedule::ScheduleTiming nominal = planner_schedule::time_schedule(
      job.update == UpdatePlace::kHost ? without_steps(job.schedule) : job.schedule, costs);
  check_repetitions(job, nominal);
  const std::uint32_t pipelines = job.schedule.data_parallel;
  const std::vector<std::uint32_t> devices =
      place_ranks(cluster, pipelines, job.schedule.rank_count(), job.order);
  const std::vector<double> slowdowns = device_slowdowns(cluster);

  FlowTable flows(links, devices, pipelines);
  auto phases = add_flows(job, flows);
  const LinkColours colours = colours_of(flows);
  const bool is_one_enough =
      !job.simulates_all_pipelines && colours.are_alike && are_equally_fast(slowdowns, flows);
  const std::uint32_t simulated = is_one_enough ? 1 : pipelines;
  check_size(job, simulated);
  // With one pipeline a colour is a link or several equal ones, and fewer are faster.
  const bool is_by_colour = simulated < pipelines || pipelines == 1;
  FairLinks fair(
      flows, std::move(phases), job.swap_target == SwapTarget::kDisk, simulated,
      is_by_colour ? colours.rates : links.rates(),
      [&](std::uint32_t flow, std::uint32_t pipeline) {
        const Route& route = flows.route(flow, pipeline);
        return FlowRoute{is_by_colour ? colours.routes[flow] : route.uses, route.latency_seconds};
      });
  const planner_schedule::RunTiming run = planner_schedule::run_schedule(
      job.schedule, costs, fair, options_of(job, flows, slowdowns, simulated));
  JobTiming timing;
  timing.step_seconds = run.schedule.step_seconds;
  timing.bubble = run.schedule.bubble;
  timing.pipelines = pipelines;
  timing.simulated_pipelines = simulated;
  for (const planner_schedule::RankTiming& rank : run.schedule.ranks)
    timing.ranks.push_back(
        {rank.busy_seconds, rank.exposed_communication_seconds, rank.exposed_swap_seconds});
  timing.peak_memory = peaks_of(job, nominal, run.schedule);
  timing.spans = spans_of(job, run);
  timing.events = run.events;
  std::vector<double> carried(links.size(), 0.0);
  if (is_by_colour)
    carried = spread_over_links(colours, links, fair);
  else
    for (std::uint32_t link = 0; link < links.size(); ++link) carried[link] = fair.carried(link);
  const std::vector<std::uint32_t> nodes = nodes_of(links, devices);
  timing.nodes = static_cast<std::uint32_t>(nodes.size());
  timing.host_memory = fullest_host(job, links, devices);
  timing.links = loads_of(links, nodes, run.end_seconds, carried);
  return timing;
}

}  // namespace spillway::cluster
