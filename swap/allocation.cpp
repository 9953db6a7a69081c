// Storages get addresses and frames, and give them back when they end.

#include <algorithm>
#include <vector>

#include "engine_state.h"
#include "spillway/base/assert.h"

namespace spillway::swap {

using memory::PageIndex;

/// Addresses for `count` pages that the kernel lets us use. Throws where there are none, with
/// nothing changed.
PageIndex SwapEngine::State::take_addresses_locked(std::uint32_t count, Bytes size) {
  const auto first = arena_.allocate(count);
  if (!first)
    throw AddressesError("no {} of addresses in one piece are left of the {} that are reserved "
                         "for tensors, of which {} are in use{}",
                         size, options_.arena_size, page_size_ * arena_.used_pages(),
                         options_.arena_reason);
  try {
    memory_->prepare(*first, count);
  } catch (...) {
    arena_.release(*first, count);
    throw;
  }
  return *first;
}

/// Enters a storage at these addresses. The set, if any, was entered, and holds it from now on.
SwapEngine::Allocation SwapEngine::State::hand_out_locked(PageIndex first, std::uint32_t pages,
                                                          Bytes size, PinSet* within) {
  Range& range = new_range(first, pages, size);
  range.last_touch = ++touch_clock_;
  counts_.live += page_size_ * pages;
  counts_.live_peak = std::max(counts_.live_peak, counts_.live + Bytes(small_bytes_.load()));
  if (within != nullptr) {
    range.pins = 1;
    within->pins_.push_back({range.id, 0, 0});
  }
  return {address_of(first), range.id};
}

/// The room that was kept free for what a running operator makes.
void SwapEngine::State::take_kept_room_locked(std::uint32_t pages) {
  fetch_reserve_ -= std::min(fetch_reserve_, pages);
}

void SwapEngine::State::map_locked(PageIndex index, memory::SlotId slot, memory::Access allowed) {
  memory_->map(index, slot, allowed);
  note_mapped_locked(index, slot, allowed);
}

/// With whatever bytes.
void SwapEngine::State::map_fresh_locked(PageIndex index, memory::SlotId slot) {
  memory_->map_fresh(index, slot);
  note_mapped_locked(index, slot, memory::Access::kWrite);
}

void SwapEngine::State::note_mapped_locked(PageIndex index, memory::SlotId slot,
                                           memory::Access allowed) {
  pool_->put_empty_slot(slot);
  note_resident_locked(index, allowed);
}

void SwapEngine::State::note_resident_locked(PageIndex index, memory::Access allowed) {
  Page& page = pages_.get()[index];
  page.state = PageState::kResident;
  page.arrival = ++arrivals_;
  page.write_protected = allowed == memory::Access::kRead;
  end_faults_locked(index);
}

SwapEngine::Allocation SwapEngine::State::allocate(Bytes size, PinSet* within) {
  const std::size_t wanted = pages_for(size);
  // Sizes that no machine has must be refused as they are, not in 32 bits.
  const auto count = static_cast<std::uint32_t>(std::min(wanted, budget_pages_ + 1));
  std::vector<memory::SlotId> frames;
  frames.reserve(count);
  Lock lock(mutex_);
  if (within != nullptr) enter_locked(*within);
  PageIndex first = 0;
  try {
    if (wanted > budget_pages_) refuse_locked(wanted, within);
    acquire_frames_locked(lock, frames, count, within);
    first = take_addresses_locked(count, size);
  } catch (...) {
    for (const memory::SlotId slot : frames) pool_->put_frame(slot);
    if (within != nullptr && within->engine_ == nullptr) exit_locked(*within);
    throw;
  }
  const Allocation made = hand_out_locked(first, count, size, within);
  for (std::uint32_t i = 0; i < count; ++i) {
    map_fresh_locked(first + i, frames[i]);
    pages_.get()[first + i].dirty = true;
  }
  if (within != nullptr) take_kept_room_locked(count);
  return made;
}

SwapEngine::Allocation SwapEngine::State::allocate_unfilled(Bytes size, PinSet* within) {
  // Sizes that no machine has must be refused as they are, not in 32 bits.
  const auto count = static_cast<std::uint32_t>(std::min(pages_for(size), arena_pages_ + 1));
  Lock lock(mutex_);
  const PageIndex first = take_addresses_locked(count, size);
  if (within != nullptr) enter_locked(*within);
  const Allocation made = hand_out_locked(first, count, size, within);
  if (pool_->available_frames() >= count + frames_wanted_ && fault_reads_.empty() &&
      pool_->provide(count)) {
    for (std::uint32_t i = 0; i < count; ++i) give_fresh_frame_locked(first + i);
  } else {
    pressure_.store(true, std::memory_order_relaxed);  // Operators have to ask for their pages.
  }
  return made;
}

void SwapEngine::State::release_page_locked(PageIndex index) {
  Page& page = pages_.get()[index];
  end_faults_locked(index);
  if (page.state == PageState::kWriteQueued) cancel_write_locked(page);
  if (page.moved_on) frames_in_use_->end_move(index);
  page.moved_on = false;
  switch (page.state) {
    case PageState::kOut:
    case PageState::kReadQueued: break;
    case PageState::kReading:
    case PageState::kOnHost:
    case PageState::kWriting: return;
    case PageState::kResident:
    case PageState::kWriteQueued: leave_locked(index); break;
  }
  page.state = PageState::kOut;
  drop_extent_locked(page);
}

void SwapEngine::State::release_pages_locked(Range& range) {
  for (std::uint32_t i = 0; i < range.pages; ++i) release_page_locked(range.first + i);
}

void SwapEngine::State::release(StorageId id, const device::Event& until) {
  Lock lock(mutex_);
  Range& range = range_of(id);
  SPILLWAY_ASSERT(range.is_live && !range.is_dying);
  end_some_late_uses_locked();
  if (!has_ended_by_now_locked(until)) {
    range.add_late_use(until);
    late_uses_.add(until, {{id, 0, 0}});
  }
  range.is_dying = true;
  ++faults_.releases;
  range.pins = 0;
  range.partial_pins = 0;
  counts_.live -= page_size_ * range.pages;
  addresses_.forget(range.first, range.pages);
  if (range.is_dropped || range.is_write_awaited) std::erase(drops_.wanted, id);
  if (range.late_uses > 0) ended_late_.push_back(id);
  if (range.late_uses == 0) release_pages_locked(range);
  if (range.late_uses == 0 && range.in_flight == 0) end_range(range);
  wake_waiters_locked();
  if (!fetches_.empty()) kick_locked();
}

}  // namespace spillway::swap
