// Accesses that no operator announced.

#include <algorithm>
#include <chrono>
#include <csignal>

#include "engine_state.h"
#include "spillway/base/end_by_signal.h"
#include "spillway/memory/locked_memory.h"

namespace spillway::swap {

using memory::Access;
using memory::PageIndex;
using memory::TrapEnd;

namespace {

// Reports of a page of nobody after which they cannot all be late ones of several threads.
constexpr std::uint32_t kStrayReports = 1000;
// The same where the thread that touches it reports it itself: less than a trap is repeated.
constexpr std::uint32_t kStrayTraps = 30;
// Between attempts to move what the kernel keeps, while a thread waits for room.
constexpr Duration kAttemptPause = std::chrono::seconds(1);

/// Whether an access past the operators has to be allowed first.
bool waits_for_guard(const Page& page, const Range& range, Access access) {
  return access == Access::kWrite && page.write_protected && range.is_guarded;
}

}  // namespace

/// Whether a thread sleeps on a page that no frame is coming free for.
bool SwapEngine::State::is_fault_unserved_locked() const {
  return !fault_reads_.empty() && pool_->available_frames() == 0 &&
         leaving_ + reading_ + writing_ == 0 && late_uses_.empty();
}

std::string SwapEngine::State::why_no_frame_locked() const {
  if (!store_failure_.empty()) return store_failure_;
  if (pages_pinned_by_kernel_locked() > 0) return pinned_by_kernel_text_locked();
  return message("the program's direct I/O uses all of the budget of {} (allow more with --budget)",
                 options_.budget);
}

/// Why a thread that touches memory waits for nothing; empty: it does not. It cannot be told of an
/// error: as with mapped files, the process ends, instead of sleeping for ever.
std::string SwapEngine::State::lost_fault_locked() {
  if (!is_fault_unserved_locked()) {
    faults_.unserved_since.reset();
  } else if (!faults_.unserved_since) {
    faults_.unserved_since = faults_.next_attempt = clock_.now();
  }
  if (!faults_.failure.empty()) return faults_.failure;
  if (!faults_.unserved_since) return {};
  const TimePoint now = clock_.now();
  if (now - *faults_.unserved_since > options_.fault_patience) return why_no_frame_locked();
  if (now >= faults_.next_attempt) {
    faults_.next_attempt = now + kAttemptPause;
    forget_refusals_locked();
    start_evictions_locked();
    kick_locked();
  }
  return {};
}

void SwapEngine::State::begin_access(PageIndex index, Access access) {
  begin_access(index, access, kStrayReports);
}

void SwapEngine::State::begin_access(PageIndex index, Access access, std::uint32_t strays) {
  const TimePoint start = clock_.now();
  Lock lock(mutex_);
  if (!addresses_.has_storage(index)) {
    // The report may be late: the page had come, and its storage was freed behind that. Whoever
    // touches freed memory comes again.
    const bool is_again = faults_.stray.page == index && faults_.stray.releases == faults_.releases;
    faults_.stray = {index, faults_.releases, is_again ? faults_.stray.reports + 1 : 1};
    if (faults_.stray.reports < strays) {
      wake_locked(index);
      return;
    }
    lock.unlock();
    end_by_signal(SIGSEGV,
                  memory::is_reservation_locked() ? memory::kLockedByItself : kTouchedAfterFree);
  }
  if (begin_fault_locked(index, access, start)) ++counts_.faults;
}

/// False when somebody waits for that page already.
bool SwapEngine::State::note_waiting_fault_locked(PageIndex index, TimePoint start) {
  const bool is_known = std::any_of(faults_.open.begin(), faults_.open.end(),
                                    [&](const OpenFault& fault) { return fault.index == index; });
  if (!is_known) faults_.open.push_back({index, start});
  return !is_known;
}

/// Has a page come, or become writable, for whoever waits since `start`. False when that was known:
/// a signal has sleepers report once more, and what is recomputed may take long.
bool SwapEngine::State::begin_fault_locked(PageIndex index, Access access, TimePoint start) {
  Page& page = pages_.get()[index];
  Range& range = range_of(page);
  range.faulted = true;
  touch_page_locked(range, index - range.first);
  if (waits_for_guard(page, range, access)) {
    range.is_write_awaited = true;
    want_locked(range.id);
    return note_waiting_fault_locked(index, start);
  }
  bool is_news = true;
  switch (page.state) {
    case PageState::kOut:
      ask_for_page_locked(index, fault_reads_);
      if (page.state == PageState::kOut) return note_waiting_fault_locked(index, start);
      [[fallthrough]];
    case PageState::kReadQueued:
      page.writable_on_arrival = true;
      is_news = note_waiting_fault_locked(index, start);
      std::erase(demand_reads_, index);  // It stands in one queue only, now in the faster one.
      if (std::find(fault_reads_.begin(), fault_reads_.end(), index) == fault_reads_.end())
        fault_reads_.push_back(index);
      start_evictions_locked();
      kick_locked();
      break;
    case PageState::kReading:
    case PageState::kOnHost:
      page.writable_on_arrival = true;
      is_news = note_waiting_fault_locked(index, start);
      break;
    case PageState::kResident:
    case PageState::kWriteQueued:
    case PageState::kWriting:
      if (access == Access::kWrite && page.write_protected) {
        if (page.state != PageState::kResident) cancel_write_locked(page);
        page.dirty = true;
        page.write_protected = false;
        if (page.state == PageState::kResident) drop_extent_locked(page);
        allow_writes_locked(index, 1);
      } else {
        wake_locked(index);
      }
      counts_.fault_wait += clock_.now() - start;
      break;
  }
  return is_news;
}

/// The page has come, or is gone for good: nobody waits for it any more.
void SwapEngine::State::end_faults_locked(PageIndex index) {
  if (faults_.open.empty()) return;
  const TimePoint now = clock_.now();
  std::erase_if(faults_.open, [&](const OpenFault& fault) {
    if (fault.index != index) return false;
    counts_.fault_wait += now - fault.start;
    return true;
  });
}

TrapEnd SwapEngine::State::serve_access(PageIndex index, Access access,
                                        const std::function<bool()>& is_interrupted) {
  if (off_.load(std::memory_order_relaxed)) {
    fill_in_child(index);
    return TrapEnd::kServed;
  }
  begin_access(index, access, kStrayTraps);
  Lock lock(mutex_);
  const Page& page = pages_.get()[index];
  const auto is_guarded = [&] { return waits_for_guard(page, range_of(page), access); };
  while (addresses_.has_storage(index) && (!has_bytes_in_memory(page.state) || is_guarded())) {
    ++waiters_;
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    --waiters_;
    // The page stays asked for, and whoever takes the signal may never come back for it.
    if (is_interrupted()) return TrapEnd::kInterrupted;
    // It has come and left again, or nobody has computed it yet: still the same trap.
    if ((page.state == PageState::kOut || is_guarded()) && addresses_.has_storage(index))
      begin_fault_locked(index, access, clock_.now());
  }
  return TrapEnd::kServed;
}

}  // namespace spillway::swap
