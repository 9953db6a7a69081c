#include "planning/job_json.h"

#include <nlohmann/json.hpp>

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::JobAttempt;
using planner::JobPlan;
using planner::JobRequest;
using planner::StageEstimate;

namespace {

ordered_json stage_json(const FoundJob& job, std::uint32_t index) {
  const JobPlan& plan = job.search.plan;
  const StageEstimate& stage = plan.stages[index];
  ordered_json recomputed = ordered_json::array();
  for (const planner::ChosenPoint& point : stage.recomputed) recomputed.push_back(point.layer);
  return {{"rank", plan.actions.rank_of(0, index)},
          {"first", stage.first_layer},
          {"last", stage.last_layer},
          {"first_name", job.request.chain.layers[stage.first_layer].name},
          {"last_name", job.request.chain.layers[stage.last_layer].name},
          {"seconds", stage.seconds},
          {"raw_seconds", stage.raw_seconds},
          {"link_seconds", stage.link_seconds},
          {"recompute_seconds", stage.recompute_seconds},
          {"memory_bytes", stage.memory.count()},
          {"raw_memory_bytes", stage.raw_memory.count()},
          {"parameter_bytes", stage.parameters.count()},
          {"swapped_bytes", stage.swapped.count()},
          {"in_flight", plan.factors[index].in_flight},
          {"weight_versions", plan.factors[index].weight_versions},
          {"recomputed", std::move(recomputed)}};
}

ordered_json rank_json(const JobPlan& plan, std::uint32_t rank) {
  const planner::RankTiming& timing = plan.timing.ranks[rank];
  const double idle = plan.step_seconds - timing.busy_seconds;
  return {{"busy_seconds", timing.busy_seconds},
          {"bubble", plan.step_seconds > 0.0 ? idle / plan.step_seconds : 0.0},
          {"exposed_communication_seconds", timing.exposed_communication_seconds},
          {"peak_bytes", plan.memory[rank].peak.count()},
          {"fixed_bytes", plan.memory[rank].fixed.count()},
          {"host_bytes", plan.memory[rank].host.count()},
          {"swap_actions", count_of(plan, rank, planner::ActionKind::kSwapOut)},
          {"recompute_actions", count_of(plan, rank, planner::ActionKind::kRecompute)}};
}

ordered_json attempt_json(const JobAttempt& attempt) {
  ordered_json json = {{"partitioner", attempt.partitioner},
                       {"schedule", attempt.schedule},
                       {"groups", attempt.groups},
                       {"is_possible", attempt.is_possible()},
                       {"refusal", attempt.refusal}};
  if (!attempt.is_possible()) return json;
  json["step_seconds"] = attempt.step_seconds;
  json["seconds_per_micro_batch"] = attempt.seconds_per_micro_batch;
  json["bubble"] = attempt.bubble;
  json["exposed_communication_seconds"] = attempt.exposed_communication_seconds;
  json["peak_bytes"] = attempt.peak.count();
  json["gap"] = attempt.gap;
  return json;
}

}  // namespace

ordered_json job_json(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const planner::Partitioner& partitioner = planner::partitioner_named(plan.partitioner);
  ordered_json json = {{"partitioner", plan.partitioner},
                       {"partitioner_reading", planner::to_string(partitioner.reading)},
                       {"schedule", plan.schedule},
                       {"ranks", plan.ranks},
                       {"groups", plan.groups},
                       {"micro_batches", plan.micro_batches}};
  if (plan.device_memory != planner::kNoLimit)
    json["device_memory_bytes"] = plan.device_memory.count();
  json["relief"] = planner::to_string(plan.relief);
  json["stages"] = ordered_json::array();
  for (std::uint32_t k = 0; k < plan.stages.size(); ++k)
    json["stages"].push_back(stage_json(job, k));
  json["per_rank"] = ordered_json::array();
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank)
    json["per_rank"].push_back(rank_json(plan, rank));
  json["step_seconds"] = plan.step_seconds;
  json["micro_batches_per_second"] =
      plan.step_seconds > 0.0 ? plan.micro_batches / plan.step_seconds : 0.0;
  json["seconds_per_micro_batch"] = plan.seconds_per_micro_batch;
  json["rounding_gap"] = plan.rounding_gap;
  json["bubble"] = plan.timing.bubble;
  json["exposed_communication_seconds"] = plan.exposed_communication_seconds();
  json["peak_bytes"] = plan.peak().count();
  json["bound"] = plan.bound_seconds;
  json["gap"] = plan.gap();
  json["search_seconds"] = job.search_seconds;
  json["attempts"] = ordered_json::array();
  for (const JobAttempt& attempt : job.search.attempts)
    json["attempts"].push_back(attempt_json(attempt));
  json["model"] = {{"path", job.path},
                   {"layers", job.request.chain.layers.size()},
                   {"micro_batch_seconds", work_of(job.request.chain)},
                   {"update_seconds", job.request.update_seconds},
                   {"reserved_bytes", job.request.reserved.count()}};
  return json;
}

ordered_json compared_json(const JobRequest& request, const ComparedJob& row) {
  ordered_json json = attempt_json(row.attempt);
  json["bound"] = planner::job_bound(request);
  json["search_seconds"] = row.search_seconds;
  return json;
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
