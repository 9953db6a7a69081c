#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// Which rank holds which stage in any replica.
class PlacedStages {
 public:
  /// The schedule must outlive it, with its placement as it is.
  explicit PlacedStages(const Schedule& schedule) : schedule_(schedule) {}

  bool holds(std::uint32_t rank, std::uint32_t stage) {
    if (schedule_.rank_of(0, stage) == rank) return true;
    if (keys_.empty()) sort_keys();
    return std::binary_search(keys_.begin(), keys_.end(), key_of(rank, stage));
  }

 private:
  static std::uint64_t key_of(std::uint32_t rank, std::uint32_t stage) {
    return std::uint64_t{rank} << 32U | stage;
  }
  /// Only when the first replica does not tell: most schedules never get here.
  void sort_keys() {
    for (const auto& ranks : schedule_.placement)
      for (std::uint32_t stage = 0; stage < schedule_.stages; ++stage)
        keys_.push_back(key_of(ranks[stage], stage));
    std::sort(keys_.begin(), keys_.end());
  }

  const Schedule& schedule_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace spillway::schedule
