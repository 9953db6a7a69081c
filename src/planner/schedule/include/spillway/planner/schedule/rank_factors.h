#pragma once

#include <span>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// Counts that a rank (or a stage) holds, each at its own worst moment of the action list. The two
/// moments need not be the same: with weights in turn on the host, two copies are there while
/// stashes are few.
struct RankFactors {
  /// Stashes of micro-batches alive at once. The unit is one micro-batch through as much of the
  /// model as a rank has of it (1/ranks), or through the stage. Fractional with split backwards.
  double in_flight = 0.0;
  /// Copies of the parameters of such a part of the model, older versions included.
  double weight_versions = 0.0;
};

/// Counts over the list of each rank. Stashes and weights that come or leave count as moved at once
/// where they stand in the action list; `time_schedule` knows how long it takes. Throws PlanError
/// for an action list that holds no valid sequence of actions.
std::vector<RankFactors> rank_factors(const Schedule& schedule, const StashShares& shares = {});

/// Returns the factors of each stage over all replicas: the peak of in_flight on one rank, and the
/// sum of what each copy holds of weight versions at its own worst moment.
std::vector<RankFactors> stage_factors(const Schedule& schedule, const StashShares& shares = {});

/// Peak of the stash in bytes by rank, by counting. `stash` is per stage, for one micro-batch.
std::vector<Bytes> stash_peaks(const Schedule& schedule, std::span<const Bytes> stash,
                               const StashShares& shares = {});

}  // namespace spillway::planner
