#include "spillway/planner/job/job_search.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cut_planner.h"
#include "job_choices.h"
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
  PlanMemo memo;
  return static_cast<bool>(plan_choice(other, partitioner, choice, memo));
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
  PlanMemo memo;
  OrRefusal<JobPlan> plan = plan_choice(request, partitioner, choice, memo);
  if (plan) return std::move(*plan);
  Refusal reason = plan.refusal();
  if (request.device_memory == kNoLimit) raise(reason);
  if (const auto enough = memory_that_does(request, partitioner, choice)) {
    reason.sentence += message("; devices of {} would do", *enough);
    if (reason.cause == Refusal::Cause::kRequest) reason.cause = Refusal::Cause::kPlan;
  }
  raise(reason);
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

constexpr std::uint64_t kMostPassesAgain = 2048;

/// Whether other cuts may help, by what the first ones say.
bool may_win(const JobAttempt& attempt, double best) {
  if (!attempt.is_possible()) return attempt.missing > Bytes(0);
  return is_faster(attempt.step_seconds / kMostGainOfCuts, best);
}

/// Plans first, the fastest of them before others; then what lacks the least memory.
bool is_likelier(const JobAttempt& a, const JobAttempt& b) {
  if (a.is_possible() != b.is_possible()) return a.is_possible();
  return a.is_possible() ? a.step_seconds < b.step_seconds : a.missing < b.missing;
}

/// The likeliest choices of a first look once more, with the cuts of all partitioners: one that was
/// slower than the best plan, or had no room, may win by these. At most 2,048 passes of
/// micro-batches through stages in all, and none that was a fourth slower. What wins is added to
/// the attempts, and takes the place of `best`.
void try_all_cuts(const JobRequest& request, const Partitioner& partitioner, PlanMemo& memo,
                  std::vector<JobAttempt>& attempts, std::optional<JobPlan>& best) {
  if (partitioner.reading != Reading::kOurs) return;
  JobRequest thorough = request;
  thorough.cut_effort = CutEffort::kAll;
  std::vector<JobAttempt> likeliest = attempts;
  std::stable_sort(likeliest.begin(), likeliest.end(), is_likelier);
  std::uint64_t passes = 0;
  for (const JobAttempt& attempt : likeliest) {
    const double seconds = best ? best->step_seconds : kNoTime;
    if (!may_win(attempt, seconds)) continue;
    JobChoice choice = attempt.choice;
    const std::uint64_t own = passes_of(request, choice);
    if (own > kMostPassesAgain - passes) continue;
    passes += own;
    choice.incumbent = {seconds, seconds, seconds};
    std::optional<JobPlan> found;
    const JobAttempt again = try_choice(thorough, partitioner, choice, memo, found);
    if (!found || !is_faster(again.step_seconds, seconds)) continue;
    attempts.push_back(again);
    best = std::move(found);
  }
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
  OrRefusal<JobPlan> plan = plan_choice(request, partitioner, choice, memo);
  if (plan) {
    attempt = figures_of(*plan);
    attempt.choice = choice;
    if (!best || is_better(attempt, figures_of(*best))) best = std::move(*plan);
    return attempt;
  }
  const Refusal& reason = plan.refusal();
  attempt.refusal = reason.sentence;
  attempt.is_pruned = reason.cause == Refusal::Cause::kPruned;
  attempt.is_deferred = reason.cause == Refusal::Cause::kDeferred;
  if (attempt.is_deferred) attempt.step_seconds = reason.seconds;
  if (reason.cause != Refusal::Cause::kRoom) return attempt;
  attempt.missing = reason.needed - request.device_memory;
  attempt.fullest_rank = reason.rank;
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
