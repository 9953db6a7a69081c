// Ranges whose bytes are nowhere, because somebody is going to compute them again.

#include <algorithm>
#include <csignal>

#include "engine_state.h"
#include "spillway/base/assert.h"
#include "spillway/base/end_by_signal.h"

namespace spillway::swap {

using memory::PageIndex;

bool SwapEngine::State::drop(StorageId id) {
  Lock lock(mutex_);
  Range& range = range_of(id);
  SPILLWAY_ASSERT(range.is_live && !range.is_dying);
  end_late_uses_locked();
  const bool is_held = range.pins + range.partial_pins > range.late_uses || range.in_flight > 0;
  if (range.is_dropped || is_held || range.faulted || drops_.has_ended) return false;
  for (PageIndex index = range.first; index < range.first + range.pages; ++index) {
    if (pages_.get()[index].state == PageState::kReadQueued) return false;
  }
  range.is_dropped = true;
  counts_.dropped += page_size_ * range.pages;
  if (range.late_uses == 0) drop_pages_locked(range);
  wake_waiters_locked();
  if (!fetches_.empty()) kick_locked();
  return true;
}

/// Of a dropped range that no device uses any more.
void SwapEngine::State::drop_pages_locked(const Range& range) {
  for (PageIndex index = range.first; index < range.first + range.pages; ++index) {
    Page& page = pages_.get()[index];
    SPILLWAY_ASSERT(page.state != PageState::kReading);  // Whose extent is needed still.
    if (page.state == PageState::kWriting) continue;     // On its way out with its bytes, as good.
    if (page.state == PageState::kWriteQueued) cancel_write_locked(page);
    // A page that the kernel holds stays, with its bytes, until others take its place.
    if (page.state == PageState::kResident) leave_locked(index);
    drop_extent_locked(page);
  }
}

/// Whether a pinned page is in memory and may move: somebody in need may have taken it. Waits until
/// it is not being written.
bool SwapEngine::State::is_movable_locked(Lock& lock, PageIndex index) {
  const Page& page = pages_.get()[index];
  while (page.state == PageState::kWriting) wait_locked(lock, false, counts_.fetch_wait);
  return page.state == PageState::kResident || page.state == PageState::kWriteQueued;
}

/// Moves the frame of one page below the address of another, which becomes resident. False when
/// somebody in need has taken the frame.
bool SwapEngine::State::adopt_page_locked(Lock& lock, PageIndex target, PageIndex source,
                                          const PinSet& within) {
  Page& from = pages_.get()[source];
  Page& to = pages_.get()[target];
  // The kernel kept its bytes, a device does still, or it has moved in an earlier attempt.
  if (to.state != PageState::kOut || to.extent.is_some()) return true;
  // What is writable already must not stay so over a wait.
  if (from.state == PageState::kWriting) write_protect_guarded_locked(range_of(to));
  if (!is_movable_locked(lock, source)) return false;
  if (from.state == PageState::kWriteQueued) cancel_write_locked(from);
  if (frames_in_use_ != nullptr) {
    frames_in_use_->move(target, source);
    from.state = PageState::kOut;
    from.moved_on = true;
    drop_extent_locked(from);
    note_resident_locked(target, memory::Access::kWrite);
    to.dirty = true;
    return true;
  }
  // Whoever waits to write must not do so unseen before the whole range is write-protected.
  const bool is_touched = range_of(to).is_guarded && range_of(to).faulted;
  const auto allowed = is_touched ? memory::Access::kRead : memory::Access::kWrite;
  const memory::SlotId slot = pool_->take_empty_slot();
  if (memory_->unmap(slot, source) == memory::MoveResult::kMoved) {
    from.state = PageState::kOut;
    drop_extent_locked(from);
    map_locked(target, slot, allowed);
  } else {
    // The kernel holds the frame for somebody, maybe for ever: the bytes go without it.
    pool_->put_empty_slot(slot);
    write_protect_guarded_locked(range_of(to));
    std::vector<memory::SlotId> copy;
    acquire_frames_locked(lock, copy, 1, &within);
    if (!has_bytes_in_memory(from.state)) {
      pool_->put_frame(copy.front());
      return false;
    }
    memory_->copy(copy.front(), source);
    map_locked(target, copy.front(), allowed);
  }
  to.dirty = true;
  return true;
}

bool SwapEngine::State::adopt(StorageId dropped, StorageId from, PinSet& within) {
  Lock lock(mutex_);
  const PageIndex target = range_of(dropped).first;
  const PageIndex source = range_of(from).first;
  const std::uint32_t count = range_of(dropped).pages;
  SPILLWAY_ASSERT(range_of(dropped).is_live && range_of(dropped).is_dropped);
  SPILLWAY_ASSERT(range_of(from).pages == count);
  // A device may not have begun to compute it.
  SPILLWAY_ASSERT(frames_in_use_ != nullptr || memory_->device().is_host());
  // What the device has yet to compute into the pages would find them gone.
  while (frames_in_use_ == nullptr && !range_of(from).is_dying && range_of(from).late_uses > 0)
    wait_locked(lock, false, counts_.fetch_wait);
  if (range_of(from).pins == 0) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!is_movable_locked(lock, source + i)) return false;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!adopt_page_locked(lock, target + i, source + i, within)) return false;
  }
  Range& range = range_of(dropped);
  range.is_dropped = false;
  if (frames_in_use_ != nullptr) {  // What computes it goes on as late as the set's own uses.
    ++range.pins;
    within.pins_.push_back({dropped, 0, 0});
  }
  write_protect_guarded_locked(range);
  // It may have been wanted once more after somebody had begun to compute.
  std::erase(drops_.wanted, dropped);
  if (range.is_write_awaited) want_locked(dropped);
  range.last_touch = ++touch_clock_;
  note_counted_locked();
  wake_waiters_locked();
  return true;
}

void SwapEngine::State::want_locked(StorageId id) {
  if (std::find(drops_.wanted.begin(), drops_.wanted.end(), id) != drops_.wanted.end()) return;
  drops_.wanted.push_back(id);
  drop_wanted_.notify_all();
}

StorageId SwapEngine::State::wait_for_wanted() {
  Lock lock(mutex_);
  drop_wanted_.wait(lock, [this] { return drops_.has_ended || !drops_.wanted.empty(); });
  if (drops_.has_ended) return StorageId();
  const StorageId wanted = drops_.wanted.front();
  drops_.wanted.pop_front();
  return wanted;
}

void SwapEngine::State::end_drops() {
  Lock lock(mutex_);
  drops_.has_ended = true;
  for (Range& range : ranges_)
    if (range.is_live && !range.is_dying) unguard_locked(range);
  drop_wanted_.notify_all();
}

void SwapEngine::State::give_up(StorageId dropped, const std::string& reason) {
  Lock lock(mutex_);
  drops_.failure = {dropped, drops_.failure.count + 1, reason};
  const Range& range = range_of(dropped);
  const auto is_touched = [&](const OpenFault& fault) {
    return fault.index >= range.first && fault.index - range.first < range.pages;
  };
  const bool is_fatal = std::any_of(faults_.open.begin(), faults_.open.end(), is_touched);
  wake_waiters_locked();
  lock.unlock();
  if (is_fatal)
    end_by_signal(
        SIGBUS,
        message("the program touches a tensor that cannot be recomputed: {}; go on from the "
                "last checkpoint with --recompute off",
                reason)
            .c_str());
}

/// Operators that nobody has prepared for a drop wait here until its bytes are back. While they
/// wait for one range another one may be dropped again, so all are looked at after each wait.
void SwapEngine::State::wait_for_dropped_locked(Lock& lock, std::span<const RangeUse> uses) {
  StorageId awaited;
  std::uint64_t failures = 0;  // As the wait for that range began.
  while (true) {
    const auto use = std::find_if(uses.begin(), uses.end(), [this](const RangeUse& candidate) {
      return range_of(candidate.storage).is_dropped;
    });
    if (use == uses.end()) return;
    if (use->storage != awaited) {
      awaited = use->storage;
      failures = drops_.failure.count;
    }
    if (drops_.failure.count != failures && drops_.failure.storage == awaited)
      throw RecomputeError("{}", drops_.failure.reason);
    want_locked(awaited);
    wait_locked(lock, false, counts_.fetch_wait);
  }
}

}  // namespace spillway::swap
