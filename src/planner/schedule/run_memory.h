#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// What each rank holds while a schedule runs. In doubles: exact for whole bytes, and shares of
/// stashes come back as they went.
class RunMemory {
 public:
  explicit RunMemory(std::size_t ranks) : ranks_(ranks) {}

  /// Held from the begin on.
  void place(std::uint32_t rank, double bytes) { ranks_[rank].bytes += bytes; }

  void change(std::uint32_t rank, double seconds, double stashes, double bytes) {
    Held& held = ranks_[rank];
    held.stashes += stashes;
    held.bytes += bytes;
    held.peak_stashes = std::max(held.peak_stashes, held.stashes);
    held.peak_bytes = std::max(held.peak_bytes, held.bytes);
    if (stashes == 0.0 && bytes == 0.0) return;
    const MemoryMoment moment{seconds, held.stashes, rounded(held.bytes)};
    if (!held.curve.empty() && held.curve.back().seconds == seconds)
      held.curve.back() = moment;
    else
      held.curve.push_back(moment);
  }

  double bytes(std::uint32_t rank) const { return ranks_[rank].bytes; }

  void report(std::uint32_t rank, RankTiming& timing) {
    timing.peak_memory = rounded(std::max(ranks_[rank].peak_bytes, ranks_[rank].bytes));
    timing.peak_stashes = ranks_[rank].peak_stashes;
    timing.memory = std::move(ranks_[rank].curve);
  }

 private:
  struct Held {
    double stashes = 0.0;
    double bytes = 0.0;
    double peak_stashes = 0.0;
    double peak_bytes = 0.0;
    std::vector<MemoryMoment> curve;
  };

  static Bytes rounded(double bytes) {
    constexpr double kMost = 9e18;  // Beyond, nothing fits anyway, and rounding is undefined.
    return Bytes(static_cast<std::uint64_t>(std::llround(std::clamp(bytes, 0.0, kMost))));
  }

  std::vector<Held> ranks_;
};

}  // namespace spillway::planner
