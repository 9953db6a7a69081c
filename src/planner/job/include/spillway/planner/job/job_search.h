#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// One choice with its figures, or the reason why it is none.
struct JobAttempt {
  std::string partitioner;
  std::string schedule;
  std::uint32_t data_parallel = 1;
  std::string variant{};            ///< What the schedule leaves open, as `to_string` says it.
  std::uint32_t micro_batches = 1;  ///< Of all data-parallel replicas.
  JobChoice choice{};               ///< What was tried.
  std::string refusal{};            ///< Empty: it works, and the figures below hold.
  /// Where it is refused for want of memory: what the fullest rank lacks under the cuts that hold
  /// least, or as planned.
  Bytes missing{};
  std::uint32_t fullest_rank = 0;
  double step_seconds = 0.0;  ///< Where it is deferred, as if there were room for all.
  double bubble = 0.0;
  double exposed_communication_seconds = 0.0;
  double gap = 0.0;
  double seconds_per_micro_batch = 0.0;  ///< Of the slowest stage.
  Bytes peak{};
  bool reduces_memory = false;  ///< Stashes are swapped or recomputed.
  std::string not_tried{};      ///< As of `JobPlan`.
  /// To do for those who run it: data-parallel replicas, replicas, stages, actions of all ranks.
  std::array<std::uint64_t, 4> work{};
  bool is_pruned = false;    ///< Refused with TooSlowError.
  bool is_deferred = false;  ///< Refused with PutOffError.

  bool is_possible() const { return refusal.empty(); }
  bool is_given_up() const { return is_pruned || is_deferred; }
};

/// The figures of a plan; its choice says all that was left open.
JobAttempt figures_of(const JobPlan& plan);

/// Whether it works and the other one does not, or it is faster, or as fast in less memory, or as
/// fast and small with less to do: fewer data-parallel replicas, replicas, stages, actions, in this
/// order.
bool is_better(const JobAttempt& attempt, const JobAttempt& other);

/// Of each schedule, in the order of their first attempts, the index of the best attempt, of equals
/// the first; or of the first one, where none works.
std::vector<std::size_t> best_of_each(std::span<const JobAttempt> attempts);

/// What was tried of all choices, and what was not.
struct JobTrials {
  std::vector<JobAttempt> attempts;  ///< In the order in which they were made.
  std::uint32_t pruned = 0;          ///< Left out or given up as slower.
  std::uint32_t skipped = 0;         ///< Were not looked at: it would take too long with them.
};

/// The same with the plan that came of it.
struct JobSearch : JobTrials {
  JobPlan plan;
};

/// What a request leaves open: the schedule that it names, or all of them, by name; each on the
/// data-parallel replicas that it names, or on all numbers that divide ranks and micro-batches. As
/// many micro-batches as the batch has where their number is open, and variants as they are usual.
std::vector<JobChoice> job_choices(const JobRequest& request);

/// Tries one choice. Where it works and there is no `best`, or it is better, it takes its place.
JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, std::optional<JobPlan>& best);
/// The same, as one of many.
JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, PlanMemo& memo, std::optional<JobPlan>& best);

/// Makes one choice; of its attempt the schedule, whether it is possible or pruned, and its
/// figures count.
using TryChoice = std::function<JobAttempt(const JobChoice& choice)>;

/// Tries all of `job_choices`, the shortest pipelines first, each with the seconds of its
/// schedule's best attempt to beat, so that the best one of every schedule is found; and, where the
/// schedule is the chooser's, then variants and fewer micro-batches of them that may be faster, in
/// the order of how fast their data-parallel replicas were:
///
/// - slots of 1f1b-capped, and replicas of GEMS: the most for which the devices have room without
///   memory reduction, which is the fastest, found by halving; what is tried on the way counts,
///   too;
/// - stages per rank of interleaved and breadth-first: twice as many as long as it helps;
/// - a single owner for GEMS; parked weights for all that have two stages on a rank, where these
///   needed memory reduction, or did not fit;
/// - the three next smaller numbers of micro-batches that divide the batch, each schedule as it was
///   fastest, where their number is open.
///
/// All of these have the best attempt of all to beat. At most 128 of them, with two million passes
/// of micro-batches through stages in all, and as many of the usual ones, as soon as one works.
/// What was deferred on the way comes at the end, the 40 likeliest in full, unless it cannot be
/// faster by its `pipeline_bound`.
JobTrials try_choices(const JobRequest& request, const TryChoice& attempt);

/// Is told of a choice.
using ShowChoice = std::function<void(const JobChoice& choice)>;

/// The fastest plan of all choices that fits; of equals as `try_choice`. Throws what the only
/// choice throws. Where none of several works, a PlanError with the one that lacks least memory,
/// where and how much, and devices with which it works if these are found; or with the commonest
/// reason. Several choices are looked at as `kFirstLook` says, the likeliest with all cuts then,
/// and the best one once more, by `with_thorough_look`. `show` is told each choice before it is
/// tried.
JobSearch search_job(const JobRequest& request, const ShowChoice& show = {});

/// Of the cuts of each choice, where there are several.
inline constexpr CutEffort kFirstLook = CutEffort::kMessages;

/// A plan made again, with the order of its branches looked at as thoroughly as `kThoroughOrder`,
/// and all cuts; nothing where the plan of this request has these already.
std::optional<JobPlan> with_thorough_look(const JobRequest& request, const Partitioner& partitioner,
                                          const JobPlan& plan);

}  // namespace spillway::planner
