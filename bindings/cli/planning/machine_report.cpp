#include "planning/machine_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "planning/machine_names.h"
#include "planning/planning_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::Cluster;
using planner::JobTiming;

namespace {

std::string speed_text(const Cluster& cluster) {
  const double speed = cluster.device.speed_over_profile;
  if (speed > 0.0)
    return message("those of the profile, on devices {} times as fast (speed_over_profile)", speed);
  return "those of the profile: the description does not say how fast its devices are beside the "
         "profile's (speed_over_profile)";
}

}  // namespace

double longest_wait(const JobTiming& timing, double planner::JobRank::*wait) {
  double most = 0.0;
  for (const planner::JobRank& rank : timing.ranks) most = std::max(most, rank.*wait);
  return most;
}

std::string failures_text(const Cluster& cluster, std::uint32_t nodes) {
  const double useful = planner::useful_share(cluster.failures, nodes);
  if (useful >= 1.0) return {};
  return message("failures  leave {} of the time, with checkpoints every {} (best: {})\n",
                 percent_text(useful), seconds_text(cluster.failures.checkpoint_interval_seconds),
                 seconds_text(planner::best_checkpoint_interval(cluster.failures, nodes)));
}

std::string link_loads_text(const JobTiming& timing) {
  std::vector<std::vector<std::string>> rows{{"links", "count", "load", "busiest"}};
  for (const planner::LinkClassLoad& load : timing.links)
    rows.push_back({std::string(to_string(load.kind)), message("{}", load.links),
                    percent_text(load.mean), percent_text(load.busiest)});
  return table_text(rows);
}

ordered_json link_loads_json(const JobTiming& timing) {
  auto list = ordered_json::array();
  for (const planner::LinkClassLoad& load : timing.links)
    list.push_back({{"class", to_string(load.kind)},
                    {"count", load.links},
                    {"mean_load", load.mean},
                    {"busiest_load", load.busiest}});
  return list;
}

std::string machine_text(const FoundMachine& machine) {
  const Cluster& cluster = machine.cluster;
  const JobTiming& timing = machine.timing;
  std::string text =
      message("machine   {}: {} of its {} nodes of {} {}\n", cluster.name, timing.nodes,
              cluster.nodes, cluster.node.devices, cluster.device.name);
  text += message("times     {}\n", speed_text(cluster));
  text +=
      message("shared    {} per step where ranks share its links, {} idle; a rank waits for {} "
              "of messages and sums, and {} of swaps, at most\n",
              seconds_text(timing.step_seconds), percent_text(timing.bubble),
              seconds_text(longest_wait(timing, &planner::JobRank::exposed_communication_seconds)),
              seconds_text(longest_wait(timing, &planner::JobRank::exposed_swap_seconds)));
  return text + failures_text(cluster, timing.nodes);
}

std::string machine_tables(const FoundMachine& machine) {
  std::string text = '\n' + link_loads_text(machine.timing);
  if (machine.runs.size() < 2) return text;
  std::vector<std::vector<std::string>> rows{
      {"schedule", "data-parallel", "swaps to", "step alone", "step shared"}};
  constexpr std::size_t kShown = 12;
  for (std::size_t i = 0; i < std::min(kShown, machine.runs.size()); ++i) {
    const planner::MachineRun& run = machine.runs[i];
    rows.push_back({planner::schedule_text(run.schedule, run.variant),
                    message("{}", run.data_parallel),
                    std::string(name_in(kSwapTargets, run.swap_target)),
                    seconds_text(run.planned_step_seconds), seconds_text(run.step_seconds)});
  }
  return text +
         message("\nThe fastest of {} on the machine:\n", counted(machine.runs.size(), "plan")) +
         table_text(rows);
}

ordered_json machine_json(const FoundMachine& machine) {
  const Cluster& cluster = machine.cluster;
  const JobTiming& timing = machine.timing;
  ordered_json json = {
      {"path", machine.path},
      {"cluster", cluster.name},
      {"nodes", timing.nodes},
      {"devices_per_node", cluster.node.devices},
      {"device", cluster.device.name},
      {"speed_over_profile", nullptr},
      {"step_seconds", timing.step_seconds},
      {"bubble", timing.bubble},
      {"exposed_communication_seconds",
       longest_wait(timing, &planner::JobRank::exposed_communication_seconds)},
      {"exposed_swap_seconds", longest_wait(timing, &planner::JobRank::exposed_swap_seconds)},
      {"useful_share", planner::useful_share(cluster.failures, timing.nodes)},
      {"links", link_loads_json(timing)},
      {"runs", ordered_json::array()}};
  if (cluster.device.speed_over_profile > 0.0)
    json["speed_over_profile"] = cluster.device.speed_over_profile;
  for (const planner::MachineRun& run : machine.runs)
    json["runs"].push_back({{"schedule", run.schedule},
                            {"variant", run.variant},
                            {"data_parallel", run.data_parallel},
                            {"swaps_to", name_in(kSwapTargets, run.swap_target)},
                            {"planned_step_seconds", run.planned_step_seconds},
                            {"step_seconds", run.step_seconds}});
  return json;
}

}  // namespace spillway::cli
