#include "planning/job_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "planning/machine_names.h"
#include "planning/request_text.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/machine/host_memory.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::JobAttempt;
using planner::JobPlan;
using planner::JobRequest;
using planner::StageEstimate;

namespace {

/// By class, in bytes.
ordered_json classes_json(const planner::HeldBytes& bytes) {
  return {{"weights", bytes.weights.count()},     {"gradients", bytes.gradients.count()},
          {"optimizer", bytes.optimizer.count()}, {"buffers", bytes.buffers.count()},
          {"stash", bytes.stash.count()},         {"working", bytes.working.count()},
          {"relayed", bytes.relayed.count()},     {"reserved", bytes.reserved.count()}};
}

ordered_json stage_json(const FoundJob& job, std::uint32_t index) {
  const JobPlan& plan = job.search.plan;
  const StageEstimate& stage = plan.stages[index];
  const planner::LayerOrder& order = plan.order.layers;
  ordered_json recomputed = ordered_json::array();
  for (const planner::ChosenPoint& point : stage.recomputed) recomputed.push_back(point.layer);
  ordered_json ranges = ordered_json::array();
  for (const planner::LayerRange& range :
       planner::layers_at(order, stage.first_layer, stage.last_layer))
    ranges.push_back({range.first, range.last});
  const auto name_at = [&](planner::LayerIndex place) {
    return job.request.chain.layers[planner::layer_at(order, place)].name;
  };
  return {{"rank", plan.actions.rank_of(0, index)},
          {"first", stage.first_layer},
          {"last", stage.last_layer},
          {"first_name", name_at(stage.first_layer)},
          {"last_name", name_at(stage.last_layer)},
          {"ranges", std::move(ranges)},
          {"seconds", stage.seconds},
          {"raw_seconds", stage.raw_seconds},
          {"link_seconds", stage.link_seconds},
          {"recompute_seconds", stage.recompute_seconds},
          {"memory_bytes", stage.memory.count()},
          {"raw_memory_bytes", stage.raw_memory.count()},
          {"before", classes_json(plan.bytes_before[index])},
          {"after", classes_json(plan.bytes_after[index])},
          {"parameter_bytes", stage.parameters.count()},
          {"swapped_bytes", stage.swapped.count()},
          {"in_flight", plan.factors[index].in_flight},
          {"weight_versions", plan.factors[index].weight_versions},
          {"state_copies", plan.factors[index].state_copies},
          {"recomputed", std::move(recomputed)}};
}

ordered_json rank_json(const JobPlan& plan, std::uint32_t rank) {
  const planner::RankTiming& timing = plan.timing.ranks[rank];
  const double idle = plan.step_seconds - timing.busy_seconds;
  return {{"busy_seconds", timing.busy_seconds},
          {"bubble", plan.step_seconds > 0.0 ? idle / plan.step_seconds : 0.0},
          {"exposed_communication_seconds", timing.exposed_communication_seconds},
          {"exposed_swap_seconds", timing.exposed_swap_seconds},
          {"peak_bytes", plan.memory[rank].peak.count()},
          {"held", classes_json(plan.memory[rank].held)},
          {"fixed_bytes", plan.memory[rank].fixed.count()},
          {"host_bytes", plan.memory[rank].host.count()},
          {"swap_actions", count_of(plan, rank, planner::ActionKind::kSwapOut)},
          {"recompute_actions", count_of(plan, rank, planner::ActionKind::kRecompute)}};
}

ordered_json hosts_json(const FoundJob& job) {
  ordered_json json = {
      {"ranks_per_host", job.ranks_per_host},
      {"memory_bytes", nullptr},
      {"swaps_to", name_in(kSwapTargets, job.swap_target)},
      {"peak_bytes", planner::fullest_host(job.search.plan, job.ranks_per_host).count()},
      {"per_host_bytes", ordered_json::array()}};
  if (job.host_memory != planner::kNoLimit) json["memory_bytes"] = job.host_memory.count();
  for (const Bytes held : planner::host_peaks(job.search.plan, job.ranks_per_host))
    json["per_host_bytes"].push_back(held.count());
  return json;
}

ordered_json attempt_json(const JobAttempt& attempt) {
  ordered_json json = {{"partitioner", attempt.partitioner},
                       {"schedule", attempt.schedule},
                       {"variant", attempt.variant},
                       {"data_parallel", attempt.data_parallel},
                       {"micro_batches", attempt.micro_batches},
                       {"is_possible", attempt.is_possible()},
                       {"refusal", attempt.refusal}};
  if (!attempt.is_possible()) return json;
  json["step_seconds"] = attempt.step_seconds;
  json["seconds_per_micro_batch"] = attempt.seconds_per_micro_batch;
  json["bubble"] = attempt.bubble;
  json["exposed_communication_seconds"] = attempt.exposed_communication_seconds;
  json["peak_bytes"] = attempt.peak.count();
  json["gap"] = attempt.gap;
  json["reduces_memory"] = attempt.reduces_memory;
  json["not_tried"] = attempt.not_tried;
  return json;
}

/// Nothing is told of orders that were skipped, and JSON has no infinity.
ordered_json order_json(const FoundJob& job) {
  const planner::OrderChoice& order = job.search.plan.order;
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

}  // namespace

ordered_json job_json(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const planner::Partitioner& partitioner = planner::partitioner_named(plan.partitioner);
  ordered_json json = {{"partitioner", plan.partitioner},
                       {"partitioner_reading", planner::to_string(partitioner.reading)},
                       {"schedule", plan.schedule},
                       {"variant", to_string(plan.variant)},
                       {"ranks", plan.ranks},
                       {"data_parallel", plan.data_parallel},
                       {"micro_batches", plan.micro_batches},
                       {"batch", plan.batch}};
  if (plan.device_memory != planner::kNoLimit)
    json["device_memory_bytes"] = plan.device_memory.count();
  json["memory_reduction"] = planner::to_string(plan.memory_reduction);
  json["not_tried"] = plan.not_tried;
  json["order"] = order_json(job);
  json["stages"] = ordered_json::array();
  for (std::uint32_t k = 0; k < plan.stages.size(); ++k)
    json["stages"].push_back(stage_json(job, k));
  json["per_rank"] = ordered_json::array();
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank)
    json["per_rank"].push_back(rank_json(plan, rank));
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
  json["attempts"] = ordered_json::array();
  for (const JobAttempt& attempt : job.search.attempts)
    json["attempts"].push_back(attempt_json(attempt));
  json["pruned"] = job.search.pruned;
  json["skipped"] = job.search.skipped;
  json["model"] = {{"path", job.path},
                   {"layers", job.request.chain.layers.size()},
                   {"micro_batch_seconds", work_of(job.request.chain)},
                   {"update_seconds", job.request.update_seconds},
                   {"guesses_forward", job.request.guesses_forward},
                   {"reserved_bytes", job.request.reserved.count()}};
  return json;
}

ordered_json compared_json(const JobRequest& request, const JobComparison& compared) {
  auto list = ordered_json::array();
  const auto add = [&](const ComparedJob& row, bool has_any_data_parallel) {
    JobRequest asked = request;
    if (!has_any_data_parallel) asked.data_parallel = compared.data_parallel;
    ordered_json json = attempt_json(row.attempt);
    if (row.on_machine)
      json["machine"] = {{"step_seconds", row.on_machine->step_seconds},
                         {"swaps_to", name_in(kSwapTargets, row.on_machine->swap_target)}};
    json["bound"] = planner::job_bound(asked);
    json["has_any_data_parallel"] = has_any_data_parallel;
    json["search_seconds"] = row.search_seconds;
    list.push_back(std::move(json));
  };
  for (const ComparedJob& row : compared.rows) add(row, false);
  if (compared.best) add(*compared.best, true);
  return list;
}

ordered_json cost_cuts_json(const CostCuts& cuts) {
  ordered_json json = {{"partitioner", cuts.partitioner},
                       {"is_possible", cuts.refusal.empty()},
                       {"refusal", cuts.refusal}};
  if (!cuts.refusal.empty()) return json;
  json["stages"] = ordered_json::array();
  for (const StageEstimate& stage : cuts.stages)
    json["stages"].push_back({{"first", stage.first_layer},
                              {"last", stage.last_layer},
                              {"seconds", stage.seconds},
                              {"memory_bytes", stage.memory.count()},
                              {"raw_memory_bytes", stage.raw_memory.count()}});
  json["step_seconds"] = cuts.worst_seconds;
  json["bubble"] = cuts.bubble();
  json["bound"] = cuts.bound_seconds;
  json["gap"] = cuts.gap();
  json["search_seconds"] = cuts.search_seconds;
  return json;
}

}  // namespace spillway::cli
