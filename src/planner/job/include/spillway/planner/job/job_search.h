#pragma once

#include <string>
#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// A schedule on so many groups.
struct JobChoice {
  const ScheduleGenerator* generator = nullptr;
  std::uint32_t groups = 1;
};

/// One choice with its figures, or the reason why it is none.
struct JobAttempt {
  std::string partitioner;
  std::string schedule;
  std::uint32_t groups = 1;
  std::string refusal{};  ///< Empty: it works, and the rest holds.
  double step_seconds = 0.0;
  double bubble = 0.0;
  double exposed_communication_seconds = 0.0;
  double gap = 0.0;
  double seconds_per_micro_batch = 0.0;  ///< Of the slowest stage.
  Bytes peak{};

  bool is_possible() const { return refusal.empty(); }
};

struct JobSearch {
  JobPlan plan;
  std::vector<JobAttempt> attempts;  ///< All, in the order in which they were made.
};

/// What a request leaves open: the schedule that it names, or all of them, by name; each on the
/// groups that it names, or on all numbers that divide ranks and micro-batches.
std::vector<JobChoice> job_choices(const JobRequest& request);

/// Whether some update happens while micro-batches are in flight, which makes other results than
/// training without a pipeline. The chooser leaves such schedules to those who name them.
bool changes_results(const Schedule& schedule);

/// Tries one choice. Where it works and is faster than `best`, or as fast in less memory, it takes
/// its place.
JobAttempt try_choice(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, JobPlan& best, bool& has_best);

/// The fastest plan of all choices that fits; the first one of equals. Throws what the only choice
/// throws, or a PlanError with the reason of the first where none of several works.
JobSearch search_job(const JobRequest& request);

}  // namespace spillway::planner
