#include "spillway/planner/schedule/rank_memory.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "parameter_places.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {
namespace {

/// The most stashes of micro-batches, by rank, and by stage on its own.
struct Peaks {
  std::vector<double> by_rank;
  std::vector<double> by_stage;
};

Peaks peaks_of(const Schedule& schedule, const StashShares& shares) {
  schedule::check_shape(schedule);
  StashWalk walk(schedule, shares);
  Peaks peaks;
  peaks.by_stage.resize(schedule.stages, 0.0);
  std::vector<double> held(schedule.stages);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::fill(held.begin(), held.end(), 0.0);
    double now = 0.0;
    double peak = 0.0;
    for (const Action& action : schedule.ranks[rank]) {
      const StashEffect effect = walk.apply(action);
      if (effect.problem) throw PlanError("rank {}: {}: {}", rank, action, effect.problem);
      // What an action takes and what it gives back are both there while it runs.
      now += effect.taken;
      held[action.stage] += effect.taken;
      peak = std::max(peak, now);
      peaks.by_stage[action.stage] = std::max(peaks.by_stage[action.stage], held[action.stage]);
      now -= effect.returned;
      held[action.stage] -= effect.returned;
    }
    peaks.by_rank.push_back(peak);
  }
  return peaks;
}

/// The most copies that each rank holds, older versions included.
std::vector<double> weight_peaks(const Schedule& schedule) {
  const WeightCopies copies(schedule);
  const VersionCount versions = count_versions(schedule, copies);
  std::vector<bool> is_resident = schedule::resident_at_start(schedule, copies);
  std::vector<std::int64_t> held(schedule.ranks.size(), 0);
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy)
    // Copies that are borrowed, or on the host at first, count from the action that brings them.
    if (!is_resident[copy]) --held[copies[copy].rank];
  std::vector<double> peaks;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    std::int64_t now = held[rank];
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const int moved =
          schedule::move_weights(actions[i], copies.at(rank, actions[i].stage), is_resident);
      // What comes counts before its action and what leaves behind it: at that moment both are
      // there.
      now += versions.changes[rank][i] + std::max(moved, 0);
      peak = std::max(peak, now);
      now += std::min(moved, 0);
    }
    peaks.push_back(static_cast<double>(peak));
  }
  return peaks;
}

}  // namespace

std::vector<HeldCounts> rank_factors(const Schedule& schedule, const StashShares& shares) {
  schedule::check_shape(schedule);
  const double stages_per_rank =
      static_cast<double>(schedule.stages) / static_cast<double>(schedule.ranks.size());
  const Peaks peaks = peaks_of(schedule, shares);
  const std::vector<double> weights = weight_peaks(schedule);
  std::vector<HeldCounts> factors;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    factors.push_back({peaks.by_rank[rank] / stages_per_rank, weights[rank] / stages_per_rank, 0});
  const WeightCopies copies(schedule);
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy)
    factors[copies[copy].rank].state_copies += 1.0 / stages_per_rank;
  return factors;
}

std::vector<HeldCounts> stage_factors(const Schedule& schedule, const StashShares& shares) {
  std::vector<HeldCounts> factors(schedule.stages);
  // Stages of a rank share its memory, and their peaks come at other moments than the rank's.
  if (schedule.stages != schedule.rank_count()) {
    const std::vector<HeldCounts> ranks = rank_factors(schedule, shares);
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      factors[stage] = ranks[schedule.rank_of(0, stage)];
    return factors;
  }
  const Peaks peaks = peaks_of(schedule, shares);
  const WeightCopies copies(schedule);
  const VersionCount versions = count_versions(schedule, copies);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    factors[stage] = {peaks.by_stage[stage], 0.0,
                      static_cast<double>(copies.holders(stage).size())};
    for (const std::uint32_t rank : copies.holders(stage))
      factors[stage].weight_versions += versions.peaks[copies.at(rank, stage)];
  }
  return factors;
}

std::vector<Bytes> stashes_on_host(const Schedule& schedule,
                                   const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank;
  for (const auto& list : schedule.ranks) {
    Bytes now;
    Bytes most;
    for (const Action& action : list) {
      const StageCosts& stage = stages[action.stage];
      // Parts leave piece by piece while the forward runs. The host must have the room from the
      // begin on.
      if (action.kind == ActionKind::kForward) now += stage.swapped;
      if (action.kind == ActionKind::kSwapOut) now += stage.stash;
      // What comes back has its place on the host until it is back.
      most = std::max(most, now);
      if (schedule::makes_input_gradient(action.kind)) now -= stage.swapped;
      if (action.kind == ActionKind::kSwapIn) now -= stage.stash;
    }
    by_rank.push_back(most);
  }
  return by_rank;
}

std::vector<Bytes> weights_on_host(const Schedule& schedule,
                                   const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank;
  for (const auto& list : schedule.ranks) {
    std::set<std::uint32_t> parked;
    for (const Action& action : list)
      // The master stays on the host while the device has the copy, so an unchanged copy can leave
      // without being written.
      if (action.kind == ActionKind::kSwapInWeights) parked.insert(action.stage);
    Bytes& bytes = by_rank.emplace_back();
    for (const std::uint32_t stage : parked) bytes += stages[stage].weights;
  }
  return by_rank;
}

std::vector<Bytes> host_bytes(const Schedule& schedule, const std::vector<StageCosts>& stages) {
  std::vector<Bytes> by_rank = stashes_on_host(schedule, stages);
  const std::vector<Bytes> weights = weights_on_host(schedule, stages);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) by_rank[rank] += weights[rank];
  return by_rank;
}

using schedule::ScheduleFault;

std::optional<ScheduleFault> memory_fault(const Schedule& schedule, const ScheduleCosts& costs,
                                          const std::vector<Bytes>& room) {
  schedule::check_shape(schedule);
  SPILLWAY_ASSERT(room.size() == schedule.ranks.size() && costs.stages.size() == schedule.stages);
  const WeightCopies copies(schedule);
  StashWalk walk(schedule, costs.shares);
  std::vector<double> bytes = ParameterPlaces(schedule, copies, costs.stages).bytes;
  std::vector<bool> is_resident = schedule::resident_at_start(schedule, copies);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const StageCosts& stage = costs.stages[action.stage];
      const StashEffect effect = walk.apply(action);
      // What an action takes and what it gives back are both there while it runs.
      bytes[rank] += effect.taken * count_of(stage.stash);
      const int moved = schedule::move_weights(action, copies.at(rank, action.stage), is_resident);
      if (moved > 0) bytes[rank] += count_of(stage.weights);
      // Shares of stashes make sums of fractions; limits are whole bytes.
      if (bytes[rank] > count_of(room[rank]) + 0.5) {
        const SizesApart sizes =
            sizes_apart(Bytes(static_cast<std::uint64_t>(std::llround(bytes[rank]))), room[rank]);
        return ScheduleFault{
            rank, i, action,
            message("it is the first to need {}, the rank has {}", sizes.first, sizes.second)};
      }
      bytes[rank] -= effect.returned * count_of(stage.stash);
      if (moved < 0) bytes[rank] -= count_of(stage.weights);
    }
  return std::nullopt;
}

}  // namespace spillway::planner_schedule
