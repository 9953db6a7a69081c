#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::job {

/// Compared number by number.
struct PlanSize {
  std::uint64_t data_parallel = 0;  ///< Replicas.
  std::uint64_t replicas = 0;       ///< Of the schedule.
  std::uint64_t stages = 0;
  std::uint64_t actions = 0;  ///< Of all ranks of a pipeline.

  auto operator<=>(const PlanSize&) const = default;
};

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
  PlanSize size{};
  bool is_pruned = false;    ///< Refused with `kPruned`.
  bool is_deferred = false;  ///< Refused with `kDeferred`.

  bool is_possible() const { return refusal.empty(); }
  bool is_given_up() const { return is_pruned || is_deferred; }
};

/// The figures of a plan, with a choice that leaves nothing open.
JobAttempt figures_of(const JobPlan& plan);

/// The figures of what `plan_choice` has made of a candidate, or the reason why it has no plan.
JobAttempt attempt_of(const JobRequest& request, const partition::Partitioner& partitioner,
                      const JobChoice& choice, const OrRefusal<JobPlan>& plan);

/// Whether `attempt` is better than `other`: it has a plan and the other has none; else it is
/// faster, else smaller in memory, else of smaller `size`.
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

/// Default candidates of a request: the schedule that it names, else all of them by name; each with
/// the named number of data-parallel replicas, else with all that divide ranks and micro-batches.
/// Open numbers of micro-batches are those of the batch; options of schedules are the defaults.
std::vector<JobChoice> job_choices(const JobRequest& request);

/// The candidates of a request in the order in which they are tried: whoever plans them asks for
/// the next one and adds what has become of it, as often as there is one.
///
///     while (const auto choice = candidates.next()) candidates.add(evaluate(*choice));
///
/// First all of `job_choices`, the shortest pipelines first. The incumbent of each is the best
/// attempt of the same schedule, so the result has the best plan of every schedule. Where the
/// schedule is open, these follow, with the best attempt of all as incumbent:
///
/// - variants, for those numbers of data-parallel replicas first that were fastest. Slots of
///   1f1b-capped and replicas of GEMS: the largest number that fits without memory reduction, which
///   is the fastest one, found by halving; attempts on the way count, too. Stages per rank of
///   interleaved and breadth-first: doubled as long as that is faster. A single owner for GEMS, and
///   parked weights for all schedules with two stages on a rank that had to reduce memory or did
///   not fit;
/// - the three next smaller numbers of micro-batches that divide the batch, where that is open,
///   each schedule with its fastest options;
/// - deferred candidates, those with the smallest step times first;
/// - where the request has the cuts of all partitioners tried, the likeliest candidates under them:
///   one that was slower than the best plan, or had no room, may win by these. Only what wins is
///   kept.
///
/// `search_limits.h` has the limits of each phase, and `pipeline_bound` prunes.
class CandidateList {
 public:
  /// The request must outlive it.
  explicit CandidateList(const JobRequest& request);

  /// The next candidate, with the incumbent that it has to beat and the cuts that it sees.
  std::optional<JobChoice> next();
  /// Adds the attempt at the candidate that was given last. True: it is the best one so far.
  bool add(JobAttempt made);
  /// What was tried, when it is over.
  JobTrials take() { return std::move(trials_); }

 private:
  enum class Phase : std::uint8_t {
    kDefaults,
    kVariants,
    kFewerMicroBatches,
    kDeferred,
    kAllCuts,
    kOver
  };

  /// Candidates that differ in one option, of which one says which is next; or a single one.
  struct Walk {
    JobChoice choice{};
    std::uint32_t JobVariant::*option = nullptr;
    std::vector<std::uint32_t> values{0};  ///< Of the option.
    /// Values are in the order of the memory that they take, and the last one that needs no memory
    /// reduction is looked for. Else they go on as long as they are faster than `before`.
    bool halves = false;
    double before = kNoTime;
    std::size_t first = 0, at = 0, end = 1;  ///< What is still open of the values.
    JobAttempt attempt{};                    ///< kAllCuts: what the first cuts gave.
  };

  /// Work that a phase may still do.
  struct Allowance {
    std::uint64_t left = 0;
    bool spend(std::uint64_t passes) {
      if (passes > left) return false;
      left -= passes;
      return true;
    }
  };

  double best_seconds() const;
  double best_seconds_of(const planner_schedule::ScheduleGenerator& generator) const;
  const JobAttempt* known(const JobChoice& choice) const;
  bool is_deferred(const JobChoice& choice) const;
  bool may_be_best(const JobChoice& choice) const;
  std::vector<std::uint32_t> data_parallel_by_time() const;

  void begin(Phase phase);
  void add_walk(JobChoice choice, std::uint32_t JobVariant::*option,
                std::vector<std::uint32_t> values);
  void add_variants(std::uint32_t data_parallel);
  void add_chunks(JobChoice choice, std::uint32_t ranks);
  void add_replicas(JobChoice choice);
  void add_second_copies(std::uint32_t data_parallel);
  void add_parked(std::uint32_t data_parallel);
  void add_fewer_micro_batches();

  bool admits_default();
  bool admits_variant();
  bool admits_deferred();
  bool admits_all_cuts();
  // False both, which is what is told of the candidate.
  bool leave_out(std::uint32_t& counter, bool is_slow = false);
  bool go_on(const JobAttempt* made, bool is_slow = false);

  const JobRequest& request_;
  Phase phase_ = Phase::kDefaults;
  std::deque<Walk> walks_;  ///< What is left of the phase.
  JobChoice choice_;        ///< The candidate that was given last.
  JobTrials trials_;
  std::optional<std::size_t> best_;                     ///< The best one of the attempts.
  std::vector<std::pair<double, JobChoice>> deferred_;  ///< By the step with unlimited memory.
  Allowance defaults_, variants_, variant_passes_, last_, passes_again_;
};

}  // namespace spillway::job
