#include "planning/job_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "planning/machine_report.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::cli {

using job::JobPlan;
using job::JobRequest;
using nlohmann::ordered_json;

namespace {

/// What is assumed of micro-batches that nobody measured; nothing where there are none.
std::string batch_text(const JobPlan& plan, const JobRequest& request) {
  const std::uint32_t share = plan.batch / plan.micro_batches;
  const std::string larger = "k profiled ones in one are taken to last k times as long and to hold "
                             "k times as much";
  if (share > 1)
    return line("batch", "in {}, each of {} profiled ones; {}",
                counted(plan.micro_batches, "micro-batch"), share, larger);
  if (request.micro_batches != 0) return {};
  return line("batch", "in {} as profiled; {}, and smaller ones were skipped",
              counted(plan.micro_batches, "micro-batch"), larger);
}

/// What hosts hold; nothing where nothing is swapped.
std::string hosts_text(const FoundJob& job) {
  const Bytes held = machine::fullest_host(job.search.plan, job.ranks_per_host);
  if (held == Bytes(0)) return {};
  const std::string whose = job.ranks_per_host == 1
                                ? std::string("every rank on a host of its own")
                                : message("{} neighbouring ranks on each", job.ranks_per_host);
  if (job.swap_target == cluster::SwapTarget::kDisk)
    return line("hosts",
                job.host_memory == partition::kNoLimit
                    ? message("{} on the disks of the fullest one, summed over the peaks of its "
                              "ranks; {}",
                              held, whose)
                    : message("{} on the disks of the fullest one, as swaps to its memory of {} "
                              "had no room there; {}",
                              held, job.host_memory, whose));
  return line(
      "hosts",
      "{}{} on the fullest one, summed over the peaks of its ranks; "
      "{}",
      held,
      job.host_memory == partition::kNoLimit ? std::string() : message(" of {}", job.host_memory),
      whose);
}

/// Which order the branches have, and what it loses.
std::string order_text(const FoundJob& job) {
  const layer_order::OrderChoice& order = job.search.plan.order;
  if (!job.request.chain.may_reorder) return "of the layers as recorded";
  std::string text = order.layers.empty() ? "of the layers as recorded"
                                          : message("of the layers changed ({})", order.name);
  if (!order.layers.empty() && std::isinf(order.recorded_seconds))
    text += ", as nothing fits when they stand as recorded";
  else if (!order.layers.empty())
    text += message(": the slowest stage is {} quicker than as recorded",
                    percent_text(1.0 - order.seconds / order.recorded_seconds));
  if (order.is_exact) return text + "; no order is quicker";
  return text + message("; at most {} behind the best order", percent_text(order.loss()));
}

std::string_view best_of_text(job::CutEffort tried) {
  switch (tried) {
    case job::CutEffort::kExact: return "exact cuts, for the fastest slowest stage";
    case job::CutEffort::kMessages:
      return "the fastest step among exact cuts and those that count messages";
    case job::CutEffort::kAll: break;
  }
  return "the fastest step among exact cuts, those that count messages, and those of all "
         "partitioners";
}

/// What the search did, so that nobody takes it for more.
std::string search_text(const FoundJob& job) {
  std::string text = message("in {}", seconds_text(job.search_seconds));
  if (job.search.attempts.size() + job.search.pruned + job.search.skipped < 2) return text;
  text += ": " + counted(job.search.attempts.size(), "candidate");
  if (job.search.pruned > 0) text += message("; {} more were pruned as slower", job.search.pruned);
  if (job.search.skipped > 0)
    text += message("; {} more were skipped (name one with --schedule)", job.search.skipped);
  return text;
}

std::string memory_reduction_text(const JobPlan& plan) {
  std::uint64_t swaps = 0;
  std::uint64_t recomputed = 0;
  for (std::size_t rank = 0; rank < plan.memory.size(); ++rank) {
    swaps += count_of(plan, rank, schedule::ActionKind::kSwapOut);
    recomputed += count_of(plan, rank, schedule::ActionKind::kRecompute);
  }
  return message("{} whole stashes are swapped in idle time, {} are recomputed", swaps, recomputed);
}

/// The words on the command line that a plan depends on; nothing for callers without one.
std::string asked_text(const runtime::NamedTexts& asked) {
  std::string words;
  for (const auto& [name, value] : asked) {
    words += (words.empty() ? "" : " ") + name;
    if (!value.empty()) (words += ' ') += shell_word(value);
  }
  return words.empty() ? words : line("asked", words);
}

ordered_json hosts_json(const FoundJob& job) {
  ordered_json json = {
      {"ranks_per_host", job.ranks_per_host},
      {"memory_bytes", nullptr},
      {"swaps_to", name_in(kSwapTargets, job.swap_target)},
      {"peak_bytes", machine::fullest_host(job.search.plan, job.ranks_per_host).count()},
      {"per_host_bytes", ordered_json::array()}};
  if (job.host_memory != partition::kNoLimit) json["memory_bytes"] = job.host_memory.count();
  for (const Bytes held : machine::host_peaks(job.search.plan, job.ranks_per_host))
    json["per_host_bytes"].push_back(held.count());
  return json;
}

/// Nothing is told of orders that were skipped, and JSON has no infinity.
ordered_json order_json(const FoundJob& job) {
  const layer_order::OrderChoice& order = job.search.plan.order;
  const bool is_open = job.request.chain.may_reorder;
  const auto known = [&](double seconds) {
    return is_open && std::isfinite(seconds) ? ordered_json(seconds) : ordered_json();
  };
  return {{"name", order.name},
          {"is_open", is_open},
          {"is_exact", order.is_exact},
          {"loss", known(order.loss())},
          {"seconds", known(order.seconds)},
          {"recorded_seconds", known(order.recorded_seconds)},
          {"bound_seconds", known(order.bound_seconds)},
          {"downsets", order.downsets}};
}

/// Adds why a schedule has no plan on any number of data-parallel replicas: each reason once, with
/// the numbers that it holds for where it is not all that were tried. Of those that lack memory,
/// only the one that lacks the least.
void add_reasons(const std::string& schedule, std::span<const job::JobAttempt> attempts,
                 std::vector<NoPlan>& plans) {
  std::set<std::uint32_t> tried;
  std::map<std::string, std::set<std::uint32_t>> reasons;
  const job::JobAttempt* nearest = nullptr;
  for (const job::JobAttempt& each : attempts) {
    if (each.schedule != schedule) continue;
    tried.insert(each.data_parallel);
    if (each.missing == Bytes(0))
      reasons[each.refusal].insert(each.data_parallel);
    else if (!nearest || each.missing < nearest->missing)
      nearest = &each;
  }
  if (nearest) reasons[nearest->refusal].insert(nearest->data_parallel);
  for (const auto& [reason, replicas] : reasons) {
    std::string numbers;
    for (const std::uint32_t count : replicas)
      numbers += message("{}{}", numbers.empty() ? "" : " or ", count);
    const std::string where = replicas == tried
                                  ? ""
                                  : message(" in {} data-parallel {}", numbers,
                                            *replicas.rbegin() == 1 ? "replica" : "replicas");
    plans.push_back({schedule, where, reason});
  }
}

/// The best attempt of each schedule as a table, fastest first, and why some are none; nothing
/// where there is one attempt.
std::string attempts_text(std::span<const job::JobAttempt> attempts) {
  if (attempts.size() < 2) return {};
  std::vector<job::JobAttempt> fastest;
  for (const std::size_t each : job::best_of_each(attempts)) fastest.push_back(attempts[each]);
  std::stable_sort(fastest.begin(), fastest.end(),
                   [](const job::JobAttempt& a, const job::JobAttempt& b) {
                     if (a.is_possible() != b.is_possible()) return a.is_possible();
                     return a.is_possible() && a.step_seconds < b.step_seconds;
                   });
  std::vector<NoPlan> refused;
  for (const job::JobAttempt& each : fastest)
    if (!each.is_possible()) add_reasons(each.schedule, attempts, refused);
  return "\nAll schedules that were tried, each on its best number of data-parallel replicas:\n" +
         table_text(attempt_table(fastest), {}, kAllRows) + reasons_text(refused);
}

}  // namespace

std::string reasons_text(const std::vector<NoPlan>& plans) {
  if (plans.empty()) return {};
  std::string text = "Reasons of those without a plan, unless they were pruned as slower:\n";
  std::vector<bool> is_told(plans.size(), false);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (is_told[i]) continue;
    std::string schedules;
    for (std::size_t k = i; k < plans.size(); ++k) {
      if (plans[k].where != plans[i].where || plans[k].reason != plans[i].reason) continue;
      is_told[k] = true;
      schedules += message("{}{}", schedules.empty() ? "" : ", ", plans[k].schedule);
    }
    text += message("  {}{}: {}\n", schedules, plans[i].where, plans[i].reason);
  }
  return text;
}

std::string job_text(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const partition::Partitioner& partitioner = partition::partitioner_named(plan.partitioner);
  const planner_schedule::ScheduleGenerator& generator =
      planner_schedule::schedule_generator_named(plan.schedule);
  const std::string machine = job.machine ? job.machine->cluster.name : "";
  std::string text = asked_text(job.options.asked);
  text += request_text(job.request, job.options.profile,
                       links_text(job.request, job.swap_target, machine));
  const bool is_whole = plan.data_parallel > 1 && plan.ranks == plan.data_parallel;
  text += line("schedule", "{} ({}) on {} of {}{}", job::schedule_text(plan.schedule, plan.variant),
               generator.summary, counted(plan.data_parallel, "pipeline"),
               counted(plan.ranks / plan.data_parallel, "rank"),
               is_whole ? ": each has the whole model (data parallel)" : "");
  text += batch_text(plan, job.request);
  const bool is_ours = partitioner.reading == partition::Reading::kOurs;
  text += line("cuts", "{} ({}; {})", plan.partitioner,
               is_ours ? best_of_text(plan.cuts_tried) : partitioner.summary,
               to_string(partitioner.reading));
  text += line("order", order_text(job));
  text += line("time",
               "{} per step, {} per micro-batch on the slowest stage; "
               "micro-batches: {}",
               seconds_text(plan.step_seconds), seconds_text(plan.seconds_per_micro_batch),
               rate_text(plan.micro_batches_per_second()));
  const bool is_named = job.request.schedule != job::kAnySchedule;
  text += line("bound",
               "{}: no plan is faster {}; this is {} above it; integrality gap "
               "{}{}",
               seconds_text(plan.bound_seconds),
               is_named ? "with this schedule on such pipelines" : "on so many ranks",
               percent_text(plan.gap()), percent_text(plan.rounding_gap),
               plan.rounding_gap > 0.0 ? ", as layers run again whole" : "");
  text += line("idle",
               "{} of all ranks' time; a rank waits for {} of messages and {} of "
               "swaps at most",
               percent_text(plan.timing.bubble), seconds_text(plan.exposed_communication_seconds()),
               seconds_text(plan.exposed_swap_seconds()));
  text += line("peak", "{} on the fullest rank", plan.peak());
  text += hosts_text(job);
  if (job.machine) text += machine_text(*job.machine);
  if (plan.memory_reduction == job::JobMemoryReduction::kIdleOffload)
    text += line("offload", memory_reduction_text(plan));
  if (!plan.not_tried.empty()) text += line("offload", plan.not_tried);
  text += line("planned", search_text(job));
  text += '\n';
  text += table_text(stage_table(job));
  text += "\nWhat ranks hold at the moment of their peak:\n" + table_text(rank_table(plan));
  if (job.machine) text += machine_tables(*job.machine);
  return text + attempts_text(job.search.attempts);
}

ordered_json job_json(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const partition::Partitioner& partitioner = partition::partitioner_named(plan.partitioner);
  ordered_json json = {{"partitioner", plan.partitioner},
                       {"partitioner_reading", partition::to_string(partitioner.reading)},
                       {"schedule", plan.schedule},
                       {"variant", to_string(plan.variant)},
                       {"ranks", plan.ranks},
                       {"data_parallel", plan.data_parallel},
                       {"micro_batches", plan.micro_batches},
                       {"batch", plan.batch}};
  if (plan.device_memory != partition::kNoLimit)
    json["device_memory_bytes"] = plan.device_memory.count();
  json["memory_reduction"] = job::to_string(plan.memory_reduction);
  json["not_tried"] = plan.not_tried;
  json["order"] = order_json(job);
  json["stages"] = table_json(stage_table(job));
  json["per_rank"] = table_json(rank_table(plan));
  json["hosts"] = hosts_json(job);
  if (job.machine) json["machine"] = machine_json(*job.machine);
  json["step_seconds"] = plan.step_seconds;
  json["micro_batches_per_second"] = plan.micro_batches_per_second();
  json["seconds_per_micro_batch"] = plan.seconds_per_micro_batch;
  json["rounding_gap"] = plan.rounding_gap;
  json["bubble"] = plan.timing.bubble;
  json["exposed_communication_seconds"] = plan.exposed_communication_seconds();
  json["exposed_swap_seconds"] = plan.exposed_swap_seconds();
  json["peak_bytes"] = plan.peak().count();
  json["bound"] = plan.bound_seconds;
  json["gap"] = plan.gap();
  json["search_seconds"] = job.search_seconds;
  json["attempts"] = table_json(attempt_table(job.search.attempts));
  json["pruned"] = job.search.pruned;
  json["skipped"] = job.search.skipped;
  json["options"] = ordered_json::object();
  for (const auto& [name, value] : job.options.asked) json["options"][name] = value;
  json["model"] = {{"path", job.options.profile},
                   {"layers", job.request.chain.layers.size()},
                   {"micro_batch_seconds", work_of(job.request.chain)},
                   {"update_seconds", job.request.update_seconds},
                   {"guesses_forward", job.request.guesses_forward},
                   {"reserved_bytes", job.request.reserved.count()}};
  return json;
}

}  // namespace spillway::cli
