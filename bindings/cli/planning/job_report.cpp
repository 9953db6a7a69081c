#include "planning/job_report.h"

#include <algorithm>
#include <cmath>

#include "planning/comparison_report.h"
#include "planning/planning_text.h"
#include "planning/request_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/machine/host_memory.h"

namespace spillway::cli {

using planner::JobPlan;
using planner::JobRequest;
using planner::StageEstimate;

namespace {

constexpr std::size_t kRowsShown = 64;
constexpr std::size_t kMostLettersOfName = 44;

/// What is assumed of micro-batches that nobody measured; nothing where there are none.
std::string batch_text(const JobPlan& plan, const JobRequest& request) {
  const std::uint32_t share = plan.batch / plan.micro_batches;
  const std::string larger = "k profiled ones in one are taken to last k times as long and to hold "
                             "k times as much";
  if (share > 1)
    return line("batch", message("in {}, each of {} profiled ones; {}",
                                 counted(plan.micro_batches, "micro-batch"), share, larger));
  if (request.micro_batches != 0) return {};
  return line("batch", message("in {} as profiled; {}, and smaller ones were skipped",
                               counted(plan.micro_batches, "micro-batch"), larger));
}

/// What hosts hold; nothing where nothing is swapped.
std::string hosts_text(const FoundJob& job) {
  const Bytes held = planner::fullest_host(job.search.plan, job.ranks_per_host);
  if (held == Bytes(0)) return {};
  const std::string whose = job.ranks_per_host == 1
                                ? std::string("every rank on a host of its own")
                                : message("{} neighbouring ranks on each", job.ranks_per_host);
  if (job.swap_target == planner::SwapTarget::kDisk)
    return line("hosts",
                job.host_memory == planner::kNoLimit
                    ? message("{} on the disks of the fullest one, summed over the peaks of its "
                              "ranks; {}",
                              held, whose)
                    : message("{} on the disks of the fullest one, as swaps to its memory of {} "
                              "had no room there; {}",
                              held, job.host_memory, whose));
  return line("hosts",
              message("{}{} on the fullest one, summed over the peaks of its ranks; "
                      "{}",
                      held,
                      job.host_memory == planner::kNoLimit ? std::string()
                                                           : message(" of {}", job.host_memory),
                      whose));
}

/// Which order the branches have, and what it loses.
std::string order_text(const FoundJob& job) {
  const planner::OrderChoice& order = job.search.plan.order;
  if (!job.request.chain.may_reorder) return "of the layers as recorded";
  std::string text = message("of the layers {}", order.layers.empty() ? "as recorded" : order.name);
  if (!order.layers.empty() && std::isinf(order.recorded_seconds))
    text += ", as nothing fits when they stand as recorded";
  else if (!order.layers.empty())
    text += message(", whose slowest stage is {} quicker than as recorded",
                    percent_text(1.0 - order.seconds / order.recorded_seconds));
  if (order.is_exact) return text + "; no order is quicker";
  return text + message("; at most {} behind the best order", percent_text(order.loss()));
}

/// "0-11" or, where branches were put apart, "0-7 12-15 20-21".
std::string layers_text(const planner::LayerOrder& order, const StageEstimate& stage) {
  constexpr std::size_t kRangesShown = 3;
  const auto ranges = planner::layers_at(order, stage.first_layer, stage.last_layer);
  std::string text;
  for (std::size_t i = 0; i < std::min(ranges.size(), kRangesShown); ++i)
    text += message("{}{}-{}", i == 0 ? "" : " ", ranges[i].first, ranges[i].last);
  return ranges.size() > kRangesShown ? text + " ..." : text;
}

std::string rows_not_shown(std::size_t rows) {
  if (rows <= kRowsShown) return {};
  return message("and {} more; --json tells all\n", rows - kRowsShown);
}

std::string stages_table(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  std::vector<std::vector<std::string>> rows{{"stage", "rank", "layers", "time", "recomputed",
                                              "swapped", "held", "before", "parameters",
                                              "begins with"}};
  for (std::size_t k = 0; k < std::min(plan.stages.size(), kRowsShown); ++k) {
    const StageEstimate& stage = plan.stages[k];
    rows.push_back(
        {message("{}", k), message("{}", plan.actions.rank_of(0, static_cast<std::uint32_t>(k))),
         layers_text(plan.order.layers, stage), seconds_text(stage.seconds),
         seconds_text(stage.recompute_seconds), to_string(stage.swapped), to_string(stage.memory),
         to_string(stage.raw_memory), to_string(stage.parameters),
         shown_text(
             job.request.chain.layers[planner::layer_at(plan.order.layers, stage.first_layer)].name,
             kMostLettersOfName)});
  }
  return table_text(rows) + rows_not_shown(plan.stages.size());
}

/// By class; a row sums up to its peak.
std::string classes_table(const JobPlan& plan) {
  std::vector<std::vector<std::string>> rows{{"rank", "weights", "gradients", "optimizer",
                                              "buffers", "stash", "working", "relayed", "reserved",
                                              "peak"}};
  const std::size_t shown = std::min(plan.memory.size(), kRowsShown);
  for (std::size_t rank = 0; rank < shown; ++rank) {
    const planner::HeldBytes& held = plan.memory[rank].held;
    rows.push_back({message("{}", rank), to_string(held.weights), to_string(held.gradients),
                    to_string(held.optimizer), to_string(held.buffers), to_string(held.stash),
                    to_string(held.working), to_string(held.relayed), to_string(held.reserved),
                    to_string(plan.memory[rank].peak)});
  }
  return "\nWhat ranks hold at the moment of their peak:\n" + table_text(rows) +
         rows_not_shown(plan.memory.size());
}

/// What the search did, so that nobody takes it for more.
std::string search_text(const FoundJob& job) {
  std::string text = message("in {}", seconds_text(job.search_seconds));
  if (job.search.attempts.size() < 2) return text;
  text += message(": {} plans", job.search.attempts.size());
  if (job.search.pruned > 0) text += message("; {} more were pruned as slower", job.search.pruned);
  if (job.search.skipped > 0)
    text += message("; {} more were skipped (name one with --schedule)", job.search.skipped);
  return text;
}

std::string memory_reduction_text(const JobPlan& plan) {
  std::int64_t swaps = 0;
  std::int64_t recomputed = 0;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    swaps += count_of(plan, rank, planner::ActionKind::kSwapOut);
    recomputed += count_of(plan, rank, planner::ActionKind::kRecompute);
  }
  return message("{} whole stashes are swapped in idle time, {} are recomputed", swaps, recomputed);
}

}  // namespace

std::int64_t count_of(const JobPlan& plan, std::uint32_t rank, planner::ActionKind kind) {
  const auto& list = plan.actions.ranks[rank];
  return std::count_if(list.begin(), list.end(),
                       [&](const planner::Action& action) { return action.kind == kind; });
}

std::string job_text(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const planner::Partitioner& partitioner = planner::partitioner_named(plan.partitioner);
  const planner::ScheduleGenerator& generator = planner::schedule_generator_named(plan.schedule);
  const std::string machine = job.machine ? job.machine->cluster.name : "";
  std::string text = request_text(job.request, job.path, links_text(job.request, machine));
  const bool is_whole = plan.data_parallel > 1 && plan.ranks == plan.data_parallel;
  text += line("schedule",
               message("{} ({}) on {} of {}{}", planner::schedule_text(plan.schedule, plan.variant),
                       generator.summary, counted(plan.data_parallel, "pipeline"),
                       counted(plan.ranks / plan.data_parallel, "rank"),
                       is_whole ? ": each has the whole model (data parallel)" : ""));
  text += batch_text(plan, job.request);
  const bool is_ours = partitioner.reading == planner::Reading::kOurs;
  text += line("cuts", message("{} ({}; {})", plan.partitioner,
                               is_ours ? "the fastest step among exact cuts, those that count "
                                         "messages, and those of all partitioners"
                                       : partitioner.summary,
                               to_string(partitioner.reading)));
  text += line("order", order_text(job));
  text += line("time",
               message("{} per step, {} per micro-batch on the slowest stage; "
                       "micro-batches: {}",
                       seconds_text(plan.step_seconds), seconds_text(plan.seconds_per_micro_batch),
                       rate_text(plan.micro_batches_per_second())));
  const bool is_named = job.request.schedule != planner::kAnySchedule;
  text +=
      line("bound", message("{}: no plan is faster {}; this is {} above it; integrality gap "
                            "{}{}",
                            seconds_text(plan.bound_seconds),
                            is_named ? "with this schedule on such pipelines" : "on so many ranks",
                            percent_text(plan.gap()), percent_text(plan.rounding_gap),
                            plan.rounding_gap > 0.0 ? ", as layers run again whole" : ""));
  text += line("idle", message("{} of all ranks' time; a rank waits for {} of messages and {} of "
                               "swaps at most",
                               percent_text(plan.timing.bubble),
                               seconds_text(plan.exposed_communication_seconds()),
                               seconds_text(plan.exposed_swap_seconds())));
  text += line("peak", message("{} on the fullest rank", plan.peak()));
  text += hosts_text(job);
  if (job.machine) text += machine_text(*job.machine);
  if (plan.memory_reduction == planner::JobMemoryReduction::kIdleOffload)
    text += line("offload", memory_reduction_text(plan));
  if (!plan.not_tried.empty()) text += line("offload", plan.not_tried);
  text += line("planned", search_text(job));
  text += '\n';
  text += stages_table(job);
  text += classes_table(plan);
  if (job.machine) text += machine_tables(*job.machine);
  return text + attempts_text(job.search.attempts);
}

}  // namespace spillway::cli
