#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/planner/cluster/cluster.h"

namespace spillway::cluster {

/// A link carries one direction. Hosts' optimizers and disks are links too: they share a rate.
enum class LinkClass : std::uint8_t {
  kNvlink,
  kPcie,    ///< Between a device and its switch.
  kUplink,  ///< Between a PCIe switch and the host.
  kNic,
  kSpine,  ///< Between a leaf switch and the spine.
  kDisk,
  kHostUpdate,  ///< In parameters, not bytes.
};
inline constexpr std::uint32_t kLinkClasses = 7;

std::string_view to_string(LinkClass kind);

/// A device, or the memory of its host beside it.
struct Endpoint {
  std::uint32_t device = 0;
  bool is_host = false;
};

/// A flow passes a link with so many streams, each of them at the rate of the flow.
struct LinkUse {
  std::uint32_t link = 0;
  double streams = 1.0;

  bool operator==(const LinkUse&) const = default;
};

struct Route {
  std::vector<LinkUse> uses;  ///< Each link once.
  double latency_seconds = 0.0;
};

/// Nodes from the first one to before the last.
struct NodeRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// The links of a cluster by number, and which ones a transfer passes.
///
///     device ── NVLink ── device                      same node
///     device ── PCIe ── (uplink ── uplink ──) PCIe ── device         without NVLink
///     device ── PCIe ── card ── (leaf ── spine ── leaf) ── card ── PCIe ── device
///     device ── PCIe ── uplink ── host (── disk)
///
/// The links of a cluster, and the routes over them. Between nodes, data goes from a device's card
/// to that of the other device, past the host where both hang on one PCIe switch. A leaf of rails
/// joins the cards of one number.
class ClusterLinks {
 public:
  /// Throws what `check_cluster` throws.
  explicit ClusterLinks(const Cluster& cluster);

  const Cluster& cluster() const { return cluster_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(rates_.size()); }
  /// In bytes per second, or in parameters where the class says so: what is shared does not mind.
  double rate(std::uint32_t link) const { return rates_[link]; }
  LinkClass kind(std::uint32_t link) const { return kinds_[link]; }
  const std::vector<double>& rates() const { return rates_; }

  std::uint32_t node_of(std::uint32_t device) const { return device / cluster_.node.devices; }

  /// The nodes that a link is for: its own one, or those below its leaf switch.
  NodeRange nodes_behind(std::uint32_t link) const;

  /// Returns the links from one endpoint to another, none between a host and itself. Both exist.
  Route route(Endpoint from, Endpoint to) const;
  /// Returns the links between a device and the disks of its node. Throws ConfigError without
  /// disks.
  Route disk_route(std::uint32_t device, bool is_write) const;
  /// Returns the link of the optimizer on the host of a device. Throws ConfigError without one.
  Route update_route(std::uint32_t device) const;

 private:
  /// Two links for each of `count`: of even numbers up or out or write, the others back.
  std::uint32_t add(LinkClass kind, std::uint32_t count, double rate);
  void pass(Route& route, std::uint32_t link, double latency) const;
  void leave(Route& route, Endpoint from) const;
  void enter(Route& route, Endpoint to) const;
  std::uint32_t nic_of(std::uint32_t device) const;
  std::uint32_t switch_of(std::uint32_t device) const;
  std::uint32_t switch_of_nic(std::uint32_t nic) const;
  std::uint32_t leaf_of(std::uint32_t nic) const;

  Cluster cluster_;
  std::vector<double> rates_;
  std::vector<LinkClass> kinds_;
  std::uint32_t nvlinks_ = 0, pcie_ = 0, uplinks_ = 0, nics_ = 0, spine_ = 0, disks_ = 0,
                updates_ = 0;  ///< The first of each class.
};

}  // namespace spillway::cluster
