#include "step_choice.h"

#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "job_costs.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// Of micro-batches through stages, up to which action lists are run for the cuts of all
/// partitioners.
constexpr std::uint64_t kMostPasses = 4096;
/// The same for the cuts for less memory.
constexpr std::uint64_t kMostPassesForLess = 256;

/// The exact cuts for stages that send nothing while they compute; fractions of layers do here.
Cuts cut_with_messages(const SegmentCosts& costs) {
  constexpr std::uint32_t kMostBalanced = 128;
  PartitionProblem problem = costs.problem();
  problem.transfers_hide = false;
  const SegmentCosts slow(std::move(problem));
  auto solved = slow.stages() > kMostBalanced ? least_time_cuts(slow) : balanced_time_cuts(slow);
  if (!solved) refuse_cuts(slow);
  return std::move(solved->cuts);
}

const Partitioner kMessageCuts{"spillway", "least time of computing and messages", "",
                               Reading::kOurs, cut_with_messages};

/// The cuts of one partitioner after the other.
class StepChoice {
 public:
  StepChoice(const JobRequest& request, const Schedule& compute, const IncumbentSeconds& incumbent,
             CutMemo& memo)
      : request_(request), compute_(compute), incumbent_(incumbent), memo_(memo) {
    // Ranks with more than one stage may come out too full, and are cut again then.
    const bool is_plain = compute.stages == compute.rank_count() && compute.replica_count() == 1;
    cuts_once_ = is_plain || request.device_memory == kNoLimit;
    JobRequest endless = request;
    endless.device_memory = kNoLimit;
    try {
      unlimited_.emplace(problem_for(endless, compute));
      within_.emplace(problem_for(request, compute));
    } catch (const Error&) {
      // A layer that fits on no device; whoever plans for it says so.
    }
  }

  /// Throws GivenUpError.
  void begin_with(const Partitioner& partitioner) {
    is_new(partitioner);
    try {
      best_ = with_memory_reduction(request_, partitioner, compute_, incumbent_, memo_);
      incumbent_.cuts = best_->step_seconds;
    } catch (const GivenUpError&) {
      throw;
    } catch (const Error&) {
      reason_ = std::current_exception();
    }
    is_far_ = best_ && !is_faster(best_->step_seconds / kMostGainOfCuts, incumbent_.deferred);
    // What the first ones have to beat leaves them all that other cuts may gain.
    incumbent_.all = incumbent_.deferred = kNoTime;
  }

  void consider(const Partitioner& partitioner) {
    if (is_far_ || !is_new(partitioner)) return;
    try {
      JobPlan plan = with_memory_reduction(request_, partitioner, compute_, incumbent_, memo_);
      if (best_ && !is_faster(plan.step_seconds, best_->step_seconds)) return;
      best_ = std::move(plan);
      incumbent_.cuts = best_->step_seconds;
    } catch (const Error&) {
      // Not by this one, or not faster.
    }
  }

  /// Cuts for less memory than there is: stages of one rank share it, so that other ones may fit
  /// where those for all of it do not, or be quicker.
  void consider_for(std::uint64_t percent, const Partitioner& partitioner) {
    if (is_far_) return;
    JobRequest less = request_;
    less.device_memory = request_.device_memory * percent / 100;
    try {
      JobPlan plan = with_memory_reduction(less, partitioner, compute_, incumbent_, memo_);
      if (best_ && !is_faster(plan.step_seconds, best_->step_seconds)) return;
      plan.device_memory = request_.device_memory;
      incumbent_.cuts = plan.step_seconds;
      best_ = std::move(plan);
    } catch (const Error&) {
      // Not with so little, or not faster.
    }
  }

  JobPlan best() {
    if (!best_) std::rethrow_exception(reason_);
    best_->partitioner = partitioners().front().name;
    return std::move(*best_);
  }

 private:
  /// Whether its cuts are other ones, at first or later on.
  bool is_new(const Partitioner& partitioner) {
    return seen_.insert({cuts_by(partitioner, unlimited_), cuts_by(partitioner, within_)}).second ||
           !cuts_once_;
  }

  /// None where it finds none.
  Cuts cuts_by(const Partitioner& partitioner, const std::optional<SegmentCosts>& costs) {
    if (!costs) return {};
    try {
      return memo_.cuts(partitioner, *costs);
    } catch (const Error&) {
      return {};
    }
  }

  const JobRequest& request_;
  const Schedule& compute_;
  IncumbentSeconds incumbent_;
  CutMemo& memo_;
  bool cuts_once_ = true;
  bool is_far_ = false;  ///< From what there is to beat: no cuts make up for that.
  std::optional<SegmentCosts> unlimited_, within_;
  std::set<std::pair<Cuts, Cuts>> seen_;  ///< As if there were room, and within the devices.
  std::optional<JobPlan> best_;
  std::exception_ptr reason_;
};

}  // namespace

JobPlan quickest(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute,
                 const IncumbentSeconds& incumbent, CutMemo& memo) {
  if (partitioner.reading != Reading::kOurs || asked.cut_effort == CutEffort::kExact)
    return with_memory_reduction(asked, partitioner, compute, incumbent, memo);
  StepChoice choice(asked, compute, incumbent, memo);
  choice.begin_with(partitioner);
  if (asked.link.latency_seconds > 0.0 || asked.link.bytes_per_second < kNoLink)
    choice.consider(kMessageCuts);
  const std::uint64_t passes = std::uint64_t{compute.stages} * compute.all_micro_batches();
  if (asked.cut_effort == CutEffort::kAll && passes <= kMostPasses)
    for (const Partitioner& other : partitioners().subspan(1)) choice.consider(other);
  const bool shares_ranks = compute.stages > compute.rank_count();
  if (asked.cut_effort == CutEffort::kAll && shares_ranks && asked.device_memory != kNoLimit &&
      passes <= kMostPassesForLess)
    for (const std::uint64_t percent : {90U, 80U, 70U, 60U})
      for (const Partitioner& other : partitioners()) choice.consider_for(percent, other);
  return choice.best();
}

}  // namespace spillway::planner
