#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace spillway::planner_schedule {

/// Which ranks a search in ticks looks at: those for which something has changed in the tick
/// before. The others would find what they found then, so all ticks together take as long as there
/// are changes, not ticks times ranks.
class AwakeRanks {
 public:
  /// All are awake in the first tick.
  explicit AwakeRanks(std::uint32_t ranks) : next_(ranks), is_awake_(ranks, true) {
    std::iota(next_.begin(), next_.end(), 0U);
  }

  /// Lets a rank have its turn in the next tick: one turn, however often this is called.
  void wake(std::uint32_t rank) {
    if (is_awake_[rank]) return;
    is_awake_[rank] = true;
    next_.push_back(rank);
  }

  /// Those of the tick that begins, in no order, until it is called again.
  const std::vector<std::uint32_t>& begin_tick() {
    now_.swap(next_);
    next_.clear();
    for (const std::uint32_t rank : now_) is_awake_[rank] = false;
    visits_ += now_.size();
    return now_;
  }

  /// How many ranks all ticks have had together.
  std::uint64_t visits() const { return visits_; }

 private:
  std::vector<std::uint32_t> now_;
  std::vector<std::uint32_t> next_;
  std::vector<bool> is_awake_;  // In the next tick.
  std::uint64_t visits_ = 0;
};

}  // namespace spillway::planner_schedule
