#include "flow_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "spillway/planner/cluster/collectives.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/schedule/boundary_stages.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::cluster {

FlowTable::FlowTable(const ClusterLinks& links, std::span<const std::uint32_t> devices,
                     std::uint32_t pipelines)
    : links_(links),
      devices_(devices),
      pipelines_(pipelines),
      ranks_(static_cast<std::uint32_t>(devices.size() / pipelines)),
      kinds_of_(ranks_) {}

template <typename MakeRoute>
std::uint32_t FlowTable::find_or_add(Key key, const MakeRoute& make_route) {
  for (const std::uint32_t kind : kinds_of_[key.from])
    if (kinds_[kind].key == key) return kind;
  Kind& added = kinds_.emplace_back(Kind{key, {}});
  // The same ranks on other devices: what is alike about these routes is found by `colours_of`.
  for (std::uint32_t pipeline = 0; pipeline < pipelines_; ++pipeline)
    added.routes.push_back(make_route(pipeline));
  kinds_of_[key.from].push_back(kind_count() - 1);
  return kind_count() - 1;
}

std::uint32_t FlowTable::message(std::uint32_t from, std::uint32_t to) {
  return find_or_add({from, to}, [&](std::uint32_t pipeline) {
    return links_.route({device(from, pipeline)}, {device(to, pipeline)});
  });
}

std::uint32_t FlowTable::copy(std::uint32_t rank, bool is_out, bool is_disk) {
  // Numbers that no rank has.
  const std::uint32_t to = kNobody - (is_out ? 1 : 0) - (is_disk ? 2 : 0);
  return find_or_add({rank, to}, [&](std::uint32_t pipeline) {
    const std::uint32_t at = device(rank, pipeline);
    if (is_disk) return links_.disk_route(at, is_out);
    const Endpoint host{at, /*is_host=*/true};
    return is_out ? links_.route({at}, host) : links_.route(host, {at});
  });
}

std::uint32_t FlowTable::add_shared(const CollectivePhase& phase) {
  // One sum is for all pipelines, and every one is a kind of its own.
  kinds_.push_back({{kNobody, kNobody}, {{phase.uses, phase.latency_seconds}}});
  return kind_count() - 1;
}

namespace {

/// How often each kind passes a link, by link.
using Signature = std::vector<std::pair<std::uint32_t, double>>;

std::vector<Signature> signatures_of(const FlowTable& flows) {
  std::vector<Signature> signatures(flows.links().size());
  for (std::uint32_t kind = 0; kind < flows.kind_count(); ++kind) {
    const std::uint32_t routes = flows.is_shared(kind) ? 1 : flows.pipelines();
    for (std::uint32_t pipeline = 0; pipeline < routes; ++pipeline)
      for (const LinkUse& use : flows.route(kind, pipeline).uses) {
        Signature& signature = signatures[use.link];
        if (signature.empty() || signature.back().first != kind) signature.emplace_back(kind, 0.0);
        signature.back().second += use.streams;
      }
  }
  return signatures;
}

/// One step of how the gradients of a stage become its new weights. All members go on together.
struct UpdatePhase {
  /// Phases of one lane use the same engine: of two stages, one waits for the other.
  std::uint32_t lane = 0;
  CollectivePhase streams;
  double bytes = 0.0;  ///< Bytes of each stream; parameters in the lane of the hosts' optimizers.
};

using Group = std::vector<Endpoint>;

/// Devices by their node.
std::vector<Group> groups_of(const ClusterLinks& links, const std::vector<std::uint32_t>& devices) {
  std::map<std::uint32_t, Group> nodes;
  for (const std::uint32_t device : devices) nodes[links.node_of(device)].push_back({device});
  std::vector<Group> groups;
  for (auto& [node, group] : nodes) groups.push_back(std::move(group));
  return groups;
}

/// Routes that are used at the same time.
class SideBySide {
 public:
  void add(const Route& route) {
    for (const LinkUse& use : route.uses) uses_[use.link] += use.streams;
    latency_ = std::max(latency_, route.latency_seconds);
  }
  void add(const CollectivePhase& phase) {
    add(Route{phase.uses, phase.latency_seconds});
    share_ = phase.bytes_per_stream;
    pair_rate_ = std::min(pair_rate_, phase.pair_rate);
  }
  UpdatePhase phase(std::uint32_t lane, double bytes, const ClusterLinks& links) const {
    UpdatePhase phase{lane, {1.0, latency_, pair_rate_, {}}, bytes * share_};
    // Copies are not in step with each other; the fullest link is the last to be done.
    if (pair_rate_.is_unlimited())
      for (const auto& [link, streams] : uses_)
        phase.streams.pair_rate =
            std::min(phase.streams.pair_rate, TransferRate(links.rate(link) / streams));
    for (const auto& [link, streams] : uses_) phase.streams.uses.push_back({link, streams});
    return phase;
  }

 private:
  std::map<std::uint32_t, double> uses_;
  double latency_ = 0.0;
  double share_ = 1.0;
  TransferRate pair_rate_ =
      TransferRate::unlimited();  // Of collectives; of copies it is that of their links.
};

/// One collective in each node, all at once. The groups are equally large.
UpdatePhase within_nodes(std::uint32_t lane, CollectiveKind kind, const ClusterLinks& links,
                         const std::vector<Group>& groups, double bytes) {
  SideBySide all;
  for (const Group& group : groups)
    all.add(make_collective(kind, CollectiveAlgorithm::kRing, links, group).phases.front());
  return all.phase(lane, bytes, links);
}

/// One stream between each device and its host.
UpdatePhase copies(std::uint32_t lane, bool is_out, const ClusterLinks& links,
                   const std::vector<Group>& groups, double bytes) {
  SideBySide all;
  for (const Group& group : groups)
    for (const Endpoint& each : group) {
      const Endpoint host{each.device, /*is_host=*/true};
      all.add(is_out ? links.route(each, host) : links.route(host, each));
    }
  return all.phase(lane, bytes, links);
}

/// All-reduce between the devices that hold the stage; nothing for a single one.
std::vector<UpdatePhase> reduction_phases(const Job& job, const planner_schedule::StageCosts& stage,
                                          const ClusterLinks& links,
                                          const std::vector<std::uint32_t>& devices) {
  const double bytes = planner_schedule::count_of(stage.gradients);
  Group members;
  for (const std::uint32_t device : devices) members.push_back({device});
  // The size of the stage decides: latencies make trees the better ones for small sums.
  const Collective collective =
      job.algorithm ? make_collective(CollectiveKind::kAllReduce, *job.algorithm, links, members)
                    : fastest_collective(CollectiveKind::kAllReduce, links, members, bytes);
  std::vector<UpdatePhase> phases;
  for (const CollectivePhase& each : collective.phases)
    phases.push_back({0, each, bytes * each.bytes_per_stream});
  return phases;
}

/// The first lane of `host_update_phases` that brings weights back from the hosts.
constexpr std::uint32_t kFirstLaneToDevices = 5;

/// Lanes 0 to 6: reduce-scatter in the nodes, out to the hosts, reduce-scatter between these, the
/// update of what each host has of the sum, all-gather between hosts, in to the devices, all-gather
/// in the nodes.
std::vector<UpdatePhase> host_update_phases(const Job& job,
                                            const planner_schedule::StageCosts& stage,
                                            const ClusterLinks& links,
                                            const std::vector<std::uint32_t>& devices) {
  const std::vector<Group> groups = groups_of(links, devices);
  std::size_t group = groups.front().size();
  for (const Group& each : groups)
    if (each.size() != group) group = 1;  // Uneven: every device sends all of its gradients.
  const double gradients = planner_schedule::count_of(stage.gradients);
  const double weights = planner_schedule::count_of(stage.weights);
  const auto shards = static_cast<double>(group);
  const auto hosts = static_cast<double>(groups.size());
  // Between hosts, each shard takes the network card beside its device.
  Group between;
  SideBySide updates;
  for (const Group& each : groups) {
    for (std::size_t i = 0; i < group; ++i) between.push_back({each[i].device, /*is_host=*/true});
    updates.add(links.update_route(each.front().device));
  }
  const auto across = [&](CollectiveKind kind) {
    return make_collective(kind, CollectiveAlgorithm::kHierarchical, links, between).phases;
  };
  std::vector<UpdatePhase> phases;
  if (group > 1)
    phases.push_back(within_nodes(0, CollectiveKind::kReduceScatter, links, groups, gradients));
  // The sum within the node comes first, so that each byte passes the link to the host once.
  phases.push_back(copies(1, /*is_out=*/true, links, groups, gradients / shards));
  // Between the members of one host nothing moves, so those phases pass no link.
  for (const CollectivePhase& each : across(CollectiveKind::kReduceScatter))
    if (!each.uses.empty()) phases.push_back({2, each, gradients * each.bytes_per_stream});
  // Hosts update by parameters per second, each its share of the sum.
  phases.push_back(updates.phase(3, weights / job.bytes_per_parameter / hosts, links));
  for (const CollectivePhase& each : across(CollectiveKind::kAllGather))
    if (!each.uses.empty()) phases.push_back({4, each, weights * each.bytes_per_stream});
  phases.push_back(copies(5, /*is_out=*/false, links, groups, weights / shards));
  if (group > 1)
    phases.push_back(within_nodes(6, CollectiveKind::kAllGather, links, groups, weights));
  return phases;
}

std::vector<SumPhase> phases_of(const Job& job, std::uint32_t stage,
                                const std::vector<std::uint32_t>& members, bool is_streamed,
                                FlowTable& flows) {
  std::vector<std::uint32_t> devices;
  for (std::uint32_t pipeline = 0; pipeline < flows.pipelines(); ++pipeline)
    for (const std::uint32_t rank : members) devices.push_back(flows.device(rank, pipeline));
  const auto phases_on = job.update == UpdatePlace::kHost ? host_update_phases : reduction_phases;
  std::vector<SumPhase> phases;
  for (const UpdatePhase& each : phases_on(job, job.stages[stage], flows.links(), devices)) {
    // Streamed weights stay on the host until the action list fetches them.
    if (is_streamed && each.lane >= kFirstLaneToDevices) continue;
    const double least =
        each.streams.latency_seconds + each.streams.pair_rate.seconds_for(each.bytes);
    phases.push_back({each.lane, flows.add_shared(each.streams), each.bytes, least});
  }
  return phases;
}

/// Messages and copies, also those of parts of a stash.
void add_transfers(const Job& job, const schedule::WeightCopies& copies, bool has_messages,
                   std::uint32_t rank, const schedule::Action& action, FlowTable& flows) {
  const bool is_disk = job.swap_target == SwapTarget::kDisk;
  const bool is_swapped = job.stages[action.stage].swapped > Bytes(0);
  if (const auto stage = schedule::output_stage(job.schedule, action)) {
    const std::uint32_t to = job.schedule.rank_of(action.replica, *stage);
    // Lists without messages deliver outputs by the same links.
    if (schedule::is_send(action.kind) || (!has_messages && to != rank)) flows.message(rank, to);
  }
  if (action.kind == schedule::ActionKind::kSendWeights ||
      action.kind == schedule::ActionKind::kSendGradients) {
    const auto& holders = copies.holders(action.stage);
    flows.message(rank, holders[0] == rank ? holders[1] : holders[0]);
  }
  if (action.kind == schedule::ActionKind::kSwapOut ||
      action.kind == schedule::ActionKind::kSwapOutWeights ||
      (is_swapped && action.kind == schedule::ActionKind::kForward))
    flows.copy(rank, /*is_out=*/true, is_disk);
  if (action.kind == schedule::ActionKind::kSwapIn ||
      action.kind == schedule::ActionKind::kSwapInWeights ||
      (is_swapped && schedule::makes_input_gradient(action.kind)))
    flows.copy(rank, /*is_out=*/false, is_disk);
}

}  // namespace

LinkColours colours_of(const FlowTable& flows) {
  const ClusterLinks& links = flows.links();
  const std::vector<Signature> signatures = signatures_of(flows);
  LinkColours colours;
  colours.colour_of.assign(links.size(), LinkColours::kNoColour);
  std::vector<std::uint32_t> first_links;  // By colour, one of its links.
  std::map<std::tuple<LinkClass, double, Signature>, std::uint32_t> known;
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    if (signatures[link].empty()) continue;
    const auto colour = static_cast<std::uint32_t>(colours.rates.size());
    // Links of unlike rates are full at unlike moments, whatever passes them.
    const auto [found, is_new] =
        known.try_emplace({links.kind(link), links.rate(link), signatures[link]}, colour);
    colours.colour_of[link] = found->second;
    if (!is_new) continue;
    colours.rates.push_back(links.rate(link));
    first_links.push_back(link);
  }
  const auto colours_passed = [&](const Route& route) {
    std::vector<std::pair<std::uint32_t, double>> passed;
    for (const LinkUse& use : route.uses)
      passed.emplace_back(colours.colour_of[use.link], use.streams);
    std::sort(passed.begin(), passed.end());
    return passed;
  };
  colours.routes.resize(flows.kind_count());
  for (std::uint32_t kind = 0; kind < flows.kind_count(); ++kind) {
    const Route& first = flows.route(kind, 0);
    const auto passed = colours_passed(first);
    for (std::uint32_t pipeline = 1; !flows.is_shared(kind) && pipeline < flows.pipelines();
         ++pipeline) {
      const Route& other = flows.route(kind, pipeline);
      // A pipeline of other latencies would run ahead of the rest, although its links are as full.
      colours.are_alike = colours.are_alike && colours_passed(other) == passed &&
                          other.latency_seconds == first.latency_seconds;
    }
    std::vector<LinkUse>& uses = colours.routes[kind];
    for (const auto& [colour, streams] : passed) {
      // A signature has all passages of the kind over the colour in one entry.
      if (!uses.empty() && uses.back().link == colour) continue;
      // The pipeline that is simulated stands for all, on links that all of them load.
      const Signature& signature = signatures[first_links[colour]];
      const auto entry = std::find_if(signature.begin(), signature.end(),
                                      [&](const auto& each) { return each.first == kind; });
      uses.push_back({colour, entry->second});
    }
  }
  return colours;
}

std::vector<std::vector<SumPhase>> add_flows(const Job& job, FlowTable& flows) {
  const schedule::Schedule& schedule = job.schedule;
  const schedule::WeightCopies copies(schedule);
  const bool has_messages = schedule::has_action(schedule, schedule::ActionKind::kSendForward);
  // Where hosts update, steps are what is reduced in schedules without reductions.
  const schedule::ActionKind sum =
      job.update == UpdatePlace::kHost &&
              !schedule::has_action(schedule, schedule::ActionKind::kReduce)
          ? schedule::ActionKind::kStep
          : schedule::ActionKind::kReduce;
  std::vector<bool> is_summed(schedule.stages, false), is_streamed(schedule.stages, false);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const schedule::Action& action : schedule.ranks[rank]) {
      add_transfers(job, copies, has_messages, rank, action, flows);
      if (action.kind == sum) is_summed[action.stage] = true;
      if (action.kind == schedule::ActionKind::kSwapInWeights) is_streamed[action.stage] = true;
    }
  std::vector<std::vector<SumPhase>> phases(schedule.stages);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
    if (is_summed[stage])
      phases[stage] = phases_of(job, stage, copies.reducers(stage), is_streamed[stage], flows);
  return phases;
}

}  // namespace spillway::cluster
