#include "spillway/planner/job/job_search.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cut_trials.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::planner {
namespace {

/// Whether a choice works on devices of this size; with the first cuts, which are found soonest.
bool works_within(const JobRequest& request, const Partitioner& partitioner,
                  const JobChoice& choice, Bytes memory) {
  JobRequest other = request;
  other.cut_effort = CutEffort::kExact;
  other.device_memory = memory;
  try {
    make_job_plan(other, partitioner, choice);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Devices with which a choice works, if a little more than it lacks is enough (whole layers, or
/// the order of the action lists, need more than counted): as an option, which was tried as it is
/// printed.
std::optional<std::string> enough_memory(const JobRequest& request, const JobAttempt& attempt) {
  const Partitioner& partitioner = partitioner_named(attempt.partitioner);
  for (const std::uint64_t percent : {100U, 101U, 105U, 120U, 150U}) {
    const std::string memory = as_option((request.device_memory + attempt.missing) * percent / 100);
    if (works_within(request, partitioner, attempt.choice, parse_bytes(memory))) return memory;
  }
  return std::nullopt;
}

/// The same of a choice of which nobody knows what it lacks: some size that is enough.
std::optional<std::string> memory_that_does(const JobRequest& request,
                                            const Partitioner& partitioner,
                                            const JobChoice& choice) {
  if (!works_within(request, partitioner, choice, kNoLimit))
    return std::nullopt;  // Something else is the matter.
  constexpr std::uint64_t kMostTimes = 1U << 16U;
  for (std::uint64_t times = 2; times <= kMostTimes; times *= 2)
    for (const std::uint64_t eighths : {5U, 6U, 7U, 8U}) {
      const std::string memory = as_option(request.device_memory * times * eighths / 8);
      if (works_within(request, partitioner, choice, parse_bytes(memory))) return memory;
    }
  return std::nullopt;
}

[[noreturn]] void refuse_nearest(const JobRequest& request, const JobAttempt& nearest) {
  const auto enough = enough_memory(request, nearest);
  const std::string link =
      request.swap_bytes_per_second > 0.0 ? "" : ", or name a link to the host to swap to";
  throw PlanError(
      "nothing works on {} with {}; nearest is {} on pipelines of {}, whose rank {} lacks {} of {} "
      "(use {}, or more ranks{})",
      counted(request.ranks, "rank"), counted(nearest.micro_batches, "micro-batch"),
      nearest.schedule, counted(request.ranks / nearest.data_parallel, "rank"),
      nearest.fullest_rank, nearest.missing, request.device_memory + nearest.missing,
      enough ? message("devices of {}", *enough) : std::string("devices with more memory"), link);
}

/// The one that lacks the least memory, else the reason that most of all choices share, and how
/// often; the first one of equals.
[[noreturn]] void refuse(const JobRequest& request, const std::vector<JobAttempt>& attempts) {
  const JobAttempt* nearest = nullptr;
  const JobAttempt* told = nullptr;
  std::ptrdiff_t most = 0;
  for (const JobAttempt& each : attempts) {
    const bool lacks_memory = each.missing > Bytes(0);
    if (lacks_memory && (!nearest || each.missing < nearest->missing)) nearest = &each;
    const auto equals =
        std::count_if(attempts.begin(), attempts.end(),
                      [&](const JobAttempt& other) { return other.refusal == each.refusal; });
    if (equals <= most) continue;
    most = equals;
    told = &each;
  }
  if (nearest) refuse_nearest(request, *nearest);
  throw PlanError("nothing works on {} with {}; {} on pipelines of {}: {}",
                  counted(request.ranks, "rank"),
                  counted(most_micro_batches(request), "micro-batch"), told->schedule,
                  counted(request.ranks / told->data_parallel, "rank"), told->refusal);
}

/// The only choice, or why it is none, with devices that would do where memory is the reason.
JobPlan only_plan(const JobRequest& request, const Partitioner& partitioner,
                  const JobChoice& choice) {
  try {
    return make_job_plan(request, partitioner, choice);
  } catch (const Error& error) {
    if (request.device_memory == kNoLimit) throw;
    const auto enough = memory_that_does(request, partitioner, choice);
    if (!enough) throw;
    const std::string sentence = message("{}; devices of {} would do", error.what(), *enough);
    const auto* too_full = dynamic_cast<const NoRoomError*>(&error);
    if (too_full) throw NoRoomError(sentence, too_full->rank(), too_full->needed());
    throw PlanError("{}", sentence);
  }
}

/// True for a better plan, else what the order of this one loses at most.
bool look_again(const JobRequest& request, const Partitioner& partitioner, JobPlan& plan) {
  std::optional<JobPlan> again = with_thorough_look(request, partitioner, plan);
  if (!again) return false;
  if (!is_faster(plan.step_seconds, again->step_seconds)) {
    const bool is_quicker = is_faster(again->step_seconds, plan.step_seconds);
    plan = std::move(*again);
    return is_quicker;
  }
  // Its stages are quicker, and the step is not: messages and waits are no matter of the order.
  plan.order.bound_seconds = again->order.bound_seconds;
  plan.order.downsets = again->order.downsets;
  return false;
}

}  // namespace

JobAttempt figures_of(const JobPlan& plan) {
  JobAttempt attempt{plan.partitioner, plan.schedule, plan.data_parallel, to_string(plan.variant),
                     plan.micro_batches};
  attempt.choice = choice_of(plan);
  attempt.step_seconds = plan.step_seconds;
  attempt.bubble = plan.timing.bubble;
  attempt.exposed_communication_seconds = plan.exposed_communication_seconds();
  attempt.gap = plan.gap();
  attempt.seconds_per_micro_batch = plan.seconds_per_micro_batch;
  attempt.peak = plan.peak();
  attempt.reduces_memory = plan.reduces_memory();
  attempt.not_tried = plan.not_tried;
  std::uint64_t actions = 0;
  for (const auto& list : plan.actions.ranks) actions += list.size();
  attempt.work = {plan.data_parallel, plan.actions.replica_count(), plan.actions.stages, actions};
  return attempt;
}

bool is_better(const JobAttempt& attempt, const JobAttempt& other) {
  if (!attempt.is_possible() || !other.is_possible())
    return attempt.is_possible() && !other.is_possible();
  if (is_faster(attempt.step_seconds, other.step_seconds)) return true;
  if (is_faster(other.step_seconds, attempt.step_seconds)) return false;
  if (attempt.peak != other.peak) return attempt.peak < other.peak;
  return attempt.work < other.work;
}

std::vector<std::size_t> best_of_each(std::span<const JobAttempt> attempts) {
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const auto same = std::find_if(best.begin(), best.end(), [&](std::size_t other) {
      return attempts[other].schedule == attempts[i].schedule;
    });
    if (same == best.end())
      best.push_back(i);
    else if (is_better(attempts[i], attempts[*same]))
      *same = i;
  }
  return best;
}

JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, std::optional<JobPlan>& best) {
  PlanMemo memo;
  return try_choice(request, partitioner, choice, memo, best);
}

JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, PlanMemo& memo, std::optional<JobPlan>& best) {
  JobAttempt attempt{std::string(partitioner.name),
                     std::string(choice.generator->name),
                     choice.data_parallel,
                     to_string(choice.variant),
                     choice.micro_batches != 0 ? choice.micro_batches : most_micro_batches(request),
                     choice};
  try {
    JobPlan plan = make_job_plan(request, partitioner, choice, memo);
    attempt = figures_of(plan);
    attempt.choice = choice;
    if (!best || is_better(attempt, figures_of(*best))) best = std::move(plan);
  } catch (const TooSlowError& error) {
    attempt.refusal = error.what();
    attempt.is_pruned = true;
  } catch (const DeferredError& error) {
    attempt.refusal = error.what();
    attempt.is_deferred = true;
    attempt.step_seconds = error.seconds();
  } catch (const NoRoomError& error) {
    attempt.refusal = error.what();
    attempt.missing = error.needed() - request.device_memory;
    attempt.fullest_rank = error.rank();
  } catch (const ConfigError& error) {
    attempt.refusal = error.what();
  } catch (const PlanError& error) {
    attempt.refusal = error.what();
  }
  return attempt;
}

std::optional<JobPlan> with_thorough_look(const JobRequest& request, const Partitioner& partitioner,
                                          const JobPlan& plan) {
  const bool has_order = !request.chain.may_reorder || plan.order.is_exact;
  const bool has_cuts =
      request.cut_effort == CutEffort::kAll || partitioner.reading != Reading::kOurs;
  if (has_order && has_cuts) return std::nullopt;
  JobRequest thorough = request;
  if (!has_order) thorough.order_effort = kThoroughOrder;
  thorough.cut_effort = CutEffort::kAll;
  return make_job_plan(thorough, partitioner, choice_of(plan));
}

JobSearch search_job(const JobRequest& request, const ShowChoice& show) {
  const std::vector<JobChoice> choices = job_choices(request);
  const Partitioner& partitioner = partitioner_named(request.partitioner);
  JobSearch search;
  if (choices.size() == 1) {
    search.plan = only_plan(request, partitioner, choices[0]);
    look_again(request, partitioner, search.plan);
    search.attempts.push_back(figures_of(search.plan));
    return search;
  }
  JobRequest quick = request;
  quick.cut_effort = std::min(request.cut_effort, kFirstLook);
  std::optional<JobPlan> best;
  PlanMemo memo;
  static_cast<JobTrials&>(search) = try_choices(quick, [&](const JobChoice& choice) {
    if (show) show(choice);
    return try_choice(quick, partitioner, choice, memo, best);
  });
  if (quick.cut_effort < request.cut_effort)
    try_all_cuts(request, partitioner, memo, search.attempts, best);
  if (!best) refuse(request, search.attempts);
  search.plan = std::move(*best);
  if (look_again(quick, partitioner, search.plan))
    search.attempts.push_back(figures_of(search.plan));
  return search;
}

}  // namespace spillway::planner
