#pragma once

#include <string>

#include "spillway/planner/job/job_search.h"

namespace spillway::job {

constexpr std::uint64_t kMega = 1'000'000;

/// Equal layers: forward 1 s, backward 2 s, 4 MB of parameters with gradients and one state, 10 MB
/// of stash, which 0.5 s recompute, and borders of 1 MB.
inline partition::ModelChain even_chain(std::uint32_t layers) {
  partition::ModelChain chain;
  for (partition::LayerIndex i = 0; i < layers; ++i) {
    partition::ModelLayer layer;
    layer.name = "layer " + std::to_string(i);
    layer.forward_seconds = 1.0;
    layer.backward_seconds = 2.0;
    layer.parameters = Bytes(4 * kMega);
    layer.static_ratio = 3.0;
    layer.stash = Bytes(10 * kMega);
    layer.recompute = {{0.5, Bytes()}};
    chain.layers.push_back(layer);
    if (i + 1 < layers) chain.borders.push_back({i, {i + 1}, Bytes(kMega)});
  }
  return chain;
}

inline JobRequest even_job(std::uint32_t layers, std::uint32_t ranks, std::uint32_t micro_batches,
                           std::string_view schedule = kAnySchedule) {
  JobRequest request;
  request.chain = even_chain(layers);
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  request.schedule = schedule;
  return request;
}

/// A candidate on its own.
inline JobAttempt tried(const JobRequest& request, const partition::Partitioner& partitioner,
                        const JobChoice& choice) {
  PlanMemo memo;
  return attempt_of(request, partitioner, choice, plan_choice(request, partitioner, choice, memo));
}

/// The plan of one candidate alone. Throws the refusal where there is none.
inline JobPlan make_job_plan(const JobRequest& request, const partition::Partitioner& partitioner,
                             const JobChoice& choice) {
  PlanMemo memo;
  OrRefusal<JobPlan> plan = plan_choice(request, partitioner, choice, memo);
  if (!plan) planner_schedule::raise(plan.refusal());
  return std::move(*plan);
}

/// The candidates of a request under their first cuts, as somebody says that they turn out.
template <typename Evaluate>
JobTrials trials_of(JobRequest request, const Evaluate& evaluate) {
  request.cut_effort = kFirstLook;
  CandidateList candidates(request);
  while (const std::optional<JobChoice> choice = candidates.next())
    candidates.add(evaluate(*choice));
  return candidates.take();
}

/// The plan of a request that names its schedule.
inline JobPlan planned(const JobRequest& request) {
  OrRefusal<JobSearch> search = search_job(request);
  if (!search) planner_schedule::raise(search.refusal());
  return std::move(search->plan);
}

/// What an error says, or "accepted".
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace spillway::job
