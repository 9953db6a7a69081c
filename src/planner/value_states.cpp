#include "value_states.h"

#include "transfer_schedule.h"

namespace spillway::planner {

using profile::kNoValue;

// Pages of a value by where their copies are:
//
//                 first                          last
//     copies      [ none: dirty | far       | near  ]
//     presence    [ present              | out      ]
//
// The last ones leave first, to the near tier as long as they may; those before them go far. So
// three borders per value tell everything.
void NearCopies::enter(ValueIndex value, const PlannedSwap& swap) {
  forget(value);
  const std::uint32_t most = most_near(swap);
  // The plan does not tell in which state its repetitions settle, so the first one begins with a
  // likely one: near as far as there is room.
  const std::uint32_t pages = std::min({most, swap.pages, capacity_ - used_});
  places_[value] = {pages, most, pages < swap.pages, swap.keeps_copy};
  reserve(pages);
}

void NearCopies::aim(ValueIndex value, const Residency& state, const PlannedSwap& swap) {
  aim(value, state, most_near(swap), swap.keeps_copy);
}

void NearCopies::aim_near(ValueIndex value, const Residency& state) {
  aim(value, state, kWhole, true);
}

void NearCopies::aim(ValueIndex value, const Residency& state, std::uint32_t most_pages,
                     bool keeps_copy) {
  Place& place = places_[value];
  place.keeps_copy = keeps_copy;
  // Its pages are queued for a tier already.
  if (state.leaving > 0) return;
  // Clean pages that have no near copy have a far one. Near copies are those of the last pages, so
  // before far ones there is no way back to the near tier.
  const bool has_far = tape_.values[value].pages - state.dirty > place.pages;
  place.most_pages = most_pages;
  place.goes_far = has_far || place.pages >= most_pages;
}

std::uint32_t NearCopies::room_for(ValueIndex value, std::vector<Residency>& values) {
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

void NearCopies::drop_spent(std::vector<Residency>& values) {
  for (const ValueIndex value : spent_) {
    if (value == kNoValue || places_[value].keeps_copy || places_[value].pages == 0) continue;
    Residency& state = values[value];
    // Some of it is out again, so its copies are in use.
    if (state.present < tape_.values[value].pages) continue;
    // Without a copy it has to be written when it leaves next.
    state.dirty = tape_.values[value].pages;
    forget(value);
  }
  spent_.clear();
}

void NearCopies::rename() {
  const auto renamed = [&](ValueIndex value) {
    const auto& facts = tape_.values[value];
    return facts.death == profile::kSurvives ? facts.becomes : kNoValue;
  };
  // Into new ones: a value may take the number of another that has not been moved yet.
  std::vector<Place> places(places_.size());
  for (ValueIndex i = 0; i < places_.size(); ++i)
    if (renamed(i) != kNoValue) places[renamed(i)] = places_[i];
  places_.swap(places);
  for (ValueIndex& value : spent_)
    if (value != kNoValue) value = renamed(value);
}

void NearCopies::add_state(std::vector<std::uint64_t>& state) const {
  // How full the near tier is decides what goes far next: two repetitions that differ in it are not
  // equal, though all values are.
  state.push_back(used_);
  for (const Place& place : places_) {
    state.push_back(std::uint64_t{place.most_pages} << 32 | place.pages);
    state.push_back((place.goes_far ? 2U : 0U) | (place.keeps_copy ? 1U : 0U));
  }
}

}  // namespace spillway::planner
