#include "planning/machine_report.h"

#include <algorithm>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using cluster::Cluster;
using cluster::JobTiming;
using cluster::LinkClassLoad;
using machine::MachineRun;
using nlohmann::ordered_json;

namespace {

std::string speed_text(const Cluster& described) {
  const double speed = described.device.speed_over_profile;
  if (speed > 0.0)
    return message("those of the profile, on devices {} times as fast (speed_over_profile)", speed);
  return "those of the profile: the description does not say how fast its devices are beside the "
         "profile's (speed_over_profile)";
}

/// The first ones, at most so many.
Table run_table(const std::vector<MachineRun>& runs, std::size_t most = kAllRows) {
  const auto schedule = [](const MachineRun& run) {
    return Figure{job::schedule_text(run.schedule, run.variant), run.schedule};
  };
  const auto target = [](const MachineRun& run) { return name_in(kSwapTargets, run.swap_target); };
  return {std::min(most, runs.size()),
          {{"schedule", "schedule", of(runs, schedule)},
           {"", "variant", of(runs, &MachineRun::variant)},
           {"data-parallel", "data_parallel", of(runs, &MachineRun::data_parallel)},
           {"swaps to", "swaps_to", of(runs, target)},
           {"step alone", "planned_step_seconds",
            of(runs, &MachineRun::planned_step_seconds, Figure::duration)},
           {"step shared", "step_seconds", of(runs, &MachineRun::step_seconds, Figure::duration)}}};
}

/// Of runs that go by one name, the fastest: the others are of other cuts, and read as the same.
std::vector<MachineRun> fastest_of_each_name(const std::vector<MachineRun>& runs) {
  std::vector<MachineRun> fastest;
  for (const MachineRun& run : runs)
    if (std::none_of(fastest.begin(), fastest.end(), [&](const MachineRun& faster) {
          return faster.schedule == run.schedule && faster.variant == run.variant &&
                 faster.data_parallel == run.data_parallel && faster.swap_target == run.swap_target;
        }))
      fastest.push_back(run);
  return fastest;
}

}  // namespace

double longest_wait(const JobTiming& timing, double cluster::JobRank::*wait) {
  double most = 0.0;
  for (const cluster::JobRank& rank : timing.ranks) most = std::max(most, rank.*wait);
  return most;
}

std::string failures_text(const Cluster& described, std::uint32_t nodes) {
  const double useful = cluster::useful_share(described.failures, nodes);
  if (useful >= 1.0) return {};
  return line("failures", "leave {} of the time, with checkpoints every {} (best: {})",
              percent_text(useful), seconds_text(described.failures.checkpoint_interval_seconds),
              seconds_text(cluster::best_checkpoint_interval(described.failures, nodes)));
}

Table link_table(const JobTiming& timing) {
  const std::vector<LinkClassLoad>& links = timing.links;
  const auto kind = [](const LinkClassLoad& each) { return to_string(each.kind); };
  return {links.size(),
          {{"links", "class", of(links, kind)},
           {"count", "count", of(links, &LinkClassLoad::links)},
           {"load", "mean_load", of(links, &LinkClassLoad::mean, Figure::share)},
           {"busiest", "busiest_load", of(links, &LinkClassLoad::busiest, Figure::share)}}};
}

std::string machine_text(const FoundMachine& found) {
  const Cluster& described = found.cluster;
  const JobTiming& timing = found.timing;
  std::string text =
      line("machine", "{}: {} of its {} of {} {}", described.name, timing.nodes,
           counted(described.nodes, "node"), described.node.devices, described.device.name);
  text += line("times", "{}", speed_text(described));
  text += line("shared",
               "{} per step where ranks share its links, {} idle; a rank waits for {} "
               "of messages and sums, and {} of swaps, at most",
               seconds_text(timing.step_seconds), percent_text(timing.bubble),
               seconds_text(longest_wait(timing, &cluster::JobRank::exposed_communication_seconds)),
               seconds_text(longest_wait(timing, &cluster::JobRank::exposed_swap_seconds)));
  return text + failures_text(described, timing.nodes);
}

std::string machine_tables(const FoundMachine& found) {
  const JobTiming& timing = found.timing;
  const std::string text = '\n' + table_text(link_table(timing));
  const std::vector<MachineRun> runs = fastest_of_each_name(found.runs);
  if (runs.size() < 2) return text;
  constexpr std::size_t kShown = 12;
  return text + message("\nThe fastest of {} on the machine:\n", counted(runs.size(), "plan")) +
         table_text(run_table(runs, kShown));
}

ordered_json machine_json(const FoundMachine& found) {
  const Cluster& described = found.cluster;
  const JobTiming& timing = found.timing;
  ordered_json json = {
      {"path", found.path},
      {"cluster", described.name},
      {"nodes", timing.nodes},
      {"devices_per_node", described.node.devices},
      {"device", described.device.name},
      {"speed_over_profile", nullptr},
      {"step_seconds", timing.step_seconds},
      {"bubble", timing.bubble},
      {"exposed_communication_seconds",
       longest_wait(timing, &cluster::JobRank::exposed_communication_seconds)},
      {"exposed_swap_seconds", longest_wait(timing, &cluster::JobRank::exposed_swap_seconds)},
      {"useful_share", cluster::useful_share(described.failures, timing.nodes)},
      {"links", table_json(link_table(timing))},
      {"runs", table_json(run_table(found.runs))}};
  if (described.device.speed_over_profile > 0.0)
    json["speed_over_profile"] = described.device.speed_over_profile;
  return json;
}

}  // namespace spillway::cli
