#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "spillway/planner/swap_plan.h"
#include "transfer_schedule.h"

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

/// Which pages have their copy in the near one of two tiers, and how full that is. Pages of a value
/// by where their copies are:
///
///                 first                          last
///     copies      [ none: dirty | far       | near  ]
///     presence    [ present              | out      ]
///
/// The last ones leave first, to the near tier as long as they may; those before them go far. So
/// three borders per value tell everything.
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
  void enter(ValueIndex value, const PlannedSwap& swap) {
    forget(value);
    const std::uint32_t most = most_near(swap);
    // The plan does not tell in which state its repetitions settle, so the first one begins with a
    // likely one: near as far as there is room.
    const std::uint32_t pages = std::min({most, swap.pages, capacity_ - used_});
    places_[value] = {pages, most, pages < swap.pages, swap.keeps_copy};
    reserve(pages);
  }

  /// Says where the next pages of a value go, unless some are on their way. Before pages that are
  /// in the far tier none go to the near one.
  void aim(ValueIndex value, const Residency& state, const PlannedSwap& swap) {
    aim(value, state, most_near(swap), swap.keeps_copy);
  }

  /// For what leaves without a plan.
  void aim_near(ValueIndex value, const Residency& state) { aim(value, state, kWhole, true); }

  /// Pages that may go to the near tier next; none: from now on it goes far.
  std::uint32_t room_for(ValueIndex value, std::vector<Residency>& values) {
    // Not before a chunk finds no room: until then a spent copy saves a write if its pages leave
    // again.
    if (capacity_ - used_ < kChunkPages) drop_spent(values);
    Place& place = places_[value];
    const std::uint32_t wanted = place.most_pages - std::min(place.most_pages, place.pages);
    const std::uint32_t room = std::min(wanted, capacity_ - used_);
    // For all pages before it as well, so that a value has one border between its tiers.
    if (room == 0) place.goes_far = true;
    return room;
  }

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
  void rename() {
    const auto renamed = [&](ValueIndex value) {
      const auto& facts = tape_.values[value];
      return facts.death == profile::kSurvives ? facts.becomes : profile::kNoValue;
    };
    // Into new ones: a value may take the number of another that has not been moved yet.
    std::vector<Place> places(places_.size());
    for (ValueIndex i = 0; i < places_.size(); ++i)
      if (renamed(i) != profile::kNoValue) places[renamed(i)] = places_[i];
    places_.swap(places);
    for (ValueIndex& value : spent_)
      if (value != profile::kNoValue) value = renamed(value);
  }

  /// On which the next repetition depends.
  void add_state(std::vector<std::uint64_t>& state) const {
    // How full the near tier is decides what goes far next: two repetitions that differ in it are
    // not equal, though all values are.
    state.push_back(used_);
    for (const Place& place : places_) {
      state.push_back(std::uint64_t{place.most_pages} << 32 | place.pages);
      state.push_back((place.goes_far ? 2U : 0U) | (place.keeps_copy ? 1U : 0U));
    }
  }

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
  void aim(ValueIndex value, const Residency& state, std::uint32_t most_pages, bool keeps_copy) {
    Place& place = places_[value];
    place.keeps_copy = keeps_copy;
    // Its pages are queued for a tier already.
    if (state.leaving > 0) return;
    // Clean pages that have no near copy have a far one. Near copies are those of the last pages,
    // so before far ones there is no way back to the near tier.
    const bool has_far = tape_.values[value].pages - state.dirty > place.pages;
    place.most_pages = most_pages;
    place.goes_far = has_far || place.pages >= most_pages;
  }

  void drop_spent(std::vector<Residency>& values) {
    for (const ValueIndex value : spent_) {
      if (value == profile::kNoValue || places_[value].keeps_copy || places_[value].pages == 0)
        continue;
      Residency& state = values[value];
      // Some of it is out again, so its copies are in use.
      if (state.present < tape_.values[value].pages) continue;
      // Without a copy it has to be written when it leaves next.
      state.dirty = tape_.values[value].pages;
      forget(value);
    }
    spent_.clear();
  }

  const StepTape& tape_;
  std::vector<Place> places_;
  std::vector<ValueIndex> spent_;  ///< Holds all whose copies may be dropped.
  std::uint32_t capacity_;
  std::uint32_t used_ = 0;
};

}  // namespace spillway::planner
