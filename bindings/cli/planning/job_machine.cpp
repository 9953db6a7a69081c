#include "planning/job_machine.h"

#include <algorithm>

#include "planning/cluster_file.h"
#include "planning/job_contradictions.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using planner::Cluster;

namespace {

/// While both directions are busy.
double slower_way(const profile::TransferRates& rates) {
  return std::min(rates.write_bytes_per_second, rates.read_bytes_per_second) * rates.duplex_share;
}

bool names_link(const RateOptions& options) {
  return !(options.link_out + options.link_in + options.duplex).empty();
}

bool names_measured_disks(const RateOptions& options) {
  return !(options.rates + options.nvme).empty();
}

/// What an option leaves of something that each device or node has.
Bytes left_of(const char* option, const std::string& text, Bytes has, const std::string& what) {
  if (text.empty()) return has;
  const Bytes size = size_in(option, text);
  if (size > has)
    throw ConfigError("{} {} is more than {} has: {} (leave it out, or give less)", option,
                      shown_text(text), what, has);
  return size;
}

void slow_down_link(const RateOptions& options, const profile::StepProfile& profile,
                    Cluster& cluster) {
  RateOptions link;
  link.link_out = options.link_out;
  link.link_in = options.link_in;
  link.duplex = options.duplex;
  const double rate = slower_way(choose_rates(link, profile).rates);
  double& has = cluster.node.pcie.bytes_per_second;
  if (rate > has)
    throw ConfigError("--link-out {} and --link-in {} are more than a device of {} has to its "
                      "host: {} (leave them out, or give less)",
                      shown_text(options.link_out), shown_text(options.link_in), cluster.name,
                      gb_per_s(has));
  has = rate;
}

void take_measured_disks(const RateOptions& options, const profile::StepProfile& profile,
                         Cluster& cluster) {
  RateOptions disks;
  disks.rates = options.rates;
  disks.nvme = options.nvme;
  const profile::TransferRates rates = choose_rates(disks, profile).rates;
  cluster.node.disks = 1;
  cluster.node.disk_write_bytes_per_second = rates.write_bytes_per_second;
  cluster.node.disk_read_bytes_per_second = rates.read_bytes_per_second;
}

}  // namespace

SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile) {
  const bool names_disks =
      names_measured_disks(options) || !(options.disk_out + options.disk_in).empty();
  if (!options.host_memory.empty() && names_disks) {
    const ChosenRates chosen = choose_rates(options, profile);
    const double host = slower_way(chosen.rates);
    return {host, std::min(host, slower_way(chosen.far->rates) / sharers)};
  }
  if (!names_link(options) && !names_disks) return {};
  RateOptions link = options;
  link.host_memory.clear();
  return {slower_way(choose_rates(link, profile).rates) / (names_disks ? sharers : 1), 0.0};
}

bool swaps_to_disks_alone(const RateOptions& options) {
  return options.host_memory.empty() && names_measured_disks(options);
}

Cluster machine_for(const PlanOptions& options, const profile::StepProfile& profile) {
  const RateOptions& rates = options.common.rates;
  refuse_any({{"--link", &options.job.link}},
             "has no place beside --topology, which has a rate for each kind of link (change it in "
             "a copy of the description)");
  refuse_any({{"--disk-out", &rates.disk_out}, {"--disk-in", &rates.disk_in}},
             "has no place beside --topology, which has the disks; measured ones are --rates and "
             "--nvme");
  refuse_any({{"--gpu", &rates.gpu}},
             "has no place beside --topology, which has the links of its devices");
  Cluster cluster = read_cluster(cluster_path("--topology", options.job.topology));
  cluster.device.memory =
      left_of("--device-memory", options.job.device_memory, cluster.device.memory,
              message("a {} of {}", cluster.device.name, cluster.name));
  if (cluster.node.host_memory > Bytes(0))
    cluster.node.host_memory = left_of("--host-memory", rates.host_memory, cluster.node.host_memory,
                                       message("a node of {}", cluster.name));
  else if (!rates.host_memory.empty())
    cluster.node.host_memory = size_in("--host-memory", rates.host_memory);
  if (names_link(rates)) slow_down_link(rates, profile, cluster);
  if (names_measured_disks(rates)) take_measured_disks(rates, profile, cluster);
  return cluster;
}

}  // namespace spillway::cli
