#include "spillway/planner/machine/machine_share.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::machine {
namespace {

/// Of gradients of a stage: large enough that latencies count little.
constexpr double kTypicalBytes = 100e6;

/// What a transfer finds on idle links.
LinkCosts alone(const cluster::ClusterLinks& links, std::uint32_t from, std::uint32_t to) {
  const cluster::Route route = links.route({from}, {to});
  LinkCosts costs{route.latency_seconds};
  for (const cluster::LinkUse& use : route.uses)
    costs.rate = std::min(costs.rate, TransferRate(links.rate(use.link) / use.streams));
  return costs;
}

/// Neighbouring stages, and the two ends, which interleaved stages pass, too.
LinkCosts slowest_peer(const cluster::ClusterLinks& links, std::uint32_t ranks,
                       std::uint32_t pipeline) {
  LinkCosts slowest;
  if (pipeline < 2) return slowest;
  // Beyond that, devices lie as they did before.
  const cluster::Cluster& cluster = links.cluster();
  const std::uint64_t period =
      std::lcm(std::uint64_t{pipeline},
               std::uint64_t{cluster.node.devices} * std::max(1U, cluster.network.nodes_per_leaf));
  const auto last = static_cast<std::uint32_t>(std::min<std::uint64_t>(ranks, period));
  for (std::uint32_t device = 0; device < last; ++device) {
    const std::uint32_t first = device / pipeline * pipeline;
    const LinkCosts pair = alone(links, device, first + (device - first + 1) % pipeline);
    slowest.latency_seconds = std::max(slowest.latency_seconds, pair.latency_seconds);
    slowest.rate = std::min(slowest.rate, pair.rate);
  }
  return slowest;
}

/// What the sums of all stages put on a link.
struct SumLoad {
  double seconds = 0.0;  ///< Per byte of every stage.
  std::uint32_t first_rank = 0;
  std::uint32_t last_rank = 0;
  std::uint32_t ranks = 0;  ///< Of a pipeline, whose sums pass it.

  void add(std::uint32_t rank, double more) {
    seconds += more;
    if (ranks == 0) first_rank = rank;
    if (ranks == 0 || last_rank != rank) ++ranks;
    last_rank = rank;
  }

  /// Whether every so many ranks, from the first one on, can have such a link.
  bool is_of_a_block() const {
    return last_rank - first_rank + 1 == ranks && first_rank % ranks == 0;
  }
};

/// Links for which the ring's formula, 2(n − 1)α + 2(n − 1)/n · M/β, says what the sum of a stage
/// takes alone, and how long the fullest link is busy with the sums of those that share it.
void set_sum_links(const cluster::ClusterLinks& links, std::uint32_t pipeline,
                   std::uint32_t data_parallel, MachineShare& share) {
  std::unordered_map<std::uint32_t, SumLoad> loads;
  double latency = 0.0;
  double slowest = 0.0;
  SumLoad fullest;
  for (std::uint32_t rank = 0; rank < pipeline; ++rank) {
    std::vector<cluster::Endpoint> members;
    for (std::uint32_t group = 0; group < data_parallel; ++group)
      members.push_back({group * pipeline + rank});
    const cluster::Collective sum = cluster::fastest_collective(cluster::CollectiveKind::kAllReduce,
                                                                links, members, kTypicalBytes);
    const double fixed = cluster::seconds_alone(sum, links, 0.0);
    latency = std::max(latency, fixed);
    slowest = std::max(slowest,
                       (cluster::seconds_alone(sum, links, kTypicalBytes) - fixed) / kTypicalBytes);
    for (const cluster::CollectivePhase& phase : sum.phases)
      for (const cluster::LinkUse& use : phase.uses) {
        SumLoad& load = loads[use.link];
        load.add(rank, use.streams * phase.bytes_per_stream / links.rate(use.link));
        if (load.seconds > fullest.seconds) fullest = load;
      }
  }
  // The formula solved for α and β, whatever collective was the fastest.
  const double rounds = 2.0 * (data_parallel - 1.0);
  share.reduce = {latency / rounds, TransferRate(rounds / (data_parallel * slowest))};
  const std::uint32_t sharing = fullest.is_of_a_block() ? fullest.ranks : pipeline;
  share.shared_sums = {sharing, TransferRate(sharing * rounds / (data_parallel * fullest.seconds))};
}

TransferRate swap_rate(const cluster::Cluster& cluster, std::uint32_t ranks,
                       cluster::SwapTarget target) {
  const cluster::ClusterNode& node = cluster.node;
  const std::uint32_t sharing = std::min(ranks, node.devices_per_switch);
  const TransferRate to_host = std::min(node.pcie.rate, node.uplink.rate / sharing);
  if (target == cluster::SwapTarget::kHost) return to_host;
  if (node.disks == 0)
    throw ConfigError("cluster {}: its nodes have no disk to swap to (give disks, or swap to the "
                      "host)",
                      cluster.name);
  // What leaves comes back, so the slower way counts.
  const TransferRate disks = std::min(node.disk_read_rate, node.disk_write_rate) * node.disks;
  return std::min(to_host, disks / std::min(ranks, node.devices));
}

void divide_times(job::JobRequest& request, double speed) {
  for (partition::ModelLayer& layer : request.chain.layers) {
    layer.forward_seconds /= speed;
    layer.backward_seconds /= speed;
    for (partition::RecomputePoint& point : layer.recompute) point.seconds /= speed;
  }
  request.update_seconds /= speed;
}

}  // namespace

MachineShare share_of(const cluster::Cluster& cluster, std::uint32_t ranks,
                      std::uint32_t data_parallel, cluster::SwapTarget swap_target) {
  if (ranks > cluster.device_count())
    throw ConfigError("{} are more than the {} of cluster {} (use fewer ranks, or a "
                      "larger cluster)",
                      counted(ranks, "rank"), counted(cluster.device_count(), "device"),
                      cluster.name);
  const cluster::ClusterLinks links(cluster);
  const std::uint32_t pipeline = ranks / data_parallel;
  MachineShare share;
  share.peer = slowest_peer(links, ranks, pipeline);
  share.reduce = share.peer;
  if (data_parallel > 1) set_sum_links(links, pipeline, data_parallel, share);
  share.swap_rate = swap_rate(cluster, ranks, swap_target);
  return share;
}

job::JobRequest request_on(const job::JobRequest& request, const cluster::Cluster& cluster,
                           std::uint32_t data_parallel, cluster::SwapTarget swap_target) {
  const MachineShare share = share_of(cluster, request.ranks, data_parallel, swap_target);
  job::JobRequest on = request;
  on.link = share.peer;
  on.reduce_link = share.reduce;
  on.shared_sums = share.shared_sums;
  on.swap_rate = share.swap_rate;
  on.device_memory = std::min(request.device_memory, cluster.device.memory);
  // Ranks of a host share its memory, which one plan of a rank cannot see: `search_job_on` sums.
  on.host_memory = partition::kNoLimit;
  if (cluster.device.speed_over_profile > 0.0) divide_times(on, cluster.device.speed_over_profile);
  return on;
}

std::vector<Bytes> host_peaks(const job::JobPlan& plan, std::uint32_t ranks_per_host) {
  const std::uint64_t pipeline = plan.memory.size();
  // Pipelines are alike: beyond this, hosts hold what the first ones hold.
  const std::uint64_t ranks =
      std::min(std::uint64_t{plan.ranks}, std::lcm(pipeline, std::uint64_t{ranks_per_host}));
  std::vector<Bytes> peaks((ranks + ranks_per_host - 1) / ranks_per_host);
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    peaks[rank / ranks_per_host] += plan.memory[rank % pipeline].host;
  return peaks;
}

Bytes fullest_host(const job::JobPlan& plan, std::uint32_t ranks_per_host) {
  Bytes most;
  for (const Bytes peak : host_peaks(plan, ranks_per_host)) most = std::max(most, peak);
  return most;
}

}  // namespace spillway::machine
