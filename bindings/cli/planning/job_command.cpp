#include "planning/job_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "exit_codes.h"
#include "planning/check_command.h"
#include "planning/cluster_file.h"
#include "planning/comparison_report.h"
#include "planning/cost_command.h"
#include "planning/job_comparison.h"
#include "planning/job_contradictions.h"
#include "planning/job_json.h"
#include "planning/job_machine.h"
#include "planning/job_picture.h"
#include "planning/job_report.h"
#include "planning/plan_report.h"
#include "planning/progress_line.h"
#include "planning/rebalance_command.h"
#include "planning/stored_job.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/planner/machine/machine_share.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::Cluster;
using planner::JobRequest;

namespace {

/// Ranks of a host, which share the disks that are named. A described machine says it itself.
std::uint32_t sharers_of_disks(const PlanOptions& options, std::uint32_t ranks) {
  const RateOptions& rates = options.common.rates;
  const std::string& text = options.job.ranks_per_host;
  if (!options.job.topology.empty()) {
    refuse_any({{"--ranks-per-host", &text}},
               "has no place beside --topology, which says how many devices a node has");
    return 1;
  }
  const bool has_disks = !(rates.rates + rates.nvme + rates.disk_out + rates.disk_in).empty();
  if (!has_disks && !text.empty())
    throw ConfigError("--ranks-per-host {} is about disks, and none are named (add --rates or "
                      "--nvme)",
                      text);
  if (!has_disks || ranks == 1) return 1;
  if (text.empty())
    throw ConfigError("--{} is about the disks of one host, and {} ranks may share them (say with "
                      "--ranks-per-host how many do)",
                      !rates.rates.empty()  ? "rates " + rates.rates
                      : !rates.nvme.empty() ? "nvme " + rates.nvme
                                            : "disk-out " + rates.disk_out,
                      ranks);
  return count_in("--ranks-per-host", text, 1, ranks);
}

/// Schedule, batch and micro-batches, as far as they are said.
void set_schedule(const JobOptions& job, JobRequest& request) {
  if (!job.schedule.empty() && job.schedule != planner::kAnySchedule) {
    const planner::NamedSchedule named = planner::schedule_in(job.schedule);
    request.schedule = named.generator->name;
    request.variant = named.variant;
  }
  request.batch = request.ranks;
  if (!job.batch.empty())
    request.batch = count_in("--batch", job.batch, 1, planner::kMostRanksOfJob);
  request.micro_batches = request.schedule == planner::kAnySchedule ? 0 : request.batch;
  if (job.micro_batches.empty()) return;
  request.micro_batches =
      count_in("--micro-batches", job.micro_batches, 1, planner::kMostRanksOfJob);
  if (job.batch.empty()) request.batch = request.micro_batches;
}

/// Whether branches may run in another order than the profile has them.
bool may_reorder(const std::string& word, bool is_known) {
  if (word.empty() || word == "auto") return is_known;
  if (word == "any") return true;
  if (word != "recorded")
    throw ConfigError("--order: '{}' is neither auto nor recorded nor any", shown_text(word));
  return false;
}

/// What is asked for, without a machine.
JobRequest request_of(const PlanOptions& options, const profile::StepProfile& profile) {
  const JobOptions& job = options.job;
  JobRequest request;
  request.ranks = ranks_in(job);
  set_schedule(job, request);
  if (!job.data_parallel.empty())
    request.data_parallel =
        count_in("--data-parallel", job.data_parallel, 1, planner::kMostRanksOfJob);
  if (!job.partitioner.empty()) request.partitioner = job.partitioner;
  if (!job.device_memory.empty())
    request.device_memory = size_in("--device-memory", job.device_memory);
  if (!job.link.empty()) request.link.bytes_per_second = rate_in(job.link, "--link");
  const RateOptions& rates = options.common.rates;
  const std::uint32_t sharers = sharers_of_disks(options, request.ranks);
  if (job.topology.empty())
    request.swap_bytes_per_second = swap_rates(rates, sharers, profile).host;
  if (job.topology.empty() && !rates.host_memory.empty()) {
    if (request.swap_bytes_per_second == 0.0)
      throw ConfigError("--host-memory {} is for what is swapped, and no link to the host is named "
                        "(add --link-out and --link-in)",
                        rates.host_memory);
    request.host_memory = size_in("--host-memory", rates.host_memory);
  }
  planner::MeasuredModel model = planner::measured_model(profile);
  request.chain = std::move(model.chain);
  request.chain.may_reorder = may_reorder(job.order, request.chain.may_reorder);
  request.update_seconds = model.update_seconds;
  request.reserved = model.reserved;
  request.guesses_forward = model.guesses_forward;
  check(request);
  return request;
}

int compare_jobs(const PlanOptions& options, JobRequest request,
                 const std::optional<Cluster>& cluster, std::ostream& out, const Clock& clock) {
  refuse_any({{"--out", &options.out}, {"--svg", &options.job.picture}},
             "is for one plan, and --compare makes many");
  const JobComparison compared = compared_jobs(request, cluster, clock);
  // One bound for all rows, whatever data-parallel replicas they have.
  if (cluster)
    request =
        planner::request_on(request, *cluster, compared.data_parallel, planner::SwapTarget::kHost);
  if (options.common.json)
    out << json_text(compared_json(request, compared));
  else
    out << job_comparison_text(request, options.common.profile, compared,
                               cluster ? cluster->name : "");
  return kDone;
}

/// On the machine, where one is named. What the hosts have no room for goes to disks, where some
/// are named.
void search(const PlanOptions& options, const profile::StepProfile& profile,
            const std::optional<Cluster>& cluster, FoundJob& job) {
  ProgressLine progress;
  const planner::ShowChoice show = [&](const planner::JobChoice& choice) {
    progress.show(message("planning {} layers on {} ranks: {} on pipelines of {}",
                          job.request.chain.layers.size(), job.request.ranks,
                          planner::schedule_text(choice.generator->name, choice.variant),
                          job.request.ranks / choice.data_parallel));
  };
  if (cluster) {
    planner::MachineSearch found = planner::search_job_on(job.request, *cluster, show);
    job.search = std::move(found.search);
    job.request = std::move(found.request);
    job.swap_target = found.swap_target;
    job.ranks_per_host = cluster->node.devices;
    if (cluster->node.host_memory > Bytes(0)) job.host_memory = cluster->node.host_memory;
    job.machine = FoundMachine{cluster_path("--topology", options.job.topology), *cluster,
                               std::move(found.timing), std::move(found.runs)};
    return;
  }
  job.host_memory = job.request.host_memory;
  if (swaps_to_disks_alone(options.common.rates)) job.swap_target = planner::SwapTarget::kDisk;
  const double disk =
      swap_rates(options.common.rates, sharers_of_disks(options, job.request.ranks), profile).disk;
  // Hosts with room for all are quicker than the disks behind them.
  const bool may_go_on = disk > 0.0 && job.request.host_memory != planner::kNoLimit;
  bool has_plan = true;
  try {
    job.search = planner::search_job(job.request, show);
    if (!may_go_on) return;
  } catch (const PlanError&) {
    if (disk == 0.0) throw;
    has_plan = false;
  }
  JobRequest behind = job.request;
  behind.swap_bytes_per_second = disk;
  behind.host_memory = planner::kNoLimit;
  try {
    planner::JobSearch on_disks = planner::search_job(behind, show);
    if (has_plan && !planner::is_faster(on_disks.plan.step_seconds, job.search.plan.step_seconds))
      return;
    job.search = std::move(on_disks);
    job.request = std::move(behind);
    job.swap_target = planner::SwapTarget::kDisk;
  } catch (const PlanError&) {
    if (!has_plan) throw;
  }
}

int plan_model(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  const std::string& path = options.common.profile;
  if (path.empty())
    throw ConfigError("PROFILE is missing: the step of one micro-batch, as `spillway profile` "
                      "recorded it (see spillway plan --help)");
  ranks_in(options.job);
  std::vector<NamedFile> read = files_read(options.common);
  if (!options.job.topology.empty())
    read.push_back({"--topology", cluster_path("--topology", options.job.topology)});
  check_outputs(read, {{"--out", options.out}, {"--svg", options.job.picture}});
  FoundJob job;
  job.path = path;
  const profile::StepProfile profile = load_step(path).profile;
  job.request = request_of(options, profile);
  std::optional<Cluster> cluster;
  if (!options.job.topology.empty()) cluster = machine_for(options, profile);
  if (options.job.compare) return compare_jobs(options, job.request, cluster, out, clock);
  const TimePoint begin = clock.now();
  search(options, profile, cluster, job);
  job.search_seconds = seconds(clock.now() - begin);
  if (!options.out.empty())
    store_job(job.search.plan, job.request.chain, job.swap_target,
              job.machine ? planner::to_text(job.machine->cluster) : "", options.out);
  if (!options.job.picture.empty())
    topology::write_file_at_once(options.job.picture, job_picture(job.search.plan, path));
  if (options.common.json) {
    out << json_text(job_json(job));
    return kDone;
  }
  out << job_text(job);
  if (!options.out.empty()) out << stored_text(job.search.plan, options.out);
  if (!options.job.picture.empty()) out << "\ndrawn in " << options.job.picture << '\n';
  return kDone;
}

}  // namespace

int plan_for_ranks(const PlanOptions& options, std::ostream& out, const Clock& clock) {
  refuse_any({{"--groups", &options.job.groups}}, "is called --data-parallel now (write that)");
  if (options.job.rebalance.empty())
    refuse_any({{"--steps-left", &options.job.steps_left}},
               "belongs to --rebalance, which is missing (add it, or leave both out)");
  if (options.job.check.empty() && options.job.rebalance.empty()) ranks_in(options.job);
  refuse_any(options_of_one_device(options),
             "is about one device; plans for many have --ranks, --device-memory and --schedule");
  if (options.frontier)
    throw ConfigError("--frontier is about one device; compare schedules with --compare");
  if (!options.job.rebalance.empty()) return rebalance_plan(options, out, clock);
  if (!options.job.check.empty()) return check_plan(options, out);
  if (!options.job.costs.empty()) return cut_costs(options, out, clock);
  return plan_model(options, out, clock);
}

}  // namespace spillway::cli
