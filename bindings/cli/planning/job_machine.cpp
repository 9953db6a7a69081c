#include "planning/job_machine.h"

#include <algorithm>

#include "planning/cluster_file.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using planner::Cluster;

namespace {

/// While both directions are busy.
TransferRate slower_way(const profile::TransferRates& rates) {
  return std::min(rates.write, rates.read) * rates.duplex_share;
}

/// What an option leaves of something that each device or node has.
void leave(const char* option, Bytes size, Bytes& has, const std::string& what) {
  if (size > has)
    throw ConfigError("{} of {} is more than {} has: {} (leave it out, or give less)", option, size,
                      what, has);
  has = size;
}

void slow_down_link(const RateOptions& options, const profile::StepProfile& profile,
                    Cluster& cluster) {
  const RateOptions link{
      .link_out = options.link_out, .link_in = options.link_in, .duplex = options.duplex};
  const TransferRate rate = slower_way(choose_rates(link, profile).rates);
  TransferRate& has = cluster.node.pcie.rate;
  if (rate > has)
    throw ConfigError("--link-out {} and --link-in {} are more than a device of {} has to its "
                      "host: {} (leave them out, or give less)",
                      options.link_out->bytes_per_second() / 1e9,
                      options.link_in->bytes_per_second() / 1e9, cluster.name, has);
  has = rate;
}

void take_measured_disks(const RateOptions& options, const profile::StepProfile& profile,
                         Cluster& cluster) {
  const RateOptions disks{.rates = options.rates, .nvme = options.nvme};
  const profile::TransferRates rates = choose_rates(disks, profile).rates;
  cluster.node.disks = 1;
  cluster.node.disk_write_rate = rates.write;
  cluster.node.disk_read_rate = rates.read;
}

}  // namespace

SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile) {
  const bool names_disks = options.has_measured_disks() || options.disk_out.has_value();
  if (options.host_memory && names_disks) {
    const ChosenRates chosen = choose_rates(options, profile);
    const TransferRate host = slower_way(chosen.rates);
    return {host, std::min(host, slower_way(chosen.far->rates) / sharers)};
  }
  if (!options.link_out && !names_disks) return {};
  RateOptions link = options;
  link.host_memory.reset();
  return {slower_way(choose_rates(link, profile).rates) / (names_disks ? sharers : 1), {}};
}

Cluster machine_for(const JobOptions& options, const profile::StepProfile& profile) {
  const RateOptions& rates = options.rates;
  Cluster cluster = read_cluster(options.cluster);
  if (options.request.device_memory != planner::kNoLimit)
    leave("--device-memory", options.request.device_memory, cluster.device.memory,
          message("a {} of {}", cluster.device.name, cluster.name));
  if (rates.host_memory && cluster.node.host_memory > Bytes(0))
    leave("--host-memory", *rates.host_memory, cluster.node.host_memory,
          message("a node of {}", cluster.name));
  else if (rates.host_memory)
    cluster.node.host_memory = *rates.host_memory;
  if (rates.link_out) slow_down_link(rates, profile, cluster);
  if (rates.has_measured_disks()) take_measured_disks(rates, profile, cluster);
  return cluster;
}

}  // namespace spillway::cli
