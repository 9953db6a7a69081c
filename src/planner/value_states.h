#pragma once

#include <algorithm>
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

/// Which pages have their copy in the near one of two tiers, and how full that is. A value's copies
/// in the near tier are those of its last pages, since these leave first; before them come those in
/// the far one.
class NearCopies {
 public:
  /// Keeps a reference to the tape.
  NearCopies(const StepTape& tape, std::size_t values, std::uint32_t capacity)
      : tape_(tape), places_(values), capacity_(capacity) {}

  std::uint32_t used() const { return used_; }
  /// Pages of a value with a copy in the near tier.
  std::uint32_t pages(ValueIndex value) const { return places_[value].pages; }
  /// Where its next pages go.
  bool goes_far(ValueIndex value) const { return places_[value].goes_far; }

  /// A value begins the first repetition with the pages of this swap out.
  void enter(ValueIndex value, const PlannedSwap& swap);
  /// Says where the next pages of a value go, unless some are on their way. Before pages that are
  /// in the far tier none go to the near one.
  void aim(ValueIndex value, const Residency& state, const PlannedSwap& swap);
  /// For what leaves without a plan.
  void aim_near(ValueIndex value, const Residency& state);
  /// Pages that may go to the near tier next; none: from now on it goes far.
  std::uint32_t room_for(ValueIndex value, std::vector<Residency>& values);

  /// A transfer takes its place, and gives up what of it has not become a copy.
  void reserve(std::uint32_t pages) { used_ += pages; }
  void release(std::uint32_t pages) { used_ -= pages; }
  void add(ValueIndex value, std::uint32_t pages) { places_[value].pages += pages; }

  /// All its pages are back: copies that no swap needs may be dropped when room is asked for.
  void note_back(ValueIndex value) {
    if (!places_[value].keeps_copy && places_[value].pages > 0) spent_.push_back(value);
  }
  void forget(ValueIndex value) {
    used_ -= places_[value].pages;
    places_[value] = {};
  }
  /// The step begins again; what does not live on must have been forgotten.
  void rename();

  /// On which the next repetition depends.
  void add_state(std::vector<std::uint64_t>& state) const;

 private:
  // Of a value that may go to the near tier as a whole.
  static constexpr std::uint32_t kWhole = static_cast<std::uint32_t>(-1);

  struct Place {
    std::uint32_t pages = 0;            ///< With a copy in the near tier.
    std::uint32_t most_pages = kWhole;  ///< That go there; those before them go far.
    bool goes_far = false;              ///< What leaves next.
    bool keeps_copy = true;  ///< False: nothing needs the copies once all pages are back.
  };

  static std::uint32_t most_near(const PlannedSwap& swap) {
    return swap.far_pages == 0 ? kWhole : swap.pages - std::min(swap.pages, swap.far_pages);
  }
  void aim(ValueIndex value, const Residency& state, std::uint32_t most_pages, bool keeps_copy);
  void drop_spent(std::vector<Residency>& values);

  const StepTape& tape_;
  std::vector<Place> places_;
  std::vector<ValueIndex> spent_;  ///< Holds all whose copies may be dropped.
  std::uint32_t capacity_;
  std::uint32_t used_ = 0;
};

}  // namespace spillway::planner
