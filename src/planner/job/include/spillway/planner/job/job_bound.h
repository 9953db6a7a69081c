#pragma once

#include "spillway/planner/job/job_plan.h"

namespace spillway::job {

/// Seconds of a step that no cuts beat with this schedule on so many data-parallel replicas,
/// whatever memory and links: see src/planner/job/search.md for what it counts, and why that is
/// true. Throws what `request_for` throws, and ConfigError for a variant that the schedule does not
/// leave open.
double pipeline_bound(const JobRequest& request, const JobChoice& choice);

/// Seconds of a step that no plan for the request beats: the bound of the schedule that it names,
/// else what holds for every schedule, on the data-parallel replicas that it names or on the best
/// ones. Where micro-batches are open, it holds for any number of them.
double job_bound(const JobRequest& request);

/// Bytes that some rank of any plan for the request holds at its peak, however much is swapped and
/// recomputed: its most demanding layer, or an even share of all that no action moves away. Devices
/// with less have no plan; those with more need not have one.
Bytes memory_bound(const JobRequest& request);

/// What of it the rank of the largest layer needs for that layer, on however many ranks.
Bytes layer_memory_bound(const JobRequest& request);

}  // namespace spillway::job
