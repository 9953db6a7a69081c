#pragma once

#include <vector>

#include "spillway/planner/job/job_search.h"

namespace spillway::planner {

/// The attempts of a search, and what they say of each other.
class TrialRecord {
 public:
  void add(const JobChoice& choice, JobAttempt made);
  std::vector<JobAttempt> take() { return std::move(attempts_); }

  /// The step of the best plan; infinite before there is one.
  double best_seconds() const { return best_seconds_; }
  double best_seconds_of(const ScheduleGenerator& generator) const;
  /// The attempt as it was made before, or nothing. Until the next one is added.
  const JobAttempt* known(const JobChoice& choice) const;
  /// Of each schedule the choice that was fastest; the fastest schedule first.
  std::vector<JobChoice> fastest_of_each() const;
  /// The numbers of data-parallel replicas, those of the fastest attempt first.
  std::vector<std::uint32_t> data_parallel_by_time() const;

 private:
  std::vector<JobAttempt> attempts_;
  std::vector<JobChoice> choices_;  ///< By attempt.
  double best_seconds_ = kNoTime;
};

}  // namespace spillway::planner
