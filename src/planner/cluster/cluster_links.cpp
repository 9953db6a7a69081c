#include "spillway/planner/cluster/cluster_links.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::cluster {

std::string_view to_string(LinkClass kind) {
  switch (kind) {
    case LinkClass::kNvlink: return "NVLink";
    case LinkClass::kPcie: return "PCIe";
    case LinkClass::kUplink: return "uplink";
    case LinkClass::kNic: return "network card";
    case LinkClass::kSpine: return "spine";
    case LinkClass::kDisk: return "disk";
    case LinkClass::kHostUpdate: break;
  }
  return "host optimizer";
}

ClusterLinks::ClusterLinks(const Cluster& cluster) : cluster_(cluster) {
  check_cluster(cluster_);
  const ClusterNode& node = cluster_.node;
  const std::uint32_t devices = cluster_.device_count();
  if (node.nvlink)
    nvlinks_ = add(LinkClass::kNvlink, devices, node.nvlink->rate.bytes_per_second());
  pcie_ = add(LinkClass::kPcie, devices, node.pcie.rate.bytes_per_second());
  uplinks_ = add(LinkClass::kUplink, cluster_.nodes * cluster_.switches_per_node(),
                 node.uplink.rate.bytes_per_second());
  if (node.disks > 0) {
    disks_ =
        add(LinkClass::kDisk, cluster_.nodes, node.disks * node.disk_write_rate.bytes_per_second());
    // Disks write and read at unlike rates, and files lie on all disks of a node at once.
    for (std::uint32_t i = 0; i < cluster_.nodes; ++i)
      rates_[disks_ + 2 * i + 1] = node.disks * node.disk_read_rate.bytes_per_second();
  }
  if (node.host_update_parameters_per_second > 0.0) {
    // An optimizer has no direction. What it carries is parameters, not bytes.
    updates_ = size();
    rates_.resize(size() + cluster_.nodes, node.host_update_parameters_per_second);
    kinds_.resize(rates_.size(), LinkClass::kHostUpdate);
  }
  // Without a network there are no cards to number; routes within a node never ask for them.
  if (cluster_.nodes == 1) return;
  nics_ = add(LinkClass::kNic, cluster_.nodes * node.nics, node.nic.rate.bytes_per_second());
  const ClusterNetwork& network = cluster_.network;
  const std::uint32_t last_leaf = leaf_of(cluster_.nodes * node.nics - 1);
  // With rails, a leaf has one card of each of its nodes, else all of them.
  const double below = static_cast<double>(network.nodes_per_leaf) *
                       (network.has_rails ? 1.0 : node.nics) * node.nic.rate.bytes_per_second();
  spine_ = add(LinkClass::kSpine, last_leaf + 1, below / network.oversubscription);
}

std::uint32_t ClusterLinks::add(LinkClass kind, std::uint32_t count, double rate) {
  const std::uint32_t first = size();
  // Two for each, as links carry both ways at full rate: 2i away from the device, switch or node,
  // 2i + 1 towards it.
  rates_.resize(first + 2 * std::size_t{count}, rate);
  kinds_.resize(rates_.size(), kind);
  return first;
}

std::uint32_t ClusterLinks::nic_of(std::uint32_t device) const {
  const ClusterNode& node = cluster_.node;
  // Neighbours share a card, since a card is near the switch of the devices that use it.
  return node_of(device) * node.nics + (device % node.devices) * node.nics / node.devices;
}

std::uint32_t ClusterLinks::switch_of(std::uint32_t device) const {
  const ClusterNode& node = cluster_.node;
  return node_of(device) * cluster_.switches_per_node() +
         (device % node.devices) / node.devices_per_switch;
}

std::uint32_t ClusterLinks::switch_of_nic(std::uint32_t nic) const {
  const std::uint32_t nics = cluster_.node.nics;
  const std::uint32_t switches = cluster_.switches_per_node();
  return nic / nics * switches + (nic % nics) * switches / nics;
}

std::uint32_t ClusterLinks::leaf_of(std::uint32_t nic) const {
  const std::uint32_t nics = cluster_.node.nics;
  // Rails: cards of one number are on one leaf, so that devices of one number meet there without
  // the spine.
  const std::uint32_t group = nic / nics / cluster_.network.nodes_per_leaf;
  return cluster_.network.has_rails ? group * nics + nic % nics : group;
}

NodeRange ClusterLinks::nodes_behind(std::uint32_t link) const {
  const ClusterNode& node = cluster_.node;
  const auto of_one = [](std::uint32_t index) { return NodeRange{index, index + 1}; };
  switch (kind(link)) {
    case LinkClass::kNvlink: return of_one(node_of((link - nvlinks_) / 2));
    case LinkClass::kPcie: return of_one(node_of((link - pcie_) / 2));
    case LinkClass::kUplink: return of_one((link - uplinks_) / 2 / cluster_.switches_per_node());
    case LinkClass::kNic: return of_one((link - nics_) / 2 / node.nics);
    case LinkClass::kDisk: return of_one((link - disks_) / 2);
    case LinkClass::kHostUpdate: return of_one(link - updates_);
    case LinkClass::kSpine: break;
  }
  const ClusterNetwork& network = cluster_.network;
  const std::uint32_t group = (link - spine_) / 2 / (network.has_rails ? node.nics : 1);
  const std::uint32_t first = group * network.nodes_per_leaf;
  return {first, std::min(first + network.nodes_per_leaf, cluster_.nodes)};
}

void ClusterLinks::pass(Route& route, std::uint32_t link, double latency) const {
  route.latency_seconds += latency;
  // Twice over a link is half of its rate, not a second flow.
  for (LinkUse& use : route.uses)
    if (use.link == link) {
      ++use.streams;
      return;
    }
  route.uses.push_back({link, 1.0});
}

/// From an endpoint to the switch of its network card.
void ClusterLinks::leave(Route& route, Endpoint from) const {
  const ClusterNode& node = cluster_.node;
  const std::uint32_t to = switch_of_nic(nic_of(from.device));
  if (!from.is_host) {
    pass(route, pcie_ + 2 * from.device, node.pcie.latency_seconds);
    // The card reads the device's memory through their switch, without the host.
    if (switch_of(from.device) == to) return;
    pass(route, uplinks_ + 2 * switch_of(from.device), node.uplink.latency_seconds);
  }
  pass(route, uplinks_ + 2 * to + 1, node.uplink.latency_seconds);
}

void ClusterLinks::enter(Route& route, Endpoint to) const {
  const ClusterNode& node = cluster_.node;
  const std::uint32_t from = switch_of_nic(nic_of(to.device));
  // As on the way out.
  if (!to.is_host && switch_of(to.device) == from)
    return pass(route, pcie_ + 2 * to.device + 1, node.pcie.latency_seconds);
  pass(route, uplinks_ + 2 * from, node.uplink.latency_seconds);
  if (to.is_host) return;
  pass(route, uplinks_ + 2 * switch_of(to.device) + 1, node.uplink.latency_seconds);
  pass(route, pcie_ + 2 * to.device + 1, node.pcie.latency_seconds);
}

Route ClusterLinks::route(Endpoint from, Endpoint to) const {
  SPILLWAY_ASSERT(from.device < cluster_.device_count() && to.device < cluster_.device_count());
  const ClusterNode& node = cluster_.node;
  Route route;
  if (node_of(from.device) != node_of(to.device)) {
    // For the leaf of the sender; and for the spine and the leaf of the receiver, if that is
    // another.
    const double hop = cluster_.network.switch_latency_seconds;
    const std::uint32_t out = nic_of(from.device);
    const std::uint32_t in = nic_of(to.device);
    leave(route, from);
    pass(route, nics_ + 2 * out, node.nic.latency_seconds + hop);
    if (leaf_of(out) != leaf_of(in)) {
      pass(route, spine_ + 2 * leaf_of(out), hop);
      pass(route, spine_ + 2 * leaf_of(in) + 1, hop);
    }
    // The latency from card to card was counted on the way out.
    pass(route, nics_ + 2 * in + 1, 0.0);
    enter(route, to);
    return route;
  }
  // Within a host's memory, and below within a device's, nothing passes a link.
  if (from.is_host && to.is_host) return route;
  if (!from.is_host && !to.is_host) {
    if (from.device == to.device) return route;
    if (node.nvlink) {
      pass(route, nvlinks_ + 2 * from.device, node.nvlink->latency_seconds);
      // NVLink has one latency from device to device, counted on the way out.
      pass(route, nvlinks_ + 2 * to.device + 1, 0.0);
      return route;
    }
  }
  const bool is_local =
      !from.is_host && !to.is_host && switch_of(from.device) == switch_of(to.device);
  if (!from.is_host) {
    pass(route, pcie_ + 2 * from.device, node.pcie.latency_seconds);
    if (!is_local) pass(route, uplinks_ + 2 * switch_of(from.device), node.uplink.latency_seconds);
  }
  if (!to.is_host) {
    if (!is_local)
      pass(route, uplinks_ + 2 * switch_of(to.device) + 1, node.uplink.latency_seconds);
    pass(route, pcie_ + 2 * to.device + 1, node.pcie.latency_seconds);
  }
  return route;
}

Route ClusterLinks::disk_route(std::uint32_t device, bool is_write) const {
  if (cluster_.node.disks == 0)
    throw ConfigError("cluster {}: its nodes have no disk to swap to (give disks, or swap to the "
                      "host)",
                      cluster_.name);
  const Endpoint host{device, /*is_host=*/true};
  // Pages pass the host's memory on their way, so they share its links with copies that stay there.
  Route way = is_write ? route({device}, host) : route(host, {device});
  pass(way, disks_ + 2 * node_of(device) + (is_write ? 0 : 1), 0.0);
  return way;
}

Route ClusterLinks::update_route(std::uint32_t device) const {
  if (cluster_.node.host_update_parameters_per_second == 0.0)
    throw ConfigError("cluster {}: its hosts have no rate of an optimizer (give "
                      "host_update_parameters_per_second, or update on the devices)",
                      cluster_.name);
  return {{{updates_ + node_of(device), 1.0}}, 0.0};
}

}  // namespace spillway::cluster
