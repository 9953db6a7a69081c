#include "spillway/planner/machine/machine_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/planner/machine/host_memory.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::planner {
namespace {

/// So many of the fastest are simulated.
constexpr std::size_t kSimulated = 12;

/// What the hosts have no room for, or nothing.
std::string host_fault(const JobPlan& plan, const Cluster& cluster) {
  const Bytes limit = cluster.node.host_memory;
  if (limit == Bytes(0)) return {};  // The description does not say.
  const std::vector<Bytes> peaks = host_peaks(plan, cluster.node.devices);
  const auto fullest = std::max_element(peaks.begin(), peaks.end());
  if (*fullest <= limit) return {};
  return message("the ranks of host {} would swap {} to it, and it has {} (use more ranks or more "
                 "memory, or give the nodes disks)",
                 fullest - peaks.begin(), *fullest, limit);
}

/// Requests on a machine, each made once: for every schedule they are the same. With what was found
/// for them.
class Requests {
 public:
  Requests(const JobRequest& request, const Cluster& cluster)
      : request_(request), cluster_(cluster) {}

  const JobRequest& on(std::uint32_t groups, SwapTarget target) {
    const auto found = made_.find({groups, target});
    if (found != made_.end()) return found->second;
    return made_[{groups, target}] = request_on(request_, cluster_, groups, target);
  }

  PlanMemo& memo() { return memo_; }

 private:
  const JobRequest& request_;
  const Cluster& cluster_;
  PlanMemo memo_;
  std::map<std::pair<std::uint32_t, SwapTarget>, JobRequest> made_;
};

MachineAttempt attempt_on(Requests& requests, const Cluster& cluster,
                          const Partitioner& partitioner, const JobChoice& choice) {
  const auto attempt_with = [&](SwapTarget target) {
    MachineAttempt made;
    made.swap_target = target;
    std::optional<JobPlan> plan;
    made.attempt =
        try_choice(requests.on(choice.groups, target), partitioner, choice, requests.memo(), plan);
    if (plan) made.plan = std::move(*plan);
    return made;
  };
  MachineAttempt made = attempt_with(SwapTarget::kHost);
  if (!made.attempt.is_possible()) return made;
  const std::string fault = host_fault(made.plan, cluster);
  if (fault.empty()) return made;
  if (cluster.node.disks > 0) return attempt_with(SwapTarget::kDisk);
  made.attempt.refusal = fault;
  return made;
}

/// Why nothing works: as `search_job` says it, or what is the matter with the first choice.
[[noreturn]] void refuse(Requests& requests, const Cluster& cluster, std::uint32_t groups,
                         const JobAttempt& first) {
  search_job(requests.on(groups, SwapTarget::kHost));
  if (cluster.node.disks > 0) search_job(requests.on(groups, SwapTarget::kDisk));
  throw PlanError("{}", first.refusal);
}

MachineRun run_of(const MachineAttempt& made, const JobTiming& timing) {
  return {made.attempt.schedule,  made.attempt.groups, made.swap_target,
          made.plan.step_seconds, timing.step_seconds, made.attempt.variant};
}

/// Runs the candidates, and takes the fastest one.
void choose(Requests& requests, const Cluster& cluster,
            const std::vector<MachineAttempt>& candidates, MachineSearch& found) {
  const MachineAttempt* best = nullptr;
  for (const MachineAttempt& each : candidates) {
    JobTiming timing = simulate_job(job_of(each.plan, each.swap_target), cluster);
    found.runs.push_back(run_of(each, timing));
    if (best && timing.step_seconds >= found.timing.step_seconds) continue;
    best = &each;
    found.timing = std::move(timing);
  }
  std::stable_sort(
      found.runs.begin(), found.runs.end(),
      [](const MachineRun& a, const MachineRun& b) { return a.step_seconds < b.step_seconds; });
  found.swap_target = best->swap_target;
  found.request = requests.on(best->plan.groups, best->swap_target);
  found.search.plan = best->plan;
}

/// The order and the cuts of the plan once more: they may be better on the machine, too, and are
/// better known.
void look_again(const Cluster& cluster, const Partitioner& partitioner, MachineSearch& found) {
  JobPlan& plan = found.search.plan;
  MachineAttempt again;
  if (auto made = with_thorough_look(found.request, partitioner, plan))
    again.plan = std::move(*made);
  else
    return;
  again.swap_target = found.swap_target;
  again.attempt = figures_of(again.plan);
  JobTiming timing = simulate_job(job_of(again.plan, again.swap_target), cluster);
  const bool has_room =
      found.swap_target == SwapTarget::kDisk || host_fault(again.plan, cluster).empty();
  if (!has_room || is_faster(found.timing.step_seconds, timing.step_seconds)) {
    plan.order.bound_seconds = again.plan.order.bound_seconds;
    plan.order.downsets = again.plan.order.downsets;
    return;
  }
  const MachineRun run = run_of(again, timing);
  if (is_faster(timing.step_seconds, found.timing.step_seconds)) {
    found.search.attempts.push_back(again.attempt);
    found.runs.insert(found.runs.begin(), run);
  } else {
    found.runs.front() = run;
  }
  plan = std::move(again.plan);
  found.timing = std::move(timing);
}

}  // namespace

Job job_of(const JobPlan& plan, SwapTarget swap_target) {
  std::vector<Bytes> swapped;
  for (const StageEstimate& stage : plan.stages) swapped.push_back(stage.swapped);
  Job job = make_job(plan.actions, plan.costs, std::move(swapped), plan.groups);
  job.swap_target = swap_target;
  return job;
}

MachineAttempt try_choice_on(const JobRequest& request, const Cluster& cluster,
                             const Partitioner& partitioner, const JobChoice& choice) {
  Requests requests(request, cluster);
  return attempt_on(requests, cluster, partitioner, choice);
}

MachineSearch search_job_on(const JobRequest& request, const Cluster& cluster,
                            const ShowChoice& show) {
  check_cluster(cluster);
  const Partitioner& partitioner = partitioner_named(request.partitioner);
  JobRequest quick = request;
  quick.cut_effort = std::min(request.cut_effort, kFirstLook);
  Requests requests(quick, cluster);
  MachineSearch found;
  std::vector<MachineAttempt> best;  // The fastest first.
  const auto attempt = [&](const JobChoice& choice) {
    if (show) show(choice);
    MachineAttempt made = attempt_on(requests, cluster, partitioner, choice);
    JobAttempt told = made.attempt;
    if (!told.is_possible()) return told;
    const auto behind = std::find_if(best.begin(), best.end(), [&](const MachineAttempt& other) {
      return is_better(made.attempt, other.attempt);
    });
    best.insert(behind, std::move(made));
    if (best.size() > kSimulated) best.pop_back();
    return told;
  };
  // The times of the machine's devices, for the bound.
  const std::uint32_t groups = std::max(1U, request.groups);
  static_cast<JobTrials&>(found.search) =
      try_choices(requests.on(groups, SwapTarget::kHost), attempt);
  if (best.empty()) refuse(requests, cluster, groups, found.search.attempts.front());
  choose(requests, cluster, best, found);
  look_again(cluster, partitioner, found);
  found.request.cut_effort = request.cut_effort;
  return found;
}

}  // namespace spillway::planner
