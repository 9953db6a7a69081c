#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Where the pages of a value are, for the event model.
struct Residency {
  std::uint32_t present = 0;    ///< The first pages of the value are resident.
  std::uint32_t dirty = 0;      ///< The first pages have no valid copy in a store.
  std::uint32_t leaving = 0;    ///< Pages still to be written before they leave.
  std::uint32_t coming = 0;     ///< Pages still to be read, the chunk in flight included.
  std::uint64_t next_use = 0;   ///< Operator count; kDiesUnused and the like as they are.
  std::uint64_t pinned_at = 0;  ///< Operator count plus one.
};

/// The value to evict when memory is full and nothing is in flight that could help: the one needed
/// last, what dies unused at the end. From the first time on that it is asked, every value whose
/// next use or presence changes is entered anew; what an older entry says no longer holds.
class Victims {
 public:
  void clear() { is_filled_ = false; }

  void enter(ValueIndex value, const Residency& state) {
    if (is_filled_ && state.present > 0) heap_.push({score(state), value});
  }

  /// None when all that is resident is pinned at this moment (`Residency::pinned_at`).
  ValueIndex find(const std::vector<Residency>& values, std::uint64_t pinned_at) {
    if (!is_filled_) fill(values);
    std::vector<Victim> pinned;
    ValueIndex victim = profile::kNoValue;
    while (!heap_.empty() && victim == profile::kNoValue) {
      const Victim top = heap_.top();
      const Residency& state = values[top.value];
      const bool is_current = state.present > 0 && top.score == score(state);
      if (is_current && state.pinned_at != pinned_at) {
        victim = top.value;
        break;
      }
      if (is_current) pinned.push_back(top);
      heap_.pop();
    }
    for (const Victim& waiting : pinned) heap_.push(waiting);
    return victim;
  }

 private:
  struct Victim {
    std::uint64_t score = 0;  ///< The highest leaves first.
    ValueIndex value = 0;
    bool operator<(const Victim& other) const {
      return score != other.score ? score < other.score : value > other.value;
    }
  };

  static std::uint64_t score(const Residency& state) {
    if (state.next_use == kDiesUnused) return 1;
    return state.next_use == kStaysUnused ? ~std::uint64_t{0} : state.next_use + 2;
  }

  void fill(const std::vector<Residency>& values) {
    is_filled_ = true;
    heap_ = {};
    for (ValueIndex i = 0; i < values.size(); ++i) enter(i, values[i]);
  }

  bool is_filled_ = false;
  std::priority_queue<Victim> heap_;
};

}  // namespace spillway::planner
