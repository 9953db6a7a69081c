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

/// A candidate with its figures, or with the reason why it has no plan.
struct JobAttempt {
  std::string partitioner;
  std::string schedule;
  std::uint32_t data_parallel = 1;
  std::string variant{};            ///< Options of the schedule, as `to_string` writes them.
  std::uint32_t micro_batches = 1;  ///< Micro-batches of all data-parallel replicas.
  JobChoice choice{};               ///< The candidate.
  std::string refusal{};            ///< Why there is no plan. Empty: the figures below hold.
  /// Where memory is the reason: bytes that the fullest rank lacks, under the plan or under the
  /// cuts with the smallest peak.
  Bytes missing{};
  std::uint32_t fullest_rank = 0;
  double step_seconds = 0.0;  ///< Of a deferred candidate: with unlimited memory.
  double bubble = 0.0;
  double exposed_communication_seconds = 0.0;
  double gap = 0.0;
  double seconds_per_micro_batch = 0.0;  ///< Seconds of the slowest stage.
  Bytes peak{};
  bool reduces_memory = false;  ///< Stashes are swapped or recomputed.
  std::string not_tried{};      ///< As in `JobPlan`.
  /// Sizes of the plan: data-parallel replicas, schedule replicas, stages, actions of all ranks.
  std::array<std::uint64_t, 4> work{};
  bool is_pruned = false;    ///< Refused with `kPruned`.
  bool is_deferred = false;  ///< Refused with `kDeferred`.

  bool is_possible() const { return refusal.empty(); }
  bool is_given_up() const { return is_pruned || is_deferred; }
};

/// The figures of a plan, with a choice that leaves nothing open.
JobAttempt figures_of(const JobPlan& plan);

/// Whether `attempt` is better than `other`: it has a plan and the other has none; else it is
/// faster, else smaller in memory, else smaller in `work`, compared number by number.
bool is_better(const JobAttempt& attempt, const JobAttempt& other);

/// Indices of the best attempt of each schedule, or of its first attempt where none has a plan, in
/// the order in which the schedules come first.
std::vector<std::size_t> best_of_each(std::span<const JobAttempt> attempts);

/// Candidates that were tried, and the numbers of those that were not.
struct JobTrials {
  std::vector<JobAttempt> attempts;  ///< In the order in which they were made.
  std::uint32_t pruned = 0;          ///< Candidates that cannot be faster.
  std::uint32_t skipped = 0;         ///< Candidates beyond the limits of the search.
};

/// The same with the best plan.
struct JobSearch : JobTrials {
  JobPlan plan;
};

/// Candidates of a request: the schedule that it names, else all of them by name; each with the
/// named number of data-parallel replicas, else with all that divide ranks and micro-batches. Open
/// numbers of micro-batches are those of the batch; options of schedules are the defaults.
std::vector<JobChoice> job_choices(const JobRequest& request);

/// Plans one candidate. The plan moves to `best` where that is empty or worse.
JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, std::optional<JobPlan>& best);
/// The same for one of many candidates, which share `memo`.
JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, PlanMemo& memo, std::optional<JobPlan>& best);

/// Plans one candidate. `try_choices` reads of the attempt its schedule, its figures, and whether
/// it is possible or pruned.
using TryChoice = std::function<JobAttempt(const JobChoice& choice)>;

/// Tries all of `job_choices`, the shortest pipelines first. The incumbent of each is the best
/// attempt of the same schedule, so the result has the best plan of every schedule. Where the
/// schedule is open, these variants follow, with the best attempt of all as incumbent, and those
/// numbers of data-parallel replicas first that were fastest:
///
/// - slots of 1f1b-capped and replicas of GEMS: the largest number that fits without memory
///   reduction, which is the fastest one, found by halving; attempts on the way count, too;
/// - stages per rank of interleaved and breadth-first: doubled as long as that is faster;
/// - a single owner for GEMS, and parked weights for all schedules with two stages on a rank that
///   had to reduce memory or did not fit;
/// - the three next smaller numbers of micro-batches that divide the batch, where that is open,
///   each schedule with its fastest options.
///
/// Limits: 128 variants, and two million simulated stage passes of variants in all. After the first
/// plan the default candidates have the same limits. Deferred candidates come at the end: the 40 of
/// the smallest step times are planned in full, unless their `pipeline_bound` prunes them.
JobTrials try_choices(const JobRequest& request, const TryChoice& attempt);

/// Receives each candidate before it is tried.
using ShowChoice = std::function<void(const JobChoice& choice)>;

/// Finds the best plan (`is_better`) of all candidates. Several candidates are planned with
/// `kFirstLook`, the best few with all cuts, and the best plan again by `with_thorough_look`.
///
/// Throws what planning throws where there is one candidate. Where none of several has a plan,
/// throws PlanError with the one that lacks the least memory, its rank and the missing bytes, and
/// with devices that would do where some are found; else with the most frequent reason.
JobSearch search_job(const JobRequest& request, const ShowChoice& show = {});

/// Cuts of each candidate, where there are several.
inline constexpr CutEffort kFirstLook = CutEffort::kMessages;

/// Plans once more with an order of branches searched up to `kThoroughOrder`, and with all cuts;
/// nothing where `plan` was made so.
std::optional<JobPlan> with_thorough_look(const JobRequest& request, const Partitioner& partitioner,
                                          const JobPlan& plan);

}  // namespace spillway::planner
