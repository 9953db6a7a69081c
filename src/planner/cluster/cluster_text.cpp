#include "spillway/planner/cluster/cluster.h"

#include <array>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/json_writer.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/cluster/transfer_samples.h"

namespace spillway::cluster {
namespace {

// How descriptions of machines call things.

inline constexpr std::array<Named<StragglerLaw>, 4> kLaws{
    {{"none", StragglerLaw::kNone},
     {"uniform", StragglerLaw::kUniform},
     {"half-normal", StragglerLaw::kHalfNormal},
     {"exponential", StragglerLaw::kExponential}}};
inline constexpr std::array<Named<bool>, 2> kWirings{{{"nodes", false}, {"rails", true}}};
inline constexpr std::array<Named<bool>, 2> kUnits{{{"device", false}, {"node", true}}};

constexpr int kDepth = 4;
constexpr std::uint64_t kMostCount = 1'000'000;
// Ranges are checked once, by `check_cluster`, which clusters without a file pass, too.
constexpr double kAny = std::numeric_limits<double>::max();

std::uint32_t count_in(JsonObject& json, const char* key) {
  return static_cast<std::uint32_t>(json.count(key, 0, kMostCount));
}

/// What `check_cluster` evaluates: any number is read.
double number_in(JsonObject& json, const char* key) { return json.number(key, -kAny, kAny); }

TransferRate rate_in(JsonObject& json, const char* key) {
  return TransferRate(number_in(json, key));
}

double number_or(JsonObject& json, const char* key, double otherwise) {
  return json.has(key) ? number_in(json, key) : otherwise;
}

/// What is told in errors and reports, in a line.
std::string name_in(JsonObject& json, const char* key) {
  constexpr std::size_t kMostLetters = 80;
  const std::string name = json.text(key);
  if (name.empty() || name.size() > kMostLetters)
    throw ConfigError("{}: '{}' is no name (give 1 to {} letters in a line)", json.place(key),
                      shown_text(name), kMostLetters);
  return name;
}

Bytes size_in(JsonObject& json, const char* key) {
  const std::string text = json.text(key);
  try {
    return parse_bytes(text);
  } catch (const ConfigError& error) {
    // Whoever reads the sentence looks for the place in a file.
    throw ConfigError("{}: {}", json.place(key), error.what());
  }
}

/// From messages that somebody has measured.
LinkCosts fitted_in(JsonObject& link, const ReadNamed& read) {
  const std::string file = link.text("samples");
  // A caller without files gives no reader, such as one that checks a plan file's copy of a
  // description.
  if (!read)
    throw ConfigError("{}: files of measured messages cannot be read here (give latency_seconds "
                      "and bytes_per_second)",
                      link.place("samples"));
  try {
    return fitted_link(parse_samples(read(file), file));
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", link.place("samples"), error.what());
  }
}

LinkCosts link_in(JsonObject& json, const char* key, const ReadNamed& read) {
  JsonObject link = json.object(key);
  const LinkCosts costs = link.has("samples") ? fitted_in(link, read)
                                              : LinkCosts{number_in(link, "latency_seconds"),
                                                          rate_in(link, "bytes_per_second")};
  // A key that nobody reads is a slip, and what was meant would be missing.
  link.refuse_others();
  return costs;
}

template <typename List>
auto named_in(JsonObject& json, const char* key, const List& list) {
  try {
    // The list knows which words there are, and not where in the file the wrong one stands.
    return value_named(shown_text(json.text(key)), list, "value");
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", json.place(key), error.what());
  }
}

ClusterDevice device_in(JsonObject json) {
  ClusterDevice device;
  device.name = name_in(json, "name");
  device.memory = size_in(json, "memory");
  // 0 is what nobody knows of a device, see `ClusterDevice`.
  device.flops_per_second = number_or(json, "flops_per_second", 0.0);
  device.speed_over_profile = number_or(json, "speed_over_profile", 0.0);
  json.refuse_others();
  return device;
}

ClusterNode node_in(JsonObject json, const ReadNamed& read) {
  ClusterNode node;
  node.devices = count_in(json, "devices");
  node.devices_per_switch = count_in(json, "devices_per_switch");
  node.pcie = link_in(json, "pcie", read);
  node.uplink = link_in(json, "uplink", read);
  if (json.has("nvlink")) node.nvlink = link_in(json, "nvlink", read);
  // One node alone has no network, and need not name cards for it.
  if (json.has("nics")) {
    node.nics = count_in(json, "nics");
    node.nic = link_in(json, "nic", read);
  }
  if (json.has("host_memory")) node.host_memory = size_in(json, "host_memory");
  node.host_update_parameters_per_second =
      number_or(json, "host_update_parameters_per_second", 0.0);
  // Rates go with a number of disks: without any they would say nothing.
  if (json.has("disks")) {
    node.disks = count_in(json, "disks");
    node.disk_read_rate = rate_in(json, "disk_read_bytes_per_second");
    node.disk_write_rate = rate_in(json, "disk_write_bytes_per_second");
  }
  json.refuse_others();
  return node;
}

ClusterNetwork network_in(JsonObject json) {
  ClusterNetwork network;
  network.nodes_per_leaf = count_in(json, "nodes_per_leaf");
  network.oversubscription = number_or(json, "oversubscription", 1.0);
  if (json.has("wiring")) network.has_rails = named_in(json, "wiring", kWirings);
  network.switch_latency_seconds = number_or(json, "switch_latency_seconds", 0.0);
  json.refuse_others();
  return network;
}

Stragglers stragglers_in(JsonObject json) {
  Stragglers stragglers;
  stragglers.law = named_in(json, "law", kLaws);
  stragglers.spread = number_in(json, "spread");
  stragglers.share = number_or(json, "share", 1.0);
  if (json.has("unit")) stragglers.is_by_node = named_in(json, "unit", kUnits);
  // Up to 2^53, every program that reads JSON has the same number.
  if (json.has("seed")) stragglers.seed = json.count("seed", 0, std::uint64_t{1} << 53U);
  json.refuse_others();
  return stragglers;
}

Failures failures_in(JsonObject json) {
  Failures failures;
  failures.node_mean_seconds = number_in(json, "node_mean_seconds");
  failures.checkpoint_interval_seconds = number_in(json, "checkpoint_interval_seconds");
  failures.checkpoint_seconds = number_in(json, "checkpoint_seconds");
  failures.restart_seconds = number_in(json, "restart_seconds");
  json.refuse_others();
  return failures;
}

using nlohmann::ordered_json;

/// To the byte, where `to_string` rounds.
std::string size_text(Bytes size) { return message("{}B", size.count()); }

ordered_json link_json(const LinkCosts& link) {
  return {{"latency_seconds", link.latency_seconds},
          {"bytes_per_second", link.rate.bytes_per_second()}};
}

ordered_json device_json(const ClusterDevice& device) {
  ordered_json json = {{"name", device.name}, {"memory", size_text(device.memory)}};
  // Zero is what nobody has said, and stays unsaid.
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
    json["disk_read_bytes_per_second"] = node.disk_read_rate.bytes_per_second();
    json["disk_write_bytes_per_second"] = node.disk_write_rate.bytes_per_second();
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

Cluster parse_cluster(std::string_view text, const std::string& name, const ReadNamed& read) {
  const JsonText json(text, name, kDepth);
  JsonObject root = json.root();
  root.require_format(kClusterFormat);
  Cluster cluster;
  cluster.name = name_in(root, "name");
  cluster.nodes = count_in(root, "nodes");
  cluster.device = device_in(root.object("device"));
  cluster.node = node_in(root.object("node"), read);
  if (root.has("network")) cluster.network = network_in(root.object("network"));
  if (root.has("stragglers")) cluster.stragglers = stragglers_in(root.object("stragglers"));
  if (root.has("failures")) cluster.failures = failures_in(root.object("failures"));
  if (root.has("sources")) cluster.sources = root.object("sources").all_texts();
  root.refuse_others();
  try {
    check_cluster(cluster);
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", name, error.what());
  }
  return cluster;
}

std::string to_text(const Cluster& cluster) {
  ordered_json document = {{"format", kClusterFormat.name},
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

}  // namespace spillway::cluster
