#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/schedule/schedule.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway {

/// Peak of the stash in bytes by rank, by counting. `stash` is per stage, for one micro-batch.
inline std::vector<Bytes> stash_peaks(const schedule::Schedule& schedule,
                                      std::span<const Bytes> stash,
                                      const schedule::StashShares& shares = {}) {
  schedule::StashWalk walk(schedule, shares);
  std::vector<Bytes> peaks;
  for (const auto& actions : schedule.ranks) {
    double now = 0.0;
    double peak = 0.0;
    for (const schedule::Action& action : actions) {
      const schedule::StashEffect effect = walk.apply(action);
      const auto size = static_cast<double>(stash[action.stage].count());
      peak = std::max(peak, now += effect.taken * size);
      now -= effect.returned * size;
    }
    peaks.emplace_back(static_cast<std::uint64_t>(std::llround(peak)));
  }
  return peaks;
}

}  // namespace spillway
