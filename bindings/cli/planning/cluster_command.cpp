#include "planning/cluster_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exit_codes.h"
#include "output_files.h"
#include "planning/job_contradictions.h"
#include "planning/plan_report.h"
#include "planning/planning_text.h"
#include "setting_words.h"
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

struct ClusterRun {
  std::string plan_path;
  JobFile file;
  Cluster cluster;
  std::uint32_t pipelines = 1;
  JobTiming timing;
  double simulation_seconds = 0.0;

  std::uint32_t ranks() const {
    return pipelines * static_cast<std::uint32_t>(file.actions.ranks.size());
  }
  Bytes peak() const;
  double longest(double planner::JobRank::*wait) const;
};

Bytes ClusterRun::peak() const {
  Bytes most;
  for (std::size_t rank = 0; rank < file.fixed.size(); ++rank)
    most = std::max(most, timing.peak_memory[rank] + file.fixed[rank]);
  return most;
}

double ClusterRun::longest(double planner::JobRank::*wait) const {
  double most = 0.0;
  for (const planner::JobRank& rank : timing.ranks) most = std::max(most, rank.*wait);
  return most;
}

JobFile plan_in(const std::string& path) {
  const std::string text =
      topology::text_of_file(path, message("spillway plan PROFILE --ranks COUNT --out {}", path));
  JobFile file = planner::parse_job_file(text, path);
  if (const auto fault = planner::job_fault(file)) throw PlanError("{}: {}", path, *fault);
  return file;
}

bool has_reductions(const planner::Schedule& actions) {
  for (const auto& list : actions.ranks)
    for (const planner::Action& action : list)
      if (action.kind == planner::ActionKind::kReduce) return true;
  return false;
}

/// As many pipelines as --ranks asks for, or as the plan is for.
std::uint32_t pipelines_for(const SimulateWords& words, const JobFile& file) {
  if (words.ranks.empty()) return file.groups;
  const auto of_one = static_cast<std::uint32_t>(file.actions.ranks.size());
  const std::uint32_t ranks = count_in("--ranks", words.ranks, 1, planner::kMostRanksOfJob);
  if (ranks % of_one != 0)
    throw ConfigError("--ranks {} is no multiple of the {} ranks of a pipeline in {} (try {})",
                      ranks, of_one, words.common.profile, std::max(1U, ranks / of_one) * of_one);
  const std::uint32_t pipelines = ranks / of_one;
  if (pipelines > 1 && !has_reductions(file.actions))
    throw ConfigError("the lists of {} are those of one pipeline, which sums no gradients with "
                      "others: {} of them need a plan with --groups 2 or more",
                      words.common.profile, pipelines);
  return pipelines;
}

void check_room(const ClusterRun& run) {
  if (run.peak() <= run.cluster.device.memory) return;
  throw PlanError("{} holds {} on its fullest rank, and {} of {} has {} (spillway plan PROFILE "
                  "--ranks COUNT --device-memory {} makes one that fits)",
                  run.plan_path, run.peak(), run.cluster.device.name, run.cluster.name,
                  run.cluster.device.memory, as_option(run.cluster.device.memory));
}

ordered_json json_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  ordered_json json = {
      {"path", run.plan_path},
      {"cluster", run.cluster.name},
      {"ranks", run.ranks()},
      {"pipelines", run.pipelines},
      {"simulated_pipelines", timing.simulated_pipelines},
      {"step_seconds", timing.step_seconds},
      {"planned_step_seconds", run.file.step_seconds},
      {"bubble", timing.bubble},
      {"exposed_communication_seconds",
       run.longest(&planner::JobRank::exposed_communication_seconds)},
      {"exposed_swap_seconds", run.longest(&planner::JobRank::exposed_swap_seconds)},
      {"peak_bytes", run.peak().count()},
      {"useful_share", planner::useful_share(run.cluster.failures, run.cluster.nodes)},
      {"links", ordered_json::array()},
      {"events", timing.events},
      {"simulation_seconds", run.simulation_seconds}};
  for (const planner::LinkClassLoad& load : timing.links)
    json["links"].push_back({{"class", to_string(load.kind)},
                             {"count", load.links},
                             {"mean_load", load.mean},
                             {"busiest_load", load.busiest}});
  return json;
}

std::string links_text(const JobTiming& timing) {
  std::vector<std::vector<std::string>> rows{{"links", "count", "load", "busiest"}};
  for (const planner::LinkClassLoad& load : timing.links)
    rows.push_back({std::string(to_string(load.kind)), message("{}", load.links),
                    percent_text(load.mean), percent_text(load.busiest)});
  return table_text(rows);
}

std::string text_of(const ClusterRun& run) {
  const JobTiming& timing = run.timing;
  const Cluster& cluster = run.cluster;
  std::string text =
      message("plan      {}: {} of {} ranks\n", run.plan_path,
              run.pipelines == 1 ? "one pipeline" : message("{} pipelines", run.pipelines),
              run.file.actions.ranks.size());
  text += message("cluster   {}: {} nodes of {} {}\n", cluster.name, cluster.nodes,
                  cluster.node.devices, cluster.device.name);
  text += message("time      {} per step; the plan says {} by its own links\n",
                  seconds_text(timing.step_seconds), seconds_text(run.file.step_seconds));
  text += message("idle      {} of all ranks' time; a rank waits for {} of messages and "
                  "sums, and {} of swaps, at most\n",
                  percent_text(timing.bubble),
                  seconds_text(run.longest(&planner::JobRank::exposed_communication_seconds)),
                  seconds_text(run.longest(&planner::JobRank::exposed_swap_seconds)));
  text += message("peak      {} of {} on the fullest rank\n", run.peak(), cluster.device.memory);
  const double useful = planner::useful_share(cluster.failures, cluster.nodes);
  if (useful < 1.0)
    text +=
        message("failures  leave {} of the time, with checkpoints every {} (best: {})\n",
                percent_text(useful), seconds_text(cluster.failures.checkpoint_interval_seconds),
                seconds_text(planner::best_checkpoint_interval(cluster.failures, cluster.nodes)));
  text += message("simulated {} in {}, {} events\n",
                  timing.simulated_pipelines == run.pipelines
                      ? std::string("every rank")
                      : std::string("one pipeline, as all do the same at the same time"),
                  seconds_text(run.simulation_seconds), timing.events);
  return text + '\n' + links_text(timing);
}

void refuse_others(const SimulateWords& words) {
  const RateWords& rates = words.common.rates;
  refuse_any({{"--plan", &words.plan},
              {"--beside", &words.beside},
              {"--budget", &words.common.budget},
              {"--strategy", &words.common.strategy},
              {"--effort", &words.common.effort},
              {"--bound", &words.common.bound},
              {"--rates", &rates.rates},
              {"--nvme", &rates.nvme},
              {"--link-out", &rates.link_out},
              {"--link-in", &rates.link_in},
              {"--duplex", &rates.duplex},
              {"--host-memory", &rates.host_memory},
              {"--disk-out", &rates.disk_out},
              {"--disk-in", &rates.disk_in}},
             "has no place beside --cluster: the file given first is the plan, the cluster has the "
             "rates");
}

}  // namespace

int simulate_on_cluster(const SimulateWords& words, std::ostream& out, const Clock& clock) {
  if (words.cluster.empty())
    throw ConfigError("--ranks {} is for a plan of many ranks on a machine: name that with "
                      "--cluster FILE (bindings/clusters has some)",
                      words.ranks);
  refuse_others(words);
  check_outputs({{"PLAN", words.common.profile}, {"--cluster", words.cluster}},
                {{"--trace", words.trace}});
  ClusterRun run;
  run.plan_path = words.common.profile;
  run.file = plan_in(words.common.profile);
  run.cluster = planner::parse_cluster(topology::text_of_file(words.cluster), words.cluster);
  run.pipelines = pipelines_for(words, run.file);
  planner::Job job;
  job.schedule = run.file.actions;
  job.stages = run.file.costs.stages;
  job.shares = run.file.costs.shares;
  job.traced_ranks = words.trace.empty() ? 0 : kTracedRanks;
  job.schedule.data_parallel = run.pipelines;
  const TimePoint begin = clock.now();
  run.timing = planner::simulate_job(job, run.cluster);
  run.simulation_seconds = seconds(clock.now() - begin);
  check_room(run);
  if (!words.trace.empty())
    topology::write_file_at_once(words.trace, planner::to_chrome_trace(run.timing));
  if (words.common.json) {
    out << json_text(json_of(run));
    return kDone;
  }
  out << text_of(run);
  if (!words.trace.empty())
    out << message("\ntrace of {} ranks written to {}; open it in https://ui.perfetto.dev or "
                   "chrome://tracing\n",
                   std::min<std::size_t>(kTracedRanks, run.timing.ranks.size()), words.trace);
  return kDone;
}

}  // namespace spillway::cli
