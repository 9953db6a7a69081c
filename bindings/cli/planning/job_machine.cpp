#include "planning/job_machine.h"

#include <algorithm>

#include "planning/cluster_file.h"
#include "planning/job_contradictions.h"
#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using planner::Cluster;

namespace {

/// While both directions are busy.
double slower_way(const profile::TransferRates& rates) {
  return std::min(rates.write_bytes_per_second, rates.read_bytes_per_second) * rates.duplex_share;
}

bool names_link(const RateWords& words) {
  return !(words.link_out + words.link_in + words.duplex).empty();
}

bool names_measured_disks(const RateWords& words) { return !(words.rates + words.nvme).empty(); }

/// What an option leaves of something that each device or node has.
Bytes left_of(const char* option, const std::string& text, Bytes has, const std::string& what) {
  if (text.empty()) return has;
  const Bytes size = size_in(option, text);
  if (size > has)
    throw ConfigError("{} {} is more than {} has: {} (leave it out, or give less)", option,
                      shown_text(text), what, has);
  return size;
}

void slow_down_link(const RateWords& words, const profile::StepProfile& profile, Cluster& cluster) {
  RateWords link;
  link.link_out = words.link_out;
  link.link_in = words.link_in;
  link.duplex = words.duplex;
  const double rate = slower_way(choose_rates(link, profile).rates);
  double& has = cluster.node.pcie.bytes_per_second;
  if (rate > has)
    throw ConfigError("--link-out {} and --link-in {} are more than a device of {} has to its "
                      "host: {} (leave them out, or give less)",
                      shown_text(words.link_out), shown_text(words.link_in), cluster.name,
                      gb_per_s(has));
  has = rate;
}

void take_measured_disks(const RateWords& words, const profile::StepProfile& profile,
                         Cluster& cluster) {
  RateWords disks;
  disks.rates = words.rates;
  disks.nvme = words.nvme;
  const profile::TransferRates rates = choose_rates(disks, profile).rates;
  cluster.node.disks = 1;
  cluster.node.disk_write_bytes_per_second = rates.write_bytes_per_second;
  cluster.node.disk_read_bytes_per_second = rates.read_bytes_per_second;
}

}  // namespace

SwapRates swap_rates(const RateWords& words, std::uint32_t sharers,
                     const profile::StepProfile& profile) {
  const bool names_disks = names_measured_disks(words) || !(words.disk_out + words.disk_in).empty();
  if (!words.host_memory.empty() && names_disks) {
    const ChosenRates chosen = choose_rates(words, profile);
    const double host = slower_way(chosen.rates);
    return {host, std::min(host, slower_way(chosen.far->rates) / sharers)};
  }
  if (!names_link(words) && !names_disks) return {};
  RateWords link = words;
  link.host_memory.clear();
  return {slower_way(choose_rates(link, profile).rates) / (names_disks ? sharers : 1), 0.0};
}

bool swaps_to_disks_alone(const RateWords& words) {
  return words.host_memory.empty() && names_measured_disks(words);
}

Cluster machine_for(const PlanWords& words, const profile::StepProfile& profile) {
  const RateWords& rates = words.common.rates;
  refuse_any({{"--link", &words.job.link}},
             "has no place beside --topology, which has a rate for each kind of link (change it in "
             "a copy of the description)");
  refuse_any({{"--disk-out", &rates.disk_out}, {"--disk-in", &rates.disk_in}},
             "has no place beside --topology, which has the disks; measured ones are --rates and "
             "--nvme");
  Cluster cluster = read_cluster(cluster_path("--topology", words.job.topology));
  cluster.device.memory = left_of("--device-memory", words.job.device_memory, cluster.device.memory,
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
