#include "spillway/planner/machine/machine_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::machine {
namespace {

/// So many of the fastest are simulated in any case: their order by links of their own may be
/// wrong.
constexpr std::size_t kSimulated = 12;
/// Of all ranks: so long are action lists that are kept beside them, and simulated in all.
constexpr std::uint64_t kMostActionsOfOthers = std::uint64_t{1} << 16U;
constexpr std::uint64_t kMostActionsOfAllOthers = std::uint64_t{1} << 20U;

/// What the hosts have no room for, or nothing.
std::string host_fault(const job::JobPlan& plan, const cluster::Cluster& cluster) {
  const Bytes limit = cluster.node.host_memory;
  if (limit == Bytes(0)) return {};  // The description does not say.
  const std::vector<Bytes> peaks = host_peaks(plan, cluster.node.devices);
  const auto fullest = std::max_element(peaks.begin(), peaks.end());
  if (*fullest <= limit) return {};
  const SizesApart sizes = sizes_apart(*fullest, limit);
  return message("the ranks of host {} would swap {} to it, and it has {} (use more ranks or more "
                 "memory, or give the nodes disks)",
                 fullest - peaks.begin(), sizes.first, sizes.second);
}

/// Requests on a machine, each made once: for every schedule they are the same. With what was found
/// for them.
class Requests {
 public:
  Requests(const job::JobRequest& request, const cluster::Cluster& cluster)
      : request_(request), cluster_(cluster) {}

  const job::JobRequest& on(std::uint32_t data_parallel, cluster::SwapTarget target) {
    const auto found = made_.find({data_parallel, target});
    if (found != made_.end()) return found->second;
    return made_[{data_parallel, target}] = request_on(request_, cluster_, data_parallel, target);
  }

  job::PlanMemo& memo() { return memo_; }

 private:
  const job::JobRequest& request_;
  const cluster::Cluster& cluster_;
  job::PlanMemo memo_;
  std::map<std::pair<std::uint32_t, cluster::SwapTarget>, job::JobRequest> made_;
};

MachineAttempt attempt_on(Requests& requests, const cluster::Cluster& cluster,
                          const partition::Partitioner& partitioner, const job::JobChoice& choice) {
  MachineAttempt made;
  // Hosts first: disks are slower, and worth asking for only where a host lacks room.
  for (const cluster::SwapTarget target :
       {cluster::SwapTarget::kHost, cluster::SwapTarget::kDisk}) {
    const job::JobRequest& request = requests.on(choice.data_parallel, target);
    planner_schedule::OrRefusal<job::JobPlan> plan =
        job::plan_choice(request, partitioner, choice, requests.memo());
    made.swap_target = target;
    made.attempt = job::attempt_of(request, partitioner, choice, plan);
    if (!plan) break;
    made.plan = std::move(*plan);
    const std::string fault =
        target == cluster::SwapTarget::kHost ? host_fault(made.plan, cluster) : std::string();
    if (fault.empty()) break;
    // What the hosts cannot hold, the disks behind them can, at their rate.
    if (cluster.node.disks > 0) continue;
    made.attempt.refusal = fault;
    break;
  }
  return made;
}

/// Why nothing works: as `search_job` says it, or what is the matter with the first choice.
planner_schedule::Refusal nothing_works(Requests& requests, const cluster::Cluster& cluster,
                                        std::uint32_t data_parallel, const job::JobAttempt& first,
                                        const job::ShowChoice& show) {
  for (const cluster::SwapTarget target :
       {cluster::SwapTarget::kHost, cluster::SwapTarget::kDisk}) {
    if (target == cluster::SwapTarget::kDisk && cluster.node.disks == 0) continue;
    const planner_schedule::OrRefusal<job::JobSearch> found =
        job::search_job(requests.on(data_parallel, target), show);
    if (!found) return found.refusal();
  }
  return planner_schedule::no_plan("{}", first.refusal);
}

/// The run of a plan, or the reason why it is none: more actions than can be simulated.
std::optional<cluster::JobTiming> timing_of(const job::JobPlan& plan,
                                            cluster::SwapTarget swap_target,
                                            const cluster::Cluster& cluster, std::string& fault) {
  try {
    return cluster::simulate_job(job_of(plan, swap_target), cluster);
  } catch (const ConfigError& error) {
    fault = error.what();
    return std::nullopt;
  }
}

MachineRun run_of(const job::JobAttempt& attempt, cluster::SwapTarget swap_target,
                  const cluster::JobTiming& timing) {
  return {attempt.schedule,     attempt.data_parallel, swap_target,
          attempt.step_seconds, timing.step_seconds,   attempt.variant};
}

std::uint64_t actions_of(const job::JobAttempt& attempt) {
  return attempt.data_parallel * attempt.size.actions;
}

/// What may be the fastest on the machine: the fastest by links of their own, and the best of each
/// schedule on each number of data-parallel replicas, which share other links.
class Finalists {
 public:
  void add(MachineAttempt made) {
    const auto behind = std::find_if(all_.begin(), all_.end(), [&](const MachineAttempt& other) {
      return job::is_better(made.attempt, other.attempt);
    });
    all_.insert(behind, std::move(made));
    for (std::size_t i = all_.size(); i-- > kSimulated;)
      // What stands behind the first ones may have got there by this one, so all of them are asked
      // again.
      if (!is_worth_it(i)) all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  const std::vector<MachineAttempt>& all() const { return all_; }

 private:
  bool is_worth_it(std::size_t index) const {
    const job::JobAttempt& attempt = all_[index].attempt;
    if (actions_of(attempt) > kMostActionsOfOthers) return false;
    return std::none_of(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(index),
                        [&](const MachineAttempt& faster) {
                          return faster.attempt.schedule == attempt.schedule &&
                                 faster.attempt.data_parallel == attempt.data_parallel;
                        });
  }

  std::vector<MachineAttempt> all_;  ///< The fastest first.
};

/// Runs the finalists, and takes the fastest one.
void choose(Requests& requests, const cluster::Cluster& cluster,
            const std::vector<MachineAttempt>& finalists, MachineSearch& found) {
  const MachineAttempt* best = nullptr;
  std::string reason;
  std::uint64_t actions_of_others = 0;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const MachineAttempt& each = finalists[i];
    // The first ones always run, since their order by private links may be wrong; the others only
    // where their bound leaves a chance.
    if (best && i >= kSimulated) {
      const job::JobRequest& request = requests.on(each.attempt.data_parallel, each.swap_target);
      if (!job::is_faster(job::pipeline_bound(request, each.attempt.choice),
                          found.timing.step_seconds))
        continue;
      actions_of_others += actions_of(each.attempt);
      if (actions_of_others > kMostActionsOfAllOthers) break;
    }
    std::optional<cluster::JobTiming> timing =
        timing_of(each.plan, each.swap_target, cluster, reason);
    if (!timing) continue;  // Another one may be short enough.
    found.runs.push_back(run_of(each.attempt, each.swap_target, *timing));
    if (best && timing->step_seconds >= found.timing.step_seconds) continue;
    best = &each;
    found.timing = std::move(*timing);
  }
  if (!best) throw ConfigError("{}", reason);
  std::stable_sort(
      found.runs.begin(), found.runs.end(),
      [](const MachineRun& a, const MachineRun& b) { return a.step_seconds < b.step_seconds; });
  found.swap_target = best->swap_target;
  found.request = requests.on(best->plan.data_parallel, best->swap_target);
  found.search.plan = best->plan;
}

/// The order and the cuts of the plan once more: they may be better on the machine, too, and are
/// better known.
void look_again(const cluster::Cluster& cluster, const partition::Partitioner& partitioner,
                MachineSearch& found) {
  const job::JobPlan& plan = found.search.plan;
  const auto thorough = job::thorough_request(found.request, partitioner, plan);
  if (!thorough) return;
  job::PlanMemo memo;
  planner_schedule::OrRefusal<job::JobPlan> made =
      job::plan_choice(*thorough, partitioner, job::choice_of(plan), memo);
  if (!made) return;
  const bool has_room =
      found.swap_target == cluster::SwapTarget::kDisk || host_fault(*made, cluster).empty();
  std::string fault;
  std::optional<cluster::JobTiming> timing;
  if (has_room) timing = timing_of(*made, found.swap_target, cluster, fault);
  const double seconds = found.timing.step_seconds;
  std::optional<double> new_seconds;
  if (timing) new_seconds = timing->step_seconds;
  const bool is_only = found.search.attempts.size() == 1;
  if (!job::take_again(std::move(*made), new_seconds, seconds, found.search)) return;
  const MachineRun run = run_of(job::figures_of(found.search.plan), found.swap_target, *timing);
  if (!is_only && job::is_faster(*new_seconds, seconds))
    found.runs.insert(found.runs.begin(), run);
  else
    found.runs.front() = run;
  found.timing = std::move(*timing);
}

}  // namespace

cluster::Job job_of(const job::JobPlan& plan, cluster::SwapTarget swap_target) {
  cluster::Job job = cluster::make_job(plan.actions, plan.costs, plan.data_parallel);
  job.swap_target = swap_target;
  return job;
}

MachineAttempt try_choice_on(const job::JobRequest& request, const cluster::Cluster& cluster,
                             const partition::Partitioner& partitioner,
                             const job::JobChoice& choice) {
  Requests requests(request, cluster);
  return attempt_on(requests, cluster, partitioner, choice);
}

planner_schedule::OrRefusal<MachineSearch> search_job_on(const job::JobRequest& request,
                                                         const cluster::Cluster& cluster,
                                                         const job::ShowChoice& show) {
  cluster::check_cluster(cluster);
  const partition::Partitioner& partitioner = partition::partitioner_named(request.partitioner);
  job::JobRequest quick = request;
  quick.cut_effort = std::min(request.cut_effort, job::kFirstLook);
  Requests requests(quick, cluster);
  MachineSearch found;
  Finalists finalists;
  // The times of the machine's devices, for the bound.
  const std::uint32_t data_parallel = std::max(1U, request.data_parallel);
  const job::JobRequest& asked = requests.on(data_parallel, cluster::SwapTarget::kHost);
  job::CandidateList candidates(asked);  // Refuses what makes no sense.
  // Disks hold no more than a host does, so nothing works there either.
  if (asked.device_memory < job::memory_bound(asked)) return job::search_job(asked, show).refusal();
  while (const std::optional<job::JobChoice> choice = candidates.next()) {
    if (show) show(*choice, asked.device_memory);
    MachineAttempt made = attempt_on(requests, cluster, partitioner, *choice);
    candidates.add(made.attempt);
    if (made.attempt.is_possible()) finalists.add(std::move(made));
  }
  static_cast<job::JobTrials&>(found.search) = candidates.take();
  if (finalists.all().empty())
    return nothing_works(requests, cluster, data_parallel, found.search.attempts.front(), show);
  choose(requests, cluster, finalists.all(), found);
  look_again(cluster, partitioner, found);
  // It was lowered for the first look alone; whoever reads the request asks what was wanted.
  found.request.cut_effort = request.cut_effort;
  return found;
}

}  // namespace spillway::machine
