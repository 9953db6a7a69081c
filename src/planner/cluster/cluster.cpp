#include "spillway/planner/cluster/cluster.h"

#include <cmath>
#include <string_view>

#include "spillway/base/error.h"

namespace spillway::cluster {
namespace {

constexpr std::uint64_t kMostDevices = 1'000'000;
constexpr std::uint32_t kMostDevicesOfNode = 1024;
constexpr std::uint32_t kMostDisks = 1024;
// Whatever a job carries over such links, every time is a number that can be written and added.
constexpr double kLeastRate = 1.0;
constexpr double kMostRate = 1e18;
constexpr double kMostSeconds = 1e12;
// Factors beyond these are slips of units.
constexpr double kLeastSpeed = 1e-3;
constexpr double kMostSpeed = 1e3;
constexpr double kMostSpread = 1e3;
constexpr double kMostOversubscription = 1e3;

void check_rate(const Cluster& cluster, std::string_view what, double rate,
                std::string_view unit = "bytes/s") {
  if (!(rate >= kLeastRate && rate <= kMostRate))
    throw ConfigError("cluster {}: {} cannot carry {} {} (give {} to {})", cluster.name, what, rate,
                      unit, kLeastRate, kMostRate);
}

void check_seconds(const Cluster& cluster, std::string_view what, double seconds) {
  if (!(seconds >= 0.0 && seconds <= kMostSeconds))
    throw ConfigError("cluster {}: {} cannot be {} s (give 0 to {})", cluster.name, what, seconds,
                      kMostSeconds);
}

/// Nothing, or a time that is not lost beside the others of its kind.
void check_none_or(const Cluster& cluster, std::string_view what, double seconds, double least) {
  if (seconds != 0.0 && !(seconds >= least && seconds <= kMostSeconds))
    throw ConfigError("cluster {}: {} cannot be {} s (give 0, or {} to {})", cluster.name, what,
                      seconds, least, kMostSeconds);
}

void check_link(const Cluster& cluster, std::string_view what, const LinkCosts& link) {
  check_rate(cluster, what, link.rate.bytes_per_second());
  check_seconds(cluster, message("the latency of {}", what), link.latency_seconds);
}

void check_device(const Cluster& cluster) {
  const ClusterDevice& device = cluster.device;
  const double speed = device.speed_over_profile;
  if (speed != 0.0 && !(speed >= kLeastSpeed && speed <= kMostSpeed))
    throw ConfigError("cluster {}: its devices cannot be {} times as fast as the profile's (give "
                      "speed_over_profile from {} to {}, or leave it out)",
                      cluster.name, speed, kLeastSpeed, kMostSpeed);
  if (device.memory == Bytes(0))
    throw ConfigError("cluster {}: the memory of a device cannot be {} (give 1 B or more)",
                      cluster.name, device.memory);
  if (device.flops_per_second != 0.0)
    check_rate(cluster, "a device", device.flops_per_second, "operations/s");
}

void check_node(const Cluster& cluster) {
  const ClusterNode& node = cluster.node;
  if (cluster.nodes == 0) throw ConfigError("cluster {}: it has no node (give 1)", cluster.name);
  if (node.devices == 0)
    throw ConfigError("cluster {}: a node has no device (give 1)", cluster.name);
  if (node.devices > kMostDevicesOfNode)
    throw ConfigError("cluster {}: a node cannot have {} devices (give 1 to {}, and more nodes)",
                      cluster.name, node.devices, kMostDevicesOfNode);
  // In 64 bits, as the product of two counts need not fit into 32.
  if (std::uint64_t{cluster.nodes} * node.devices > kMostDevices)
    throw ConfigError("cluster {}: {} nodes of {} devices are more than {} devices (give fewer)",
                      cluster.name, cluster.nodes, node.devices, kMostDevices);
  if (node.devices_per_switch == 0 || node.devices_per_switch > node.devices)
    throw ConfigError("cluster {}: {} of the {} devices of a node cannot share a PCIe switch (give "
                      "1 to {})",
                      cluster.name, node.devices_per_switch, node.devices, node.devices);
  check_link(cluster, "the PCIe link of a device", node.pcie);
  check_link(cluster, "the uplink of a PCIe switch", node.uplink);
  if (node.nvlink) check_link(cluster, "the NVLink of a device", *node.nvlink);
  if (node.host_update_parameters_per_second != 0.0)
    check_rate(cluster, "the optimizer of a host", node.host_update_parameters_per_second,
               "parameters/s");
  // Rates of disks that are not there need not be given, and are 0.
  if (node.disks == 0) return;
  if (node.disks > kMostDisks)
    throw ConfigError("cluster {}: a node cannot have {} disks (give 0 to {})", cluster.name,
                      node.disks, kMostDisks);
  check_rate(cluster, "reading from a disk", node.disk_read_rate.bytes_per_second());
  check_rate(cluster, "writing to a disk", node.disk_write_rate.bytes_per_second());
}

void check_network(const Cluster& cluster) {
  check_seconds(cluster, "the latency of a switch", cluster.network.switch_latency_seconds);
  if (cluster.node.nics > cluster.node.devices * 16)
    throw ConfigError("cluster {}: a node of {} devices cannot have {} network cards (give 16 a "
                      "device at most)",
                      cluster.name, cluster.node.devices, cluster.node.nics);
  // One node has no network, so nothing of it is looked at.
  if (cluster.nodes == 1) return;
  if (cluster.node.nics == 0)
    throw ConfigError("cluster {}: {} nodes have no network card that connects them (give nics 1 "
                      "or more, or nodes 1)",
                      cluster.name, cluster.nodes);
  check_link(cluster, "a network card", cluster.node.nic);
  if (cluster.network.nodes_per_leaf == 0)
    throw ConfigError("cluster {}: a leaf switch connects no node (give nodes_per_leaf 1 or more)",
                      cluster.name);
  if (!(cluster.network.oversubscription >= 1.0 &&
        cluster.network.oversubscription <= kMostOversubscription))
    throw ConfigError("cluster {}: an oversubscription of {} is none (give 1 to {})", cluster.name,
                      cluster.network.oversubscription, kMostOversubscription);
}

/// Numbers of SplitMix64 (Steele et al., OOPSLA 2014): the standard library's distributions differ
/// between machines.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}

  /// In (0, 1).
  double next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    mixed ^= mixed >> 31U;
    // Neither 0 nor 1, as laws take its logarithm.
    return (static_cast<double>(mixed >> 12U) + 0.5) * 0x1p-52;
  }

 private:
  std::uint64_t state_;
};

double drawn(StragglerLaw law, Draws& draws) {
  constexpr double kTwoPi = 6.283185307179586;
  const double first = draws.next();
  const double second = draws.next();  // Always two, so that laws share their choice of devices.
  switch (law) {
    case StragglerLaw::kUniform: return first;
    case StragglerLaw::kHalfNormal:
      return std::abs(std::sqrt(-2.0 * std::log(first)) * std::cos(kTwoPi * second));
    case StragglerLaw::kExponential: return -std::log(first);
    default: return 0.0;
  }
}

}  // namespace

void check_cluster(const Cluster& cluster) {
  check_device(cluster);
  check_node(cluster);
  check_network(cluster);
  const Stragglers& stragglers = cluster.stragglers;
  if (!(stragglers.spread >= 0.0 && stragglers.spread <= kMostSpread))
    throw ConfigError("cluster {}: stragglers cannot be slower by {} (give 0 to {})", cluster.name,
                      stragglers.spread, kMostSpread);
  if (!(stragglers.share >= 0.0 && stragglers.share <= 1.0))
    throw ConfigError("cluster {}: stragglers cannot be {} of the devices (give 0 to 1)",
                      cluster.name, stragglers.share);
  const Failures& failures = cluster.failures;
  check_none_or(cluster, "the time between failures", failures.node_mean_seconds, 1.0);
  check_none_or(cluster, "the time between checkpoints", failures.checkpoint_interval_seconds,
                1e-3);
  check_none_or(cluster, "a checkpoint", failures.checkpoint_seconds, 1e-3);
  check_seconds(cluster, "a restart", failures.restart_seconds);
  if (failures.node_mean_seconds > 0.0 && failures.checkpoint_interval_seconds == 0.0)
    throw ConfigError("cluster {}: nodes fail each {} s, and no checkpoint is taken (give "
                      "checkpoint_interval_seconds)",
                      cluster.name, failures.node_mean_seconds);
}

std::vector<double> device_slowdowns(const Cluster& cluster) {
  std::vector<double> slowdowns(cluster.device_count(), 1.0);
  const Stragglers& stragglers = cluster.stragglers;
  if (stragglers.law == StragglerLaw::kNone) return slowdowns;
  Draws draws(stragglers.seed);
  // One draw is for all devices of a node, or for each.
  const std::uint32_t together = stragglers.is_by_node ? cluster.node.devices : 1;
  for (std::uint32_t first = 0; first < cluster.device_count(); first += together) {
    const bool is_slow = draws.next() < stragglers.share;
    // Drawn for fast ones, too: with another share, the others stay as slow as they were.
    const double slowdown = 1.0 + stragglers.spread * drawn(stragglers.law, draws);
    for (std::uint32_t i = first; i < first + together; ++i)
      slowdowns[i] = is_slow ? slowdown : 1.0;
  }
  return slowdowns;
}

double useful_share(const Failures& failures, std::uint32_t nodes) {
  const double work = failures.checkpoint_interval_seconds;
  if (work == 0.0) return 1.0;
  const double segment = work + failures.checkpoint_seconds;
  // Without failures only checkpoints cost time.
  if (failures.node_mean_seconds == 0.0) return work / segment;
  // A failure of any node stops the job.
  const double mean = failures.node_mean_seconds / nodes;
  // A segment is short beside the mean of good nodes, where exp(x) - 1 would have no digits left.
  return work / (mean * std::exp(failures.restart_seconds / mean) * std::expm1(segment / mean));
}

double best_checkpoint_interval(const Failures& failures, std::uint32_t nodes) {
  if (failures.node_mean_seconds == 0.0 || failures.checkpoint_seconds == 0.0) return 0.0;
  const double mean = failures.node_mean_seconds / nodes;
  // The share is greatest where x = τ/mean solves x = 1 − e^{−x − c/mean}. The difference of the
  // two sides is convex and positive at 1, so Newton's steps come down to the solution.
  double x = 1.0;
  for (int i = 0; i < 100; ++i) {
    const double lost = -std::expm1(-x - failures.checkpoint_seconds / mean);
    x -= (x - lost) / lost;
  }
  return x * mean;
}

}  // namespace spillway::cluster
