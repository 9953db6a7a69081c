#include "spillway/planner/schedule/rank_factors.h"

#include <algorithm>
#include <cmath>

#include "parameter_places.h"
#include "spillway/base/error.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"
#include "version_count.h"

namespace spillway::planner {
namespace {

/// Peak of a sum of what stages hold, by rank, and by stage on its own. `unit` is per stage.
struct Peaks {
  std::vector<double> by_rank;
  std::vector<double> by_stage;
};

Peaks peaks_of(const Schedule& schedule, const StashShares& shares,
               const std::vector<double>& unit) {
  check_shape(schedule);
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
      const double size = unit[action.stage];
      now += effect.taken * size;
      held[action.stage] += effect.taken * size;
      peak = std::max(peak, now);
      peaks.by_stage[action.stage] = std::max(peaks.by_stage[action.stage], held[action.stage]);
      now -= effect.returned * size;
      held[action.stage] -= effect.returned * size;
    }
    peaks.by_rank.push_back(peak);
  }
  return peaks;
}

/// The most copies that each rank holds, older versions included.
std::vector<double> weight_peaks(const Schedule& schedule) {
  const WeightCopies copies(schedule);
  const VersionCount versions = count_versions(schedule, copies);
  std::vector<bool> is_resident = resident_at_start(schedule, copies);
  std::vector<std::int64_t> held(schedule.ranks.size(), 0);
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy)
    if (!is_resident[copy]) --held[copies[copy].rank];
  std::vector<double> peaks;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    std::int64_t now = held[rank];
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const int moved = move_weights(actions[i], copies.at(rank, actions[i].stage), is_resident);
      now += versions.changes[rank][i] + std::max(moved, 0);
      peak = std::max(peak, now);
      now += std::min(moved, 0);
    }
    peaks.push_back(static_cast<double>(peak));
  }
  return peaks;
}

}  // namespace

std::vector<RankFactors> rank_factors(const Schedule& schedule, const StashShares& shares) {
  check_shape(schedule);
  const double stages_per_rank =
      static_cast<double>(schedule.stages) / static_cast<double>(schedule.ranks.size());
  const Peaks peaks = peaks_of(schedule, shares, std::vector<double>(schedule.stages, 1.0));
  const std::vector<double> weights = weight_peaks(schedule);
  std::vector<RankFactors> factors;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    factors.push_back({peaks.by_rank[rank] / stages_per_rank, weights[rank] / stages_per_rank});
  return factors;
}

std::vector<RankFactors> stage_factors(const Schedule& schedule, const StashShares& shares) {
  const Peaks peaks = peaks_of(schedule, shares, std::vector<double>(schedule.stages, 1.0));
  const WeightCopies copies(schedule);
  const VersionCount versions = count_versions(schedule, copies);
  std::vector<RankFactors> factors(schedule.stages);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    factors[stage].in_flight = peaks.by_stage[stage];
    for (const std::uint32_t rank : copies.holders(stage))
      factors[stage].weight_versions += versions.peaks[copies.at(rank, stage)];
  }
  return factors;
}

std::vector<Bytes> stash_peaks(const Schedule& schedule, std::span<const Bytes> stash,
                               const StashShares& shares) {
  if (stash.size() != schedule.stages)
    throw PlanError("there are {} sizes of stashes for {} stages", stash.size(), schedule.stages);
  std::vector<double> unit;
  for (const Bytes size : stash) unit.push_back(static_cast<double>(size.count()));
  std::vector<Bytes> peaks;
  for (const double peak : peaks_of(schedule, shares, unit).by_rank)
    peaks.emplace_back(static_cast<std::uint64_t>(std::llround(peak)));
  return peaks;
}

}  // namespace spillway::planner
