#include "planning/commands.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "output_files.h"
#include "planning/cluster_file.h"
#include "planning/machine_report.h"
#include "planning/stored_job.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/cluster/cluster.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using cluster::Cluster;
using cluster::JobTiming;
using job::JobFile;
using nlohmann::ordered_json;

namespace {

// A trace of more cannot be looked at, and takes gigabytes.
constexpr std::uint32_t kTracedRanks = 64;
constexpr std::uint32_t kStepsWithHosts = 3;

struct ClusterRun {
  const ClusterOptions& options;
  JobFile file;
  Cluster cluster{};
  cluster::Job job{};
  std::uint32_t pipelines = 1;
  JobTiming timing{};
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

bool has_reductions(const schedule::Schedule& actions) {
  for (const auto& list : actions.ranks)
    for (const schedule::Action& action : list)
      if (action.kind == schedule::ActionKind::kReduce) return true;
  return false;
}

/// As many pipelines as --ranks asks for, or as the plan is for.
std::uint32_t pipelines_for(const ClusterOptions& options, const JobFile& file) {
  if (!options.ranks) return file.data_parallel;
  const auto of_one = static_cast<std::uint32_t>(file.actions.ranks.size());
  const std::uint32_t ranks = *options.ranks;
  if (ranks % of_one != 0)
    throw ConfigError("--ranks {} is no multiple of the {} ranks of a pipeline in {} (try {})",
                      ranks, of_one, options.plan, std::max(1U, ranks / of_one) * of_one);
  const std::uint32_t pipelines = ranks / of_one;
  if (pipelines > 1 && !has_reductions(file.actions))
    throw ConfigError(
        "the action lists of {} are those of one pipeline, which sums no gradients with "
        "others: {} of them need a plan with --replicas 2 or more",
        options.plan, pipelines);
  return pipelines;
}

/// A description without a host's memory leaves that open.
void check_room(const ClusterRun& run) {
  const Cluster& cluster = run.cluster;
  if (run.peak() > cluster.device.memory)
    throw PlanError(
        "{} holds {} on its fullest rank, and {} of {} has {} (spillway plan-job PROFILE "
        "--ranks COUNT --device-memory {} makes one that fits)",
        run.options.plan, run.peak(), cluster.device.name, cluster.name, cluster.device.memory,
        as_option(cluster.device.memory));
  const Bytes host = cluster.node.host_memory;
  if (host > Bytes(0) && run.timing.host_memory > host)
    throw PlanError(
        "{} swaps {} to the host of a node, and those of {} have {} ({}spillway plan-job "
        "PROFILE --ranks COUNT --host-memory {} makes one whose ranks swap less)",
        run.options.plan, run.timing.host_memory, cluster.name, host,
        cluster.node.disks > 0 ? "--swap-to disks uses its disks, or " : "",
        as_option(host / cluster.node.devices));
}

void speed_up(planner_schedule::StageCosts& stage, double factor) {
  for (double planner_schedule::StageCosts::*field :
       {&planner_schedule::StageCosts::forward_seconds,
        &planner_schedule::StageCosts::input_gradient_seconds,
        &planner_schedule::StageCosts::weight_gradient_seconds,
        &planner_schedule::StageCosts::recompute_seconds,
        &planner_schedule::StageCosts::step_seconds})
    stage.*field /= factor;
}

ordered_json json_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  return {{"path", run.options.plan},
          {"cluster", run.cluster.name},
          {"nodes", timing.nodes},
          {"ranks", run.ranks()},
          {"pipelines", run.pipelines},
          {"placement", name_in(kPlacements, run.job.order)},
          {"update", name_in(kUpdatePlaces, run.job.update)},
          {"swaps_to", name_in(kSwapTargets, run.job.swap_target)},
          {"simulated_pipelines", timing.simulated_pipelines},
          {"speedup", run.options.speedup},
          {"step_seconds", timing.step_seconds},
          {"planned_step_seconds", run.file.step_seconds},
          {"bubble", timing.bubble},
          {"exposed_communication_seconds",
           longest_wait(timing, &cluster::JobRank::exposed_communication_seconds)},
          {"exposed_swap_seconds", longest_wait(timing, &cluster::JobRank::exposed_swap_seconds)},
          {"peak_bytes", run.peak().count()},
          {"host_bytes", timing.host_memory.count()},
          {"useful_share", cluster::useful_share(run.cluster.failures, timing.nodes)},
          {"links", table_json(link_table(timing))},
          {"events", timing.events},
          {"simulation_seconds", run.simulation_seconds}};
}

std::string order_text(cluster::PlacementOrder order) {
  switch (order) {
    case cluster::PlacementOrder::kPipelineFirst: return "pipelines on neighbouring devices";
    case cluster::PlacementOrder::kFolded: return "pipelines on neighbouring devices, folded";
    case cluster::PlacementOrder::kDataParallelFirst: break;
  }
  return "equal ranks of all pipelines on neighbouring devices";
}

std::string text_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  const Cluster& cluster = run.cluster;
  std::string text =
      line("plan", "{}: {} of {}", run.options.plan, counted(run.pipelines, "pipeline"),
           counted(run.file.actions.ranks.size(), "rank"));
  text += line("cluster", "{}: {} of {} {}, {} of them with ranks; {}", cluster.name,
               counted(cluster.nodes, "node"), cluster.node.devices, cluster.device.name,
               timing.nodes, order_text(run.job.order));
  text += run.options.speedup == 1.0
              ? line("compute", "takes as long as in the plan, whatever the device (--speedup "
                                "FACTOR for a faster one)")
              : line("compute", "is {} times as fast as in the plan", run.options.speedup);
  if (run.job.update == cluster::UpdatePlace::kHost)
    text +=
        "updates   on the hosts, which keep the states of the optimizer; the next step's forward "
        "of a stage waits for its own weights\n";
  text += line("time", "{} per step; the plan says {} by its own links",
               seconds_text(timing.step_seconds), seconds_text(run.file.step_seconds));
  text += line("idle",
               "{} of all ranks' time; a rank waits for {} of messages and "
               "sums, and {} of swaps, at most",
               percent_text(timing.bubble),
               seconds_text(longest_wait(timing, &cluster::JobRank::exposed_communication_seconds)),
               seconds_text(longest_wait(timing, &cluster::JobRank::exposed_swap_seconds)));
  text += line("peak", "{} of {} on the fullest rank", run.peak(), cluster.device.memory);
  if (timing.host_memory > Bytes(0))
    text += line("hosts", "hold {} of what ranks swap or hosts update, {}, on the fullest node",
                 timing.host_memory,
                 cluster.node.host_memory > Bytes(0)
                     ? message("of {}", cluster.node.host_memory)
                     : std::string("of memory that the description leaves out"));
  text += failures_text(cluster, timing.nodes);
  text += line("simulated", "{} in {}, {}",
               timing.simulated_pipelines == run.pipelines
                   ? std::string("every rank")
                   : std::string("one pipeline, as all do the same at the same time"),
               seconds_text(run.simulation_seconds), counted(timing.events, "event"));
  return text + '\n' + table_text(link_table(timing));
}

/// How much slower than nominal devices are, in place of what the description says.
void straggle(const ClusterOptions& options, Cluster& cluster) {
  if (!options.stragglers) return;
  cluster.stragglers = {};
  cluster.stragglers.law = cluster::StragglerLaw::kHalfNormal;
  cluster.stragglers.spread = *options.stragglers;
}

cluster::Job job_for(const ClusterRun& run) {
  const ClusterOptions& options = run.options;
  cluster::Job job = cluster::make_job(run.file.actions, run.file.costs, run.pipelines);
  for (planner_schedule::StageCosts& stage : job.stages) speed_up(stage, run.options.speedup);
  job.order = options.placement;
  job.update = options.update;
  job.swap_target = options.swap_to.value_or(swap_target_of(run.file));
  // What an update on the hosts costs, shows in the steps behind it.
  if (job.update == cluster::UpdatePlace::kHost) job.repetitions = kStepsWithHosts;
  job.traced_ranks = options.trace.empty() ? 0 : kTracedRanks;
  return job;
}

/// The machine that is named, else the one that the plan was made for.
Cluster machine_for_run(const ClusterOptions& options, const JobFile& file) {
  if (!options.cluster.empty()) return read_cluster(options.cluster);
  if (auto cluster = machine_of(file, options.plan)) return *cluster;
  std::string known;
  for (const std::string& name : clusters().names) (known += known.empty() ? "" : "|") += name;
  throw ConfigError(
      "{} was not made for a machine, so it takes one to run it on (name it with "
      "--cluster {}; plans that spillway plan-job --cluster makes bring theirs along)",
      options.plan, known.empty() ? "FILE" : message("FILE, or --cluster {}", known));
}

}  // namespace

void simulate_on_cluster(const ClusterOptions& options, std::ostream& out, const Clock& clock) {
  check_outputs({{"PLAN", options.plan}, {"--cluster", options.cluster}},
                {{"--trace", options.trace}});
  ClusterRun run{.options = options, .file = stored_job(options.plan)};
  run.cluster = machine_for_run(options, run.file);
  straggle(options, run.cluster);
  run.pipelines = pipelines_for(options, run.file);
  run.job = job_for(run);
  const TimePoint begin = clock.now();
  run.timing = cluster::simulate_job(run.job, run.cluster);
  run.simulation_seconds = seconds(clock.now() - begin);
  check_room(run);
  if (!options.trace.empty())
    topology::write_file_at_once(options.trace, cluster::to_chrome_trace(run.timing));
  out << (options.json ? json_text(json_of(run)) : text_of(run));
  if (!options.trace.empty() && !options.json)
    out << message(
        "\ntrace of {} written to {}; open it in https://ui.perfetto.dev or chrome://tracing\n",
        counted(std::min<std::size_t>(kTracedRanks, run.timing.ranks.size()), "rank"),
        options.trace);
}

}  // namespace spillway::cli
