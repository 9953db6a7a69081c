// The I/O thread: what is transferred when, and what a completion changes.

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "engine_state.h"
#include "spillway/base/assert.h"
#include "spillway/base/end_by_signal.h"
#include "spillway/swap/transfer_observer.h"
#include "way_to_host.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {
constexpr std::uint8_t kWriteAttempts = 3;
constexpr std::uint32_t kProtectAtOnce = 16;  // Pages.
constexpr std::chrono::milliseconds kReapPatience(200);
constexpr std::chrono::milliseconds kLatePatience(1);  // While a device works on what has to leave.
constexpr Duration kStandstill = std::chrono::seconds(2);  // No thread waits that long to run.
constexpr const char* kStoreIsFull = "the spill store takes no more pages";
}  // namespace

void SwapEngine::State::kick_locked() {
  if (!transfers_idle_) return;
  transfers_idle_ = false;
  store_->wake();
}

void SwapEngine::State::start_read_locked(PageIndex index, std::vector<Transfer>& batch) {
  Page& page = pages_.get()[index];
  page.slot = *pool_->take_frame();
  page.state = PageState::kReading;
  ++reading_;
  ++range_of(page).in_flight;
  --free_transfers_;
  batch.push_back({Direction::kRead, page.extent, memory_->span_of(page.slot).data,
                   transfer_size(index), std::uint64_t{index}});
}

/// Gives a frame to a page that was never touched: there is nothing to read.
void SwapEngine::State::give_fresh_frame_locked(PageIndex index) {
  Page& page = pages_.get()[index];
  const bool is_guarded = range_of(page).is_guarded;
  if (is_guarded)
    map_locked(index, *pool_->take_frame(), memory::Access::kRead);
  else
    map_fresh_locked(index, *pool_->take_frame());
  page.dirty = true;
  page.writable_on_arrival = false;
  note_counted_locked();
}

bool SwapEngine::State::collect_read_locked(std::deque<PageIndex>& queue,
                                            std::vector<Transfer>& batch) {
  while (!queue.empty()) {
    const PageIndex index = queue.front();
    // The page may have been released, or read for another reason, since it was queued.
    if (pages_.get()[index].state != PageState::kReadQueued) {
      queue.pop_front();
      continue;
    }
    if (!pool_->provide(1)) return false;
    queue.pop_front();
    if (absence_of(pages_.get()[index]) == Absence::kUnfilled) {
      give_fresh_frame_locked(index);
      wake_waiters_locked();
      continue;
    }
    start_read_locked(index, batch);
    return true;
  }
  return false;
}

void SwapEngine::State::fetch_locked(const RangePart& part, OnFetch copy) {
  if (!moves_ahead_) return;
  const Range& range = range_of(part.storage);
  const std::uint32_t end = part.first + std::min(part.count, range.pages - part.first);
  for (std::uint32_t i = part.first; i < end; ++i) {
    Page& page = pages_.get()[range.first + i];
    if (!page.forced) keep_locked(page);
  }
  fetches_.push_back({part, range.next_use_of(part.first), copy});
  kick_locked();
}

bool SwapEngine::State::collect_fetch_locked(std::vector<Transfer>& batch) {
  while (!fetches_.empty()) {
    const Fetch& fetch = fetches_.front();
    const Range& range = range_of(fetch.part.storage);
    bool finished = has_ended(fetch.part.storage) || range.is_dropped || now_op_ >= fetch.needed;
    if (!finished) {
      const bool room = pool_->available_frames() > fetch_reserve_ + frames_wanted_;
      finished = true;
      const std::uint32_t count = std::min(fetch.part.count, range.pages - fetch.part.first);
      for (std::uint32_t i = fetch.part.first; i < fetch.part.first + count; ++i) {
        Page& page = pages_.get()[range.first + i];
        if (page.state != PageState::kOut || !page.extent.is_some()) continue;
        if (!room || !pool_->provide(1)) return false;
        if (fetch.copy == OnFetch::kDropStoreCopy) page.writable_on_arrival = true;
        start_read_locked(range.first + i, batch);
        return true;
      }
    }
    fetches_.pop_front();
  }
  return false;
}

/// The store takes no more: what was to leave stays, and whoever waits for its room is told why. At
/// once, and not when the mutex is free: a waiting operator may be refused in between.
void SwapEngine::State::give_up_writing_locked() {
  for (const PageIndex index : writes_) {
    Page& page = pages_.get()[index];
    if (page.state == PageState::kWriteQueued) cancel_write_locked(page);
  }
  writes_.clear();
  const std::string reason = store_->report().refusal;
  store_failure_ = reason.empty() ? kStoreIsFull : reason;
  if (children_.kept_extents() > 0)
    store_failure_ += message("; {} of it are kept for {} forked children that still run",
                              page_size_ * children_.kept_extents(), children_.children());
  wake_waiters_locked();
}

/// Write-protects a page that is to be written out, and those below it that are next in the queue:
/// each call interrupts all cores that the trainer runs on.
void SwapEngine::State::write_protect_queued_locked(PageIndex index) {
  pages_.get()[index].write_protected = true;
  std::uint32_t run = 1;
  for (const PageIndex queued : writes_) {
    if (run >= kProtectAtOnce || queued + run != index) break;
    Page& page = pages_.get()[queued];
    if (page.state != PageState::kWriteQueued || page.write_protected) break;
    page.write_protected = true;
    ++run;
  }
  forbid_writes_locked(index + 1 - run, run);
}

bool SwapEngine::State::collect_write_locked(std::vector<Transfer>& batch) {
  while (!writes_.empty()) {
    const PageIndex index = writes_.front();
    writes_.pop_front();
    Page& page = pages_.get()[index];
    if (page.state != PageState::kWriteQueued) continue;
    if (!page.extent.is_some()) {
      const auto extent = store_->reserve_extent(page.tier);
      if (!extent) {
        writes_.push_front(index);
        give_up_writing_locked();
        return false;
      }
      page.extent = *extent;
      page.extent_since = children_.now();
      ++extents_held_;
    }
    if (!page.write_protected) write_protect_queued_locked(index);
    page.state = PageState::kWriting;
    ++writing_;
    ++range_of(page).in_flight;
    --free_transfers_;
    batch.push_back({Direction::kWrite, page.extent, address_of(index), transfer_size(index),
                     std::uint64_t{index}});
    return true;
  }
  return false;
}

/// Fills the store's queue: what somebody waits for, then write-outs and fetches in turn.
void SwapEngine::State::collect_locked(std::vector<Transfer>& batch) {
  end_children_locked();
  if ((may_need_room_locked() || is_use_awaited_locked()) && end_late_uses_locked())
    start_evictions_locked();
  awaited_reads_ = 0;
  while (free_transfers_ > 0) {
    if (collect_read_locked(fault_reads_, batch) || collect_read_locked(demand_reads_, batch) ||
        WayToHost(*this).collect_locked(batch)) {
      ++awaited_reads_;
      continue;
    }
    write_turn_ = !write_turn_;
    if (write_turn_ ? collect_write_locked(batch) : collect_fetch_locked(batch)) continue;
    if (write_turn_ ? collect_fetch_locked(batch) : collect_write_locked(batch)) continue;
    break;
  }
  transfers_idle_ = true;
}

void SwapEngine::State::finish_read_locked(PageIndex index, const TransferResult& result) {
  Page& page = pages_.get()[index];
  Range& range = range_of(page);
  --reading_;
  const memory::SlotId slot = page.slot;
  page.slot = memory::SlotId();
  if (range.is_dying) {
    pool_->put_frame(slot);
    page.state = PageState::kOut;
    drop_extent_locked(page);
    return;
  }
  if (result.error != 0) {
    // The bytes exist nowhere else: whoever waits for them is told, and the extent stays.
    pool_->put_frame(slot);
    page.state = PageState::kOut;
    // While the store's queue is full, a fetch is not done, and would be tried for ever.
    const std::uint32_t place = index - range.first;
    std::erase_if(fetches_, [&](const Fetch& fetch) {
      const RangePart& part = fetch.part;
      return part.storage == range.id && place >= part.first && place - part.first < part.count;
    });
    read_failure_ = {index, read_failure_.count + 1, result.detail};
    for (const OpenFault& fault : faults_.open)
      if (fault.index == index) faults_.failure = result.detail;
    return;
  }
  counts_.fetched += Bytes(result.transfer.size);
  // A page that is touched past the operators could be written between its arrival and its
  // protection.
  const bool loses_copy = page.writable_on_arrival || range.faulted;
  const bool is_writable = loses_copy && !range.is_guarded;
  map_locked(index, slot, is_writable ? memory::Access::kWrite : memory::Access::kRead);
  page.writable_on_arrival = false;
  page.dirty = loses_copy;
  if (loses_copy) drop_extent_locked(page);
}

void SwapEngine::State::finish_write_locked(PageIndex index, const TransferResult& result) {
  Page& page = pages_.get()[index];
  Range& range = range_of(page);
  --writing_;
  const bool leaves = page.leaving && (page.forced || !is_pinned(page));
  if (page.leaving) --leaving_;
  page.leaving = false;
  page.forced = false;
  page.state = PageState::kResident;
  counts_.spilled += result.error == 0 ? Bytes(result.transfer.size) : Bytes();
  if (range.is_dying || page.cancelled || result.error != 0) {
    page.cancelled = false;
    drop_extent_locked(page);
    if (range.is_dying) {
      if (range.late_uses == 0) leave_locked(index);
      return;
    }
    if (result.error != 0 && ++page.failed_writes >= kWriteAttempts) store_failure_ = result.detail;
    if (page.write_protected && !range.is_guarded) {
      allow_writes_locked(index, 1);
      page.write_protected = false;
    }
    return;
  }
  page.failed_writes = 0;
  page.dirty = false;
  if (leaves) leave_locked(index);
}

void SwapEngine::State::finish_locked(const TransferResult& result) {
  const auto index = static_cast<PageIndex>(result.transfer.tag);
  Range& range = range_of(pages_.get()[index]);
  ++free_transfers_;
  if (result.transfer.is_into_host) {
    WayToHost(*this).finish_locked(index, result);
  } else if (result.transfer.direction == Direction::kRead) {
    finish_read_locked(index, result);
  } else {
    finish_write_locked(index, result);
  }
  SPILLWAY_ASSERT(range.in_flight > 0);
  if (--range.in_flight == 0 && range.is_dying && range.late_uses == 0) end_range(range);
}

void SwapEngine::State::submit(const std::vector<Transfer>& batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    // Pages under way stay with their storage, so this is read without the mutex.
    const std::size_t index = batch[i].tag;
    const StorageId storage(pages_.get()[index].range,
                            addresses_.generation_of(static_cast<PageIndex>(index)));
    for (TransferObserver* const observer : options_.observers) {
      if (batch[i].is_into_host) break;  // It does not come to the device.
      observer->begin_transfer(batch[i], storage, i < awaited_reads_, clock_.now());
    }
    store_->submit(batch[i]);
  }
}

/// Mapping the pages of a device may take long, and the trainer's threads wait for the mutex.
void SwapEngine::State::prepare_pages(const std::vector<TransferResult>& results) {
  for (const TransferResult& result : results) {
    const Transfer& transfer = result.transfer;
    if (transfer.direction != Direction::kRead || transfer.is_into_host || result.error != 0)
      continue;
    const auto index = static_cast<PageIndex>(result.transfer.tag);
    // This thread has chosen it, and it stays until the transfer has been finished.
    memory_->prepare_map(index, pages_.get()[index].slot);
  }
}

/// The process stood still (SIGSTOP, a suspended job): nobody has waited for a page meanwhile.
void SwapEngine::State::forgive_standstill() {
  const Lock lock(mutex_);
  faults_.unserved_since.reset();
}

void SwapEngine::State::run_transfers() {
  ::pthread_setname_np(::pthread_self(), "spillway-io");
  std::vector<Transfer> batch;
  std::vector<TransferResult> results;
  while (true) {
    std::string lost_fault;
    bool polls_uses = false;
    {
      Lock lock(mutex_);
      if (stopping_ && reading_ + writing_ == 0) return;
      if (!stopping_) collect_locked(batch);
      lost_fault = lost_fault_locked();
      polls_uses = !late_uses_.empty() && is_use_awaited_locked();
    }
    if (!lost_fault.empty())
      end_by_signal(SIGBUS, message("the program touches a tensor that cannot come back from "
                                    "disk: {}",
                                    lost_fault)
                                .c_str());
    submit(batch);
    batch.clear();
    results.clear();
    const TimePoint since = clock_.now();
    store_->reap(results, polls_uses ? kLatePatience : kReapPatience);
    const TimePoint ended = clock_.now();
    if (ended - since > kReapPatience + kStandstill) {
      forgive_standstill();
      for (TransferObserver* const observer : options_.observers)
        observer->stood_still(since, ended);
    }
    if (results.empty()) continue;
    prepare_pages(results);
    Lock lock(mutex_);
    for (const TransferResult& result : results) finish_locked(result);
    start_evictions_locked();
    wake_waiters_locked();
    const Bytes resident = resident_locked();
    lock.unlock();
    std::erase_if(results,
                  [](const TransferResult& result) { return result.transfer.is_into_host; });
    if (results.empty()) continue;
    for (TransferObserver* const observer : options_.observers)
      observer->end_transfers(results, ended, resident);
  }
}

}  // namespace spillway::swap
