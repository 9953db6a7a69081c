#pragma once

#include <functional>
#include <optional>

#include "spillway/planner/job/candidate_list.h"

namespace spillway::job {

/// Candidates that were tried, with the best plan.
struct JobSearch : JobTrials {
  JobPlan plan;
};

/// Receives each candidate before it is tried on devices with so much memory: on those that were
/// asked for, and where nothing fits on larger ones.
using ShowChoice = std::function<void(const JobChoice& choice, Bytes device_memory)>;

/// Finds the best plan (`is_better`) of all candidates (`CandidateList`), and looks at it again
/// (`thorough_request`).
///
/// Each candidate is looked at under `useful_cuts` at most.
/// Refused as the candidate is, where there is one. Where none of several has a plan, the refusal
/// tells of the one that lacks the least memory, its rank and the missing bytes, and devices that
/// would do where some are found; else the most frequent reason.
OrRefusal<JobSearch> search_job(const JobRequest& request, const ShowChoice& show = {});

/// The cuts that are worth a look: the first ones alone where none can fit (`memory_bound`), since
/// others would be looked at in vain; else those of the request, which must have been checked.
CutEffort useful_cuts(const JobRequest& request);

/// What to plan the best plan again for: an order of branches searched up to `kThoroughOrder`, and
/// the cuts of all partitioners; nothing where it was made so.
std::optional<JobRequest> thorough_request(const JobRequest& request,
                                           const partition::Partitioner& partitioner,
                                           const JobPlan& plan);

/// Takes the plan that came of `thorough_request` and returns whether it did so: not where its step
/// takes longer than that of the best plan, both in seconds, on a machine or on links of their own;
/// nor where it has none. The best plan still learns by how much its order is slower than the best
/// one at most.
bool take_again(JobPlan again, std::optional<double> new_seconds, double seconds,
                JobSearch& search);

}  // namespace spillway::job
