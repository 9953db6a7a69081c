#include "planning/cluster_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "exit_codes.h"
#include "output_files.h"
#include "planning/cluster_file.h"
#include "planning/job_contradictions.h"
#include "planning/machine_names.h"
#include "planning/machine_report.h"
#include "planning/plan_report.h"
#include "planning/stored_job.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/cluster/cluster.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::Cluster;
using planner::JobFile;
using planner::JobTiming;

namespace {

// A trace of more cannot be looked at, and takes gigabytes.
constexpr std::uint32_t kTracedRanks = 64;
constexpr std::uint32_t kStepsWithHosts = 3;
constexpr double kLeastSpeedup = 1e-3;
constexpr double kMostSpeedup = 1e3;
constexpr double kMostStraggling = 1e3;

struct ClusterRun {
  std::string plan_path;
  JobFile file;
  Cluster cluster;
  planner::Job job;
  std::uint32_t pipelines = 1;
  double speedup = 1.0;
  JobTiming timing;
  double simulation_seconds = 0.0;

  std::uint32_t ranks() const {
    return pipelines * static_cast<std::uint32_t>(file.actions.ranks.size());
  }
  Bytes peak() const;
};

Bytes ClusterRun::peak() const {
  Bytes most;
  for (std::size_t rank = 0; rank < file.fixed.size(); ++rank)
    most = std::max(most, timing.peak_memory[rank] + file.fixed[rank]);
  return most;
}

bool has_reductions(const planner::Schedule& actions) {
  for (const auto& list : actions.ranks)
    for (const planner::Action& action : list)
      if (action.kind == planner::ActionKind::kReduce) return true;
  return false;
}

/// As many pipelines as --ranks asks for, or as the plan is for.
std::uint32_t pipelines_for(const SimulateOptions& options, const JobFile& file) {
  if (options.ranks.empty()) return file.data_parallel;
  const auto of_one = static_cast<std::uint32_t>(file.actions.ranks.size());
  const std::uint32_t ranks = count_in("--ranks", options.ranks, 1, planner::kMostRanksOfJob);
  if (ranks % of_one != 0)
    throw ConfigError("--ranks {} is no multiple of the {} ranks of a pipeline in {} (try {})",
                      ranks, of_one, options.common.profile, std::max(1U, ranks / of_one) * of_one);
  const std::uint32_t pipelines = ranks / of_one;
  if (pipelines > 1 && !has_reductions(file.actions))
    throw ConfigError(
        "the action lists of {} are those of one pipeline, which sums no gradients with "
        "others: {} of them need a plan with --data-parallel 2 or more",
        options.common.profile, pipelines);
  return pipelines;
}

/// A description without a host's memory leaves that open.
void check_room(const ClusterRun& run) {
  const Cluster& cluster = run.cluster;
  if (run.peak() > cluster.device.memory)
    throw PlanError("{} holds {} on its fullest rank, and {} of {} has {} (spillway plan PROFILE "
                    "--ranks COUNT --device-memory {} makes one that fits)",
                    run.plan_path, run.peak(), cluster.device.name, cluster.name,
                    cluster.device.memory, as_option(cluster.device.memory));
  const Bytes host = cluster.node.host_memory;
  if (host > Bytes(0) && run.timing.host_memory > host)
    throw PlanError("{} swaps {} to the host of a node, and those of {} have {} ({}spillway plan "
                    "PROFILE --ranks COUNT --host-memory {} makes one whose ranks swap less)",
                    run.plan_path, run.timing.host_memory, cluster.name, host,
                    cluster.node.disks > 0 ? "--swap-to disks uses its disks, or " : "",
                    as_option(host / cluster.node.devices));
}

void speed_up(planner::StageCosts& stage, double factor) {
  for (double planner::StageCosts::*field :
       {&planner::StageCosts::forward_seconds, &planner::StageCosts::input_gradient_seconds,
        &planner::StageCosts::weight_gradient_seconds, &planner::StageCosts::recompute_seconds,
        &planner::StageCosts::step_seconds})
    stage.*field /= factor;
}

ordered_json json_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  return {{"path", run.plan_path},
          {"cluster", run.cluster.name},
          {"nodes", timing.nodes},
          {"ranks", run.ranks()},
          {"pipelines", run.pipelines},
          {"placement", name_in(kPlacements, run.job.order)},
          {"update", name_in(kUpdatePlaces, run.job.update)},
          {"swaps_to", name_in(kSwapTargets, run.job.swap_target)},
          {"simulated_pipelines", timing.simulated_pipelines},
          {"speedup", run.speedup},
          {"step_seconds", timing.step_seconds},
          {"planned_step_seconds", run.file.step_seconds},
          {"bubble", timing.bubble},
          {"exposed_communication_seconds",
           longest_wait(timing, &planner::JobRank::exposed_communication_seconds)},
          {"exposed_swap_seconds", longest_wait(timing, &planner::JobRank::exposed_swap_seconds)},
          {"peak_bytes", run.peak().count()},
          {"host_bytes", timing.host_memory.count()},
          {"useful_share", planner::useful_share(run.cluster.failures, timing.nodes)},
          {"links", link_loads_json(timing)},
          {"events", timing.events},
          {"simulation_seconds", run.simulation_seconds}};
}

std::string order_text(planner::PlacementOrder order) {
  switch (order) {
    case planner::PlacementOrder::kPipelineFirst: return "pipelines on neighbouring devices";
    case planner::PlacementOrder::kFolded: return "pipelines on neighbouring devices, folded";
    case planner::PlacementOrder::kDataParallelFirst: break;
  }
  return "equal ranks of all pipelines on neighbouring devices";
}

std::string text_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  const Cluster& cluster = run.cluster;
  std::string text =
      message("plan      {}: {} of {}\n", run.plan_path, counted(run.pipelines, "pipeline"),
              counted(run.file.actions.ranks.size(), "rank"));
  text += message("cluster   {}: {} nodes of {} {}, {} of them with ranks; {}\n", cluster.name,
                  cluster.nodes, cluster.node.devices, cluster.device.name, timing.nodes,
                  order_text(run.job.order));
  text += run.speedup == 1.0
              ? std::string("compute   takes as long as in the plan, whatever the device "
                            "(--speedup FACTOR for a faster one)\n")
              : message("compute   is {} times as fast as in the plan\n", run.speedup);
  if (run.job.update == planner::UpdatePlace::kHost)
    text +=
        "updates   on the hosts, which keep the states of the optimizer; the next step's forward "
        "of a stage waits for its own weights\n";
  text += message("time      {} per step; the plan says {} by its own links\n",
                  seconds_text(timing.step_seconds), seconds_text(run.file.step_seconds));
  text +=
      message("idle      {} of all ranks' time; a rank waits for {} of messages and "
              "sums, and {} of swaps, at most\n",
              percent_text(timing.bubble),
              seconds_text(longest_wait(timing, &planner::JobRank::exposed_communication_seconds)),
              seconds_text(longest_wait(timing, &planner::JobRank::exposed_swap_seconds)));
  text += message("peak      {} of {} on the fullest rank\n", run.peak(), cluster.device.memory);
  if (timing.host_memory > Bytes(0))
    text +=
        message("hosts     hold {} of what ranks swap or hosts update, {}, on the fullest node\n",
                timing.host_memory,
                cluster.node.host_memory > Bytes(0)
                    ? message("of {}", cluster.node.host_memory)
                    : std::string("of memory that the description leaves out"));
  text += failures_text(cluster, timing.nodes);
  text += message("simulated {} in {}, {} events\n",
                  timing.simulated_pipelines == run.pipelines
                      ? std::string("every rank")
                      : std::string("one pipeline, as all do the same at the same time"),
                  seconds_text(run.simulation_seconds), timing.events);
  return text + '\n' + link_loads_text(timing);
}

/// How much slower than nominal devices are, in place of what the description says.
void straggle(const SimulateOptions& options, Cluster& cluster) {
  if (options.stragglers.empty()) return;
  cluster.stragglers = {};
  cluster.stragglers.law = planner::StragglerLaw::kHalfNormal;
  cluster.stragglers.spread = number_in("--stragglers", options.stragglers, 0.0, kMostStraggling);
}

planner::Job job_for(const SimulateOptions& options, const ClusterRun& run) {
  planner::Job job = planner::make_job(run.file.actions, run.file.costs, run.pipelines);
  for (planner::StageCosts& stage : job.stages) speed_up(stage, run.speedup);
  job.order = choice_in("--placement", options.placement, kPlacements);
  job.update = choice_in("--update", options.update, kUpdatePlaces);
  job.swap_target = options.swap_to.empty() ? swap_target_of(run.file)
                                            : choice_in("--swap-to", options.swap_to, kSwapTargets);
  // What an update on the hosts costs, shows in the steps behind it.
  if (job.update == planner::UpdatePlace::kHost) job.repetitions = kStepsWithHosts;
  job.traced_ranks = options.trace.empty() ? 0 : kTracedRanks;
  return job;
}

void refuse_others(const SimulateOptions& options) {
  const RateOptions& rates = options.common.rates;
  refuse_any({{"--plan", &options.plan},
              {"--beside", &options.beside},
              {"--budget", &options.common.budget},
              {"--strategy", &options.common.strategy},
              {"--effort", &options.common.effort},
              {"--bound", &options.common.bound},
              {"--rates", &rates.rates},
              {"--nvme", &rates.nvme},
              {"--link-out", &rates.link_out},
              {"--link-in", &rates.link_in},
              {"--duplex", &rates.duplex},
              {"--host-memory", &rates.host_memory},
              {"--disk-out", &rates.disk_out},
              {"--disk-in", &rates.disk_in},
              {"--gpu", &rates.gpu}},
             "has no place beside a plan for many ranks: that is the file given first, and the "
             "machine (--cluster) has the rates");
}

/// The machine that is named, else the one that the plan was made for.
Cluster machine_for_run(const SimulateOptions& options, const JobFile& file,
                        const std::string& cluster_file) {
  if (!cluster_file.empty()) return read_cluster(cluster_file);
  if (auto cluster = machine_of(file, options.common.profile)) return *cluster;
  throw ConfigError("{} was not made for a machine, so it takes one to run it on (name it with "
                    "--cluster FILE, or by the name of one that came with the command; plans that "
                    "spillway plan --topology makes bring theirs along)",
                    options.common.profile);
}

}  // namespace

int simulate_on_cluster(const SimulateOptions& options, std::ostream& out, const Clock& clock) {
  refuse_others(options);
  const std::string cluster_file =
      options.cluster.empty() ? std::string() : cluster_path("--cluster", options.cluster);
  check_outputs({{"PLAN", options.common.profile}, {"--cluster", cluster_file}},
                {{"--trace", options.trace}});
  ClusterRun run;
  run.plan_path = options.common.profile;
  run.file = stored_job(stored_job_text(run.plan_path), run.plan_path);
  run.cluster = machine_for_run(options, run.file, cluster_file);
  straggle(options, run.cluster);
  run.pipelines = pipelines_for(options, run.file);
  if (!options.speedup.empty())
    run.speedup = number_in("--speedup", options.speedup, kLeastSpeedup, kMostSpeedup);
  run.job = job_for(options, run);
  const TimePoint begin = clock.now();
  run.timing = planner::simulate_job(run.job, run.cluster);
  run.simulation_seconds = seconds(clock.now() - begin);
  check_room(run);
  if (!options.trace.empty())
    topology::write_file_at_once(options.trace, planner::to_chrome_trace(run.timing));
  if (options.common.json) {
    out << json_text(json_of(run));
    return kDone;
  }
  out << text_of(run);
  if (!options.trace.empty())
    out << message(
        "\ntrace of {} written to {}; open it in https://ui.perfetto.dev or chrome://tracing\n",
        counted(std::min<std::size_t>(kTracedRanks, run.timing.ranks.size()), "rank"),
        options.trace);
  return kDone;
}

}  // namespace spillway::cli
