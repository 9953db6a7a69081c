#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Of a value that may go to the near tier as a whole.
inline constexpr std::uint32_t kNearWhole = static_cast<std::uint32_t>(-1);

/// Which pages have their copy in the near one of two tiers, and how full that is. A value's copies
/// in the near tier are those of its last pages, since these leave first; before them come those in
/// the far one.
class NearCopies {
 public:
  struct Place {
    std::uint32_t pages = 0;                ///< With a copy in the near tier.
    std::uint32_t most_pages = kNearWhole;  ///< That go there; those before them go far.
    bool goes_far = false;                  ///< What leaves next.
    bool keeps_copy = true;  ///< False: nothing needs the copies once the pages are back.
  };

  NearCopies(std::size_t values, std::uint32_t capacity) : places_(values), capacity_(capacity) {}

  Place& operator[](ValueIndex value) { return places_[value]; }
  const Place& operator[](ValueIndex value) const { return places_[value]; }
  std::uint32_t room() const { return capacity_ - used_; }
  std::uint32_t used() const { return used_; }

  void reserve(std::uint32_t pages) { used_ += pages; }
  void release(std::uint32_t pages) { used_ -= pages; }
  void forget(ValueIndex value) {
    used_ -= places_[value].pages;
    places_[value] = {};
  }

  /// Values go by other numbers from here on; those that have none must have been forgotten.
  void rename(const StepTape& tape) {
    std::vector<Place> renamed(places_.size());
    for (ValueIndex i = 0; i < places_.size(); ++i) {
      const auto& value = tape.values[i];
      const bool lives_on = value.death == profile::kSurvives && value.becomes != profile::kNoValue;
      if (lives_on) renamed[value.becomes] = places_[i];
    }
    places_.swap(renamed);
  }

 private:
  std::vector<Place> places_;
  std::uint32_t capacity_;
  std::uint32_t used_ = 0;
};

}  // namespace spillway::planner
