#include <nlohmann/json.hpp>

#include "cluster_names.h"
#include "spillway/base/error.h"
#include "spillway/base/json_writer.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::planner {
namespace {

using nlohmann::ordered_json;

/// To the byte, where `to_string` rounds.
std::string size_text(Bytes size) { return message("{}B", size.count()); }

ordered_json link_json(const LinkCosts& link) {
  return {{"latency_seconds", link.latency_seconds}, {"bytes_per_second", link.bytes_per_second}};
}

ordered_json device_json(const ClusterDevice& device) {
  ordered_json json = {{"name", device.name}, {"memory", size_text(device.memory)}};
  if (device.flops_per_second > 0.0) json["flops_per_second"] = device.flops_per_second;
  if (device.speed_over_profile > 0.0) json["speed_over_profile"] = device.speed_over_profile;
  return json;
}

ordered_json node_json(const ClusterNode& node) {
  ordered_json json = {{"devices", node.devices},
                       {"devices_per_switch", node.devices_per_switch},
                       {"pcie", link_json(node.pcie)},
                       {"uplink", link_json(node.uplink)}};
  if (node.nvlink) json["nvlink"] = link_json(*node.nvlink);
  if (node.nics > 0) {
    json["nics"] = node.nics;
    json["nic"] = link_json(node.nic);
  }
  if (node.host_memory > Bytes(0)) json["host_memory"] = size_text(node.host_memory);
  if (node.host_update_parameters_per_second > 0.0)
    json["host_update_parameters_per_second"] = node.host_update_parameters_per_second;
  if (node.disks > 0) {
    json["disks"] = node.disks;
    json["disk_read_bytes_per_second"] = node.disk_read_bytes_per_second;
    json["disk_write_bytes_per_second"] = node.disk_write_bytes_per_second;
  }
  return json;
}

ordered_json network_json(const ClusterNetwork& network) {
  return {{"nodes_per_leaf", network.nodes_per_leaf},
          {"oversubscription", network.oversubscription},
          {"wiring", name_in(kWirings, network.has_rails)},
          {"switch_latency_seconds", network.switch_latency_seconds}};
}

ordered_json stragglers_json(const Stragglers& stragglers) {
  return {{"law", name_in(kLaws, stragglers.law)},
          {"spread", stragglers.spread},
          {"share", stragglers.share},
          {"unit", name_in(kUnits, stragglers.is_by_node)},
          {"seed", stragglers.seed}};
}

ordered_json failures_json(const Failures& failures) {
  return {{"node_mean_seconds", failures.node_mean_seconds},
          {"checkpoint_interval_seconds", failures.checkpoint_interval_seconds},
          {"checkpoint_seconds", failures.checkpoint_seconds},
          {"restart_seconds", failures.restart_seconds}};
}

}  // namespace

std::string to_text(const Cluster& cluster) {
  ordered_json document = {{"format", kClusterFormat},
                           {"name", cluster.name},
                           {"nodes", cluster.nodes},
                           {"device", device_json(cluster.device)},
                           {"node", node_json(cluster.node)},
                           {"network", network_json(cluster.network)},
                           {"stragglers", stragglers_json(cluster.stragglers)},
                           {"failures", failures_json(cluster.failures)},
                           {"sources", ordered_json::object()}};
  for (const auto& [key, text] : cluster.sources) document["sources"][key] = text;
  return json_by_lines(document);
}

}  // namespace spillway::planner
