#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner_schedule {

/// Bytes that each rank holds while a schedule runs. In doubles: exact for whole bytes, and shares
/// of stashes come back as they went.
class RunMemory {
 public:
  /// Of the first `traced` ranks with all changes.
  RunMemory(std::size_t ranks, std::size_t traced) : ranks_(ranks), traced_(traced) {}

  /// Bytes that a rank holds from the begin on.
  struct Placed {
    double bytes = 0.0;
    double gradients = 0.0;  ///< Of these. The rest is weights.
    double optimizer_states = 0.0;
  };

  /// Once for each rank, before anything changes.
  void place(std::uint32_t rank, const Placed& placed) {
    Held& held = ranks_[rank];
    held.placed = placed;
    held.bytes = held.peak_bytes = placed.bytes;
    held.weights = held.peak_weights = placed.bytes - placed.gradients - placed.optimizer_states;
    if (rank < traced_) held.curve.push_back({0.0, 0.0, rounded(held.bytes)});
  }

  void change_weights(std::uint32_t rank, double seconds, double bytes) {
    ranks_[rank].weights += bytes;
    change(rank, seconds, 0.0, bytes);
  }

  /// Changes what a rank holds by what an optimizer takes while it runs.
  void change_update(std::uint32_t rank, double seconds, double bytes) {
    ranks_[rank].update += bytes;
    change(rank, seconds, 0.0, bytes);
  }

  void change(std::uint32_t rank, double seconds, double stashes, double bytes) {
    Held& held = ranks_[rank];
    held.stashes += stashes;
    held.bytes += bytes;
    held.peak_stashes = std::max(held.peak_stashes, held.stashes);
    if (held.bytes > held.peak_bytes) {
      held.peak_bytes = held.bytes;
      held.peak_weights = held.weights;
      held.peak_update = held.update;
    }
    if (rank >= traced_ || (stashes == 0.0 && bytes == 0.0)) return;
    const MemoryMoment moment{seconds, held.stashes, rounded(held.bytes)};
    if (held.curve.back().seconds == seconds)
      held.curve.back() = moment;
    else
      held.curve.push_back(moment);
  }

  double bytes(std::uint32_t rank) const { return ranks_[rank].bytes; }

  void report(std::uint32_t rank, RankTiming& timing) {
    Held& held = ranks_[rank];
    timing.at_begin = rounded(held.placed.bytes);
    timing.peak_memory = rounded(held.peak_bytes);
    timing.peak_weights = rounded(held.peak_weights);
    timing.peak_update = rounded(held.peak_update);
    timing.gradients = rounded(held.placed.gradients);
    timing.optimizer_states = rounded(held.placed.optimizer_states);
    timing.peak_stashes = held.peak_stashes;
    timing.memory = std::move(held.curve);
  }

 private:
  struct Held {
    Placed placed;
    double stashes = 0.0;
    double bytes = 0.0;
    double weights = 0.0;
    double update = 0.0;
    double peak_stashes = 0.0;
    double peak_bytes = 0.0;
    double peak_weights = 0.0;
    double peak_update = 0.0;
    std::vector<MemoryMoment> curve;
  };

  static Bytes rounded(double bytes) {
    constexpr double kMost = 9e18;  // Beyond, nothing fits anyway, and rounding is undefined.
    return Bytes(static_cast<std::uint64_t>(std::llround(std::clamp(bytes, 0.0, kMost))));
  }

  std::vector<Held> ranks_;
  std::size_t traced_;
};

}  // namespace spillway::planner_schedule
