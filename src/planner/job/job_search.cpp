#include "spillway/planner/job/job_search.h"

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/planner/job/job_bound.h"

namespace spillway::job {
namespace {

/// Device memory with which a choice works, as an option; nothing where more memory is no help. A
/// thousandth less, or a mebibyte, does not do under the first cuts, which are found soonest. It
/// depends on the job alone, so that nobody is told more for having typed more.
std::optional<std::string> memory_that_does(const JobRequest& request,
                                            const partition::Partitioner& partitioner,
                                            const JobChoice& choice, const ShowChoice& show) {
  JobRequest other = request;
  other.cut_effort = CutEffort::kExact;
  PlanMemo memo;
  const auto works = [&](Bytes memory) {
    other.device_memory = memory;
    if (show) show(choice, memory);
    return static_cast<bool>(plan_choice(other, partitioner, choice, memo));
  };
  // Offload in idle time needs a limit.
  const bool has_limit = choice.variant.memory_reduction == JobMemoryReduction::kIdleOffload;
  constexpr std::uint64_t kMost = 1024_TiB / 1_MiB;
  if (!works(has_limit ? 1_MiB * kMost : partition::kNoLimit)) return std::nullopt;
  // Less than the bound works nowhere.
  std::uint64_t enough = std::max<std::uint64_t>(1, (memory_bound(request) + 1_MiB - 1_B) / 1_MiB);
  std::uint64_t too_little = enough - 1;
  while (!works(1_MiB * enough)) {
    if (enough > kMost) return std::nullopt;
    too_little = enough;
    enough *= 2;
  }
  while (enough - too_little > std::max<std::uint64_t>(1, enough / 1000)) {
    const std::uint64_t middle = too_little + (enough - too_little) / 2;
    (works(1_MiB * middle) ? enough : too_little) = middle;
  }
  // Where less works, it is not memory that is lacking.
  if (1_MiB * enough <= request.device_memory) return std::nullopt;
  return as_option(1_MiB * enough);
}

Refusal lacks_memory(const JobRequest& request, const JobAttempt& nearest, const ShowChoice& show) {
  Bytes needed = request.device_memory + nearest.missing;
  const auto enough = memory_that_does(request, partition::partitioner_named(nearest.partitioner),
                                       nearest.choice, show);
  // The cuts that were nearest have the fullest rank hold the least; others may do with less.
  if (enough) needed = std::min(needed, parse_bytes(*enough));
  std::string others;
  if (request.device_memory >= layer_memory_bound(request)) {  // Else neither is any help.
    others = ", or try more ranks";
    if (request.swap_rate.is_none()) others += ", or a link to the host: --link-out and --link-in";
  }
  const SizesApart sizes = sizes_apart(needed, request.device_memory);
  return no_plan(
      "nothing works on {} with {}; nearest is {} on pipelines of {}, whose rank {} needs {} and "
      "has {}, {} too little (use {}{})",
      counted(request.ranks, "rank"), counted(nearest.micro_batches, "micro-batch"),
      nearest.schedule, counted(request.ranks / nearest.data_parallel, "rank"),
      nearest.fullest_rank, sizes.first, sizes.second, needed - request.device_memory,
      enough ? message("devices of {}", *enough) : std::string("devices with more memory"), others);
}

/// The one that lacks the least memory, else the reason that most of all choices share, and how
/// often; the first one of equals.
Refusal nothing_works(const JobRequest& request, const std::vector<JobAttempt>& attempts,
                      const ShowChoice& show) {
  const JobAttempt* nearest = nullptr;
  const JobAttempt* told = nullptr;
  std::ptrdiff_t most = 0;
  for (const JobAttempt& each : attempts) {
    if (each.missing > Bytes(0) && (!nearest || each.missing < nearest->missing)) nearest = &each;
    const auto equals =
        std::count_if(attempts.begin(), attempts.end(),
                      [&](const JobAttempt& other) { return other.refusal == each.refusal; });
    if (equals <= most) continue;
    most = equals;
    told = &each;
  }
  if (nearest) return lacks_memory(request, *nearest, show);
  return no_plan("nothing works on {} with {}; {} on pipelines of {}: {}",
                 counted(request.ranks, "rank"),
                 counted(most_micro_batches(request), "micro-batch"), told->schedule,
                 counted(request.ranks / told->data_parallel, "rank"), told->refusal);
}

/// Why the only choice has no plan, with devices that would do where memory is the reason.
Refusal only_one_refused(const JobRequest& request, const partition::Partitioner& partitioner,
                         const JobChoice& choice, Refusal reason, const ShowChoice& show) {
  if (request.device_memory == partition::kNoLimit) return reason;
  if (const auto enough = memory_that_does(request, partitioner, choice, show)) {
    reason.sentence += message("; devices of {} would do", *enough);
    // On other devices it makes sense, so the request is not at fault.
    if (reason.cause == Refusal::Cause::kRequest) reason.cause = Refusal::Cause::kPlan;
  }
  return reason;
}

}  // namespace

CutEffort useful_cuts(const JobRequest& request) {
  return request.device_memory < memory_bound(request) ? CutEffort::kExact : request.cut_effort;
}

std::optional<JobRequest> thorough_request(const JobRequest& request,
                                           const partition::Partitioner& partitioner,
                                           const JobPlan& plan) {
  const bool has_order = !request.chain.may_reorder || plan.order.is_exact;
  const bool has_cuts =
      request.cut_effort == CutEffort::kAll || partitioner.reading != partition::Reading::kOurs;
  if (has_order && has_cuts) return std::nullopt;
  JobRequest thorough = request;
  if (!has_order) thorough.order_effort = layer_order::kThoroughOrder;
  thorough.cut_effort = CutEffort::kAll;
  return thorough;
}

bool take_again(JobPlan again, std::optional<double> new_seconds, double seconds,
                JobSearch& search) {
  if (!new_seconds || is_faster(seconds, *new_seconds)) {
    // Its stages are quicker, and the step is not: messages and waits are no matter of the order.
    search.plan.order.bound_seconds = again.order.bound_seconds;
    search.plan.order.downsets = again.order.downsets;
    return false;
  }
  search.plan = std::move(again);
  if (search.attempts.size() == 1)  // The only candidate, and not one more.
    search.attempts = {figures_of(search.plan)};
  else if (is_faster(*new_seconds, seconds))
    search.attempts.push_back(figures_of(search.plan));
  return true;
}

OrRefusal<JobSearch> search_job(const JobRequest& given, const ShowChoice& show) {
  const std::vector<JobChoice> choices = job_choices(given);  // Refuses what makes no sense.
  JobRequest request = given;
  request.cut_effort = useful_cuts(given);
  const partition::Partitioner& partitioner = partition::partitioner_named(request.partitioner);
  const bool is_only = choices.size() == 1;
  PlanMemo memo;
  JobSearch search;
  JobRequest looked_at = request;
  if (is_only) {
    // In full at once: there is no incumbent that would spare it.
    if (show) show(choices[0], request.device_memory);
    OrRefusal<JobPlan> plan = plan_choice(request, partitioner, choices[0], memo);
    if (!plan) return only_one_refused(request, partitioner, choices[0], plan.refusal(), show);
    search.plan = std::move(*plan);
    search.attempts.push_back(figures_of(search.plan));
  } else {
    // So much the list has tried with every candidate; the best plan is looked at again with all.
    looked_at.cut_effort = std::min(request.cut_effort, kFirstLook);
    std::optional<JobPlan> best;
    CandidateList candidates(request);
    while (const std::optional<JobChoice> choice = candidates.next()) {
      if (show) show(*choice, request.device_memory);
      OrRefusal<JobPlan> plan = plan_choice(request, partitioner, *choice, memo);
      if (candidates.add(attempt_of(request, partitioner, *choice, plan))) best = std::move(*plan);
    }
    static_cast<JobTrials&>(search) = candidates.take();
    if (!best) return nothing_works(request, search.attempts, show);
    search.plan = std::move(*best);
  }
  const auto thorough = thorough_request(looked_at, partitioner, search.plan);
  if (!thorough) return search;
  OrRefusal<JobPlan> again = plan_choice(*thorough, partitioner, choice_of(search.plan), memo);
  if (!again) return search;
  const double new_seconds = again->step_seconds;
  const CutEffort tried = again->cuts_tried;
  if (!take_again(std::move(*again), new_seconds, search.plan.step_seconds, search))
    search.plan.cuts_tried = tried;
  return search;
}

}  // namespace spillway::job
