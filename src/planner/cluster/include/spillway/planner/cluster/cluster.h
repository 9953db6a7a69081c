#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::cluster {

/// A computing device. Times of stages are given for it; a slower one multiplies them by its
/// slowdown.
struct ClusterDevice {
  std::string name;
  Bytes memory;
  double flops_per_second =
      0.0;  ///< Rate that large matrix products reach, below the peak; 0: unknown.
  /// How many times as fast as the device that the profiles were recorded on; 0: unknown.
  double speed_over_profile = 0.0;
};

/// All nodes are built alike. Links carry their rate each way at the same time.
struct ClusterNode {
  std::uint32_t devices = 1;
  std::uint32_t devices_per_switch = 1;  ///< Behind one PCIe switch.
  LinkCosts pcie;                        ///< Link of each device to its switch.
  LinkCosts uplink;                      ///< Link of each switch to the host.
  std::optional<LinkCosts> nvlink{};     ///< Link of each device to all others of its node.
  /// Spread over the switches in order; device d uses card d · nics / devices.
  std::uint32_t nics = 0;
  LinkCosts nic;  ///< Link of each card to its leaf switch.
  Bytes host_memory;
  double host_update_parameters_per_second = 0.0;  ///< Optimizer on the host; 0: none.
  std::uint32_t disks = 0;
  TransferRate disk_read_rate;  ///< Of each disk.
  TransferRate disk_write_rate;
};

/// Two layers of switches: leaves, and a spine that joins them.
struct ClusterNetwork {
  std::uint32_t nodes_per_leaf = 1;
  /// Bandwidth of the cards below a leaf over that of its links to the spine.
  double oversubscription = 1.0;
  bool has_rails = false;  ///< Card i of all nodes of a group has a leaf switch of its own.
  double switch_latency_seconds = 0.0;
};

/// How much slower than nominal a device or node is: 1 + spread · x, where x is drawn once.
enum class StragglerLaw : std::uint8_t {
  kNone,
  kUniform,      ///< From 0 to 1.
  kHalfNormal,   ///< |z|.
  kExponential,  ///< Exponential with mean 1.
};

struct Stragglers {
  StragglerLaw law = StragglerLaw::kNone;
  double spread = 0.0;
  double share = 1.0;       ///< Share of devices (nodes) that are slowed down at all.
  bool is_by_node = false;  ///< All devices of a node alike.
  std::uint64_t seed = 1;
};

/// Nodes fail independently, at any time with the same probability.
struct Failures {
  double node_mean_seconds = 0.0;  ///< Between failures of one node; 0: never.
  double checkpoint_interval_seconds = 0.0;
  double checkpoint_seconds = 0.0;  ///< To write one, while nothing else goes on.
  double restart_seconds = 0.0;     ///< From a failure until work goes on at the last checkpoint.
};

struct Cluster {
  std::uint32_t device_count() const { return nodes * node.devices; }
  std::uint32_t switches_per_node() const {
    return (node.devices + node.devices_per_switch - 1) / node.devices_per_switch;
  }

  std::string name;
  std::uint32_t nodes = 1;
  ClusterDevice device;
  ClusterNode node;
  ClusterNetwork network;
  Stragglers stragglers;
  Failures failures;
  std::vector<std::pair<std::string, std::string>>
      sources;  ///< Sources of figures, by the name of the figure.
};

/// Throws ConfigError for a cluster whose parts cannot reach each other or carry nothing, and for
/// figures that no machine has, like rates beyond 1 to 10^18 or times beyond 10^12 s: one sentence
/// with the value and ones that work.
void check_cluster(const Cluster& cluster);

/// 1 or more for each device; the same on every machine for the same seed.
std::vector<double> device_slowdowns(const Cluster& cluster);

/// Share of the time on `nodes` nodes that is work which a failure does not take back, with a
/// checkpoint each interval (Daly 2006, equation 20: a segment of work τ and checkpoint c under
/// failures at rate λ takes e^{λR}(e^{λ(τ + c)} − 1)/λ on average; restarts R fail, too). 1 without
/// failures and checkpoints.
double useful_share(const Failures& failures, std::uint32_t nodes);

/// The interval that maximizes `useful_share`; 0 where nothing fails or a checkpoint is free.
double best_checkpoint_interval(const Failures& failures, std::uint32_t nodes);

/// Gives the text of a file that a description names.
using ReadNamed = std::function<std::string(const std::string& file)>;

/// Reads a description as bindings/clusters has them; `read` brings the files of measured messages
/// that links may name instead of figures. Throws ConfigError that begins with `name` for text that
/// is no such description, and what `check_cluster`, `parse_samples`, `fitted_link` and `read`
/// throw.
Cluster parse_cluster(std::string_view text, const std::string& name, const ReadNamed& read = {});

/// A description that `parse_cluster` reads as the same machine, and that names no other file:
/// links that were fitted to messages have the figures.
std::string to_text(const Cluster& cluster);

}  // namespace spillway::cluster
