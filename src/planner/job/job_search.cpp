#include "spillway/planner/job/job_search.h"

#include <algorithm>

#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// Sums in another order differ in the last bits.
constexpr double kSame = 1.0 - 1e-9;

bool is_better(const JobPlan& plan, const JobPlan& best) {
  if (plan.step_seconds < best.step_seconds * kSame) return true;
  return plan.step_seconds * kSame <= best.step_seconds && plan.peak() < best.peak();
}

JobAttempt figures_of(const JobPlan& plan) {
  JobAttempt attempt{plan.partitioner, plan.schedule, plan.groups};
  attempt.step_seconds = plan.step_seconds;
  attempt.bubble = plan.timing.bubble;
  attempt.exposed_communication_seconds = plan.exposed_communication_seconds();
  attempt.gap = plan.gap();
  attempt.seconds_per_micro_batch = plan.seconds_per_micro_batch;
  attempt.peak = plan.peak();
  return attempt;
}

/// The reason that most of all choices share, and how often; the first one of equals.
[[noreturn]] void refuse(const JobRequest& request, const std::vector<JobAttempt>& attempts) {
  const JobAttempt* told = nullptr;
  std::ptrdiff_t most = 0;
  for (const JobAttempt& each : attempts) {
    const auto equals =
        std::count_if(attempts.begin(), attempts.end(),
                      [&](const JobAttempt& other) { return other.refusal == each.refusal; });
    if (equals <= most) continue;
    most = equals;
    told = &each;
  }
  throw PlanError(
      "nothing works on {} ranks with {} micro-batches; {} on pipelines of {} ranks: {}",
      request.ranks, request.micro_batches, told->schedule, request.ranks / told->groups,
      told->refusal);
}

}  // namespace

bool changes_results(const Schedule& schedule) {
  if (schedule.weight_rule != WeightRule::kNewest) return true;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kStep && action.micro_batch != kNoMicroBatch) return true;
  return false;
}

std::vector<JobChoice> job_choices(const JobRequest& request) {
  check(request);
  const bool is_open = request.schedule == kAnySchedule;
  std::vector<std::uint32_t> groups;
  if (request.groups != 0)
    groups = {request.groups};
  else if (!is_open)
    groups = {1};
  else
    for (std::uint32_t count = 1; count <= std::min(request.ranks, request.micro_batches); ++count)
      if (request.ranks % count == 0 && request.micro_batches % count == 0) groups.push_back(count);
  std::vector<JobChoice> choices;
  for (const std::uint32_t count : groups) {
    if (!is_open) {
      choices.push_back({&schedule_generator_named(request.schedule), count});
      continue;
    }
    for (const ScheduleGenerator& generator : schedule_generators())
      choices.push_back({&generator, count});
  }
  return choices;
}

JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, JobPlan& best, bool& has_best) {
  JobAttempt attempt{std::string(partitioner.name), std::string(choice.generator->name),
                     choice.groups};
  try {
    JobPlan plan = make_job_plan(request, partitioner, *choice.generator, choice.groups);
    attempt = figures_of(plan);
    if (request.schedule == kAnySchedule && changes_results(plan.actions)) {
      attempt.refusal = "it updates weights while micro-batches are in flight, which changes "
                        "results (name it with --schedule to have it)";
      return attempt;
    }
    if (has_best && !is_better(plan, best)) return attempt;
    best = std::move(plan);
    has_best = true;
  } catch (const ConfigError& error) {
    attempt.refusal = error.what();
  } catch (const PlanError& error) {
    attempt.refusal = error.what();
  }
  return attempt;
}

JobSearch search_job(const JobRequest& request) {
  const std::vector<JobChoice> choices = job_choices(request);
  const Partitioner& partitioner = partitioner_named(request.partitioner);
  JobSearch search;
  if (choices.size() == 1) {
    search.plan = make_job_plan(request, partitioner, *choices[0].generator, choices[0].groups);
    search.attempts.push_back(figures_of(search.plan));
    return search;
  }
  bool has_plan = false;
  for (const JobChoice& choice : choices)
    search.attempts.push_back(try_choice(request, partitioner, choice, search.plan, has_plan));
  if (!has_plan) refuse(request, search.attempts);
  return search;
}

}  // namespace spillway::planner
