#include "planning/commands.h"

#include <algorithm>
#include <optional>
#include <ostream>

#include "planning/cluster_file.h"
#include "planning/job_comparison.h"
#include "planning/job_report.h"
#include "planning/stored_job.h"
#include "planning/svg_drawing.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/measured_model.h"

namespace spillway::cli {

using cluster::Cluster;
using job::JobRequest;

namespace {

/// Ranks of a host, which share the disks that are named. A described machine says it itself.
std::uint32_t sharers_of_disks(const JobOptions& options) {
  const std::uint32_t ranks = options.request.ranks;
  const bool has_disks = options.rates.has_measured_disks() || options.rates.disk_out.has_value();
  if (!has_disks || ranks == 1 || !options.cluster.empty()) return 1;
  if (!options.ranks_per_host)
    throw ConfigError("{} ranks may share the disks of a host (say with --ranks-per-host how many "
                      "do)",
                      ranks);
  return std::min(*options.ranks_per_host, ranks);
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
  const TransferRate rate = swap_rates(link, 1, profile).host;
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
  const profile::TransferRates rates = measured_disks(options, profile);
  cluster.node.disks = 1;
  cluster.node.disk_write_rate = rates.write;
  cluster.node.disk_read_rate = rates.read;
}

/// The machine behind --cluster, as the other options leave it to the job: less memory, a slower
/// link to the host, measured disks. Throws ConfigError for what it does not have, and what
/// `read_cluster` throws.
Cluster machine_for(const JobOptions& options, const profile::StepProfile& profile) {
  const RateOptions& rates = options.rates;
  Cluster cluster = read_cluster(options.cluster);
  if (options.request.device_memory != partition::kNoLimit)
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

/// Whether branches may run in another order than the profile has them.
bool may_reorder(BranchOrder order, bool is_known) {
  return order == BranchOrder::kAuto ? is_known : order == BranchOrder::kAny;
}

/// What is asked for, without a machine.
JobRequest request_of(const JobOptions& options, const SwapRates& swaps,
                      const profile::StepProfile& profile) {
  JobRequest request = options.request;
  const bool is_open = request.schedule == job::kAnySchedule;
  request.batch = options.batch.value_or(options.micro_batches.value_or(request.ranks));
  request.micro_batches = options.micro_batches.value_or(is_open ? 0 : request.batch);
  if (options.cluster.empty()) {
    request.swap_rate = swaps.host;
    if (options.rates.host_memory && swaps.host.is_none())
      throw ConfigError("--host-memory {} is for what is swapped, and no link to the host is named "
                        "(add --link-out and --link-in)",
                        as_option(*options.rates.host_memory));
    request.host_memory = options.rates.host_memory.value_or(partition::kNoLimit);
  }
  job::MeasuredModel model = job::measured_model(profile);
  request.chain = std::move(model.chain);
  request.chain.may_reorder = may_reorder(options.order, request.chain.may_reorder);
  request.update_seconds = model.update_seconds;
  request.reserved = model.reserved;
  request.guesses_forward = model.guesses_forward;
  check(request);
  return request;
}

/// On the machine, where one is named. What the hosts have no room for goes to disks, where some
/// are named.
void search(const JobOptions& options, TransferRate disk, const std::optional<Cluster>& cluster,
            FoundJob& job, const Clock& clock) {
  ProgressLine progress(clock);
  const job::ShowChoice show = [&](const job::JobChoice& choice, Bytes memory) {
    progress.show(message("planning {} on {}{}: {} on pipelines of {}",
                          counted(job.request.chain.layers.size(), "layer"),
                          counted(job.request.ranks, "rank"),
                          memory == partition::kNoLimit ? "" : message(" of {}", memory),
                          job::schedule_text(choice.generator->name, choice.variant),
                          job.request.ranks / choice.data_parallel));
  };
  if (cluster) {
    planner_schedule::OrRefusal<machine::MachineSearch> found =
        machine::search_job_on(job.request, *cluster, show);
    if (!found) raise(found.refusal());
    job.search = std::move(found->search);
    job.request = std::move(found->request);
    job.swap_target = found->swap_target;
    job.ranks_per_host = cluster->node.devices;
    if (cluster->node.host_memory > Bytes(0)) job.host_memory = cluster->node.host_memory;
    job.machine =
        FoundMachine{options.cluster, *cluster, std::move(found->timing), std::move(found->runs)};
    return;
  }
  job.ranks_per_host = sharers_of_disks(options);
  job.host_memory = job.request.host_memory;
  if (job.host_memory != partition::kNoLimit)
    job.host_memory = job.host_memory * job.ranks_per_host;
  if (options.rates.swaps_to_disks()) job.swap_target = cluster::SwapTarget::kDisk;
  // Hosts with room for all are quicker than the disks behind them.
  const bool may_go_on = !disk.is_none() && job.request.host_memory != partition::kNoLimit;
  planner_schedule::OrRefusal<job::JobSearch> on_hosts = job::search_job(job.request, show);
  const bool has_plan = static_cast<bool>(on_hosts);
  if (has_plan) job.search = std::move(*on_hosts);
  if (has_plan && !may_go_on) return;
  if (!has_plan && disk.is_none()) raise(on_hosts.refusal());
  JobRequest behind = job.request;
  behind.swap_rate = disk;
  behind.host_memory = partition::kNoLimit;
  planner_schedule::OrRefusal<job::JobSearch> on_disks = job::search_job(behind, show);
  if (!on_disks && !has_plan) raise(on_disks.refusal());
  if (!on_disks ||
      (has_plan && !job::is_faster(on_disks->plan.step_seconds, job.search.plan.step_seconds)))
    return;
  job.search = std::move(*on_disks);
  job.request = std::move(behind);
  job.swap_target = cluster::SwapTarget::kDisk;
}

}  // namespace

void take_schedule(const std::string& text, job::JobRequest& request) {
  job::NamedSchedule named;
  if (text != job::kAnySchedule) named = job::schedule_in(text);
  request.schedule = named.generator == nullptr ? job::kAnySchedule : named.generator->name;
  request.variant = named.variant;
}

void plan_job(const JobOptions& options, std::ostream& out, const Clock& clock) {
  std::vector<NamedFile> read = files_read(options.profile, options.rates);
  read.push_back({"--cluster", options.cluster});
  if (!options.picture.empty()) check_picture_path(options.picture);
  check_outputs(read, {{"--out", options.out}, {"--picture", options.picture}});
  FoundJob job;
  job.options = options;
  const profile::StepProfile profile = load_step(options.profile).profile;
  const SwapRates swaps = options.cluster.empty()
                              ? swap_rates(options.rates, sharers_of_disks(options), profile)
                              : SwapRates{};
  if (options.compare && !swaps.disk.is_none())
    throw ConfigError("--compare has one place for what is swapped, and here are host memory of {} "
                      "and disks behind it (leave the disks out)",
                      as_option(*options.rates.host_memory));
  job.request = request_of(options, swaps, profile);
  std::optional<Cluster> cluster;
  if (!options.cluster.empty()) cluster = machine_for(options, profile);
  if (options.compare) return compare_jobs(options, job.request, cluster, out, clock);
  const TimePoint begin = clock.now();
  search(options, swaps.disk, cluster, job, clock);
  job.search_seconds = seconds(clock.now() - begin);
  if (!options.out.empty())
    store_job(job.search.plan, job.request.chain, job.swap_target,
              job.machine ? cluster::to_text(job.machine->cluster) : "", options.out);
  if (!options.picture.empty())
    write_picture(job_picture(job.search.plan, options.profile), options.picture);
  out << (options.json ? json_text(job_json(job)) : job_text(job));
  if (options.json) return;
  if (!options.out.empty()) out << stored_text(job.search.plan, options.out);
  if (!options.picture.empty()) out << "\ndrawn in " << options.picture << '\n';
}

}  // namespace spillway::cli
