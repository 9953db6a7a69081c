// Ranges that may be written past the operators only after somebody has allowed it.

#include <algorithm>
#include <utility>

#include "engine_state.h"
#include "page_run.h"
#include "spillway/base/assert.h"

namespace spillway::swap {

using memory::PageIndex;

bool SwapEngine::State::guard(StorageId id) {
  Lock lock(mutex_);
  Range& range = range_of(id);
  SPILLWAY_ASSERT(range.is_live && !range.is_dying);
  if (range.is_guarded) return true;
  // The kernel may be filling a page, and would get an error where it is write-protected.
  const auto holds_it = [&](const PinSet* set) {
    return std::any_of(set->pins_.begin(), set->pins_.end(),
                       [&](const PinSet::Pin& pin) { return pin.storage == id; });
  };
  if (drops_.has_ended || std::any_of(kernel_sets_.begin(), kernel_sets_.end(), holds_it))
    return false;
  if (access_ == nullptr) return true;
  range.is_guarded = true;
  pressure_.store(true, std::memory_order_relaxed);  // Operators have to announce their writes.
  write_protect_locked(range);
  return true;
}

/// Write-protects all pages that are in memory.
void SwapEngine::State::write_protect_locked(const Range& range) {
  const auto protect = [this](PageIndex first, std::uint32_t count) {
    forbid_writes_locked(first, count);
  };
  PageRun run;
  for (PageIndex index = range.first; index < range.first + range.pages; ++index) {
    Page& page = pages_.get()[index];
    if (!has_bytes_in_memory(page.state) || page.write_protected) continue;
    page.write_protected = true;
    run.add(index, protect);
  }
  run.end(protect);
}

void SwapEngine::State::write_protect_guarded_locked(const Range& range) {
  if (range.is_guarded) write_protect_locked(range);
}

void SwapEngine::State::unguard_locked(Range& range) {
  if (!range.is_guarded) return;
  settle_for_writing_locked(range, 0, range.pages);
}

/// Whoever waits to write goes on. Called when the pages are writable.
void SwapEngine::State::end_guard_locked(Range& range) {
  range.is_guarded = false;
  if (!std::exchange(range.is_write_awaited, false)) return;
  std::erase(drops_.wanted, range.id);
  for (PageIndex index = range.first; index < range.first + range.pages; ++index) {
    const PageState state = pages_.get()[index].state;
    if (state == PageState::kReadQueued || state == PageState::kReading) continue;
    // A page may have left meanwhile: it comes again when it is touched again.
    wake_locked(index);
    end_faults_locked(index);
  }
  wake_waiters_locked();
}

}  // namespace spillway::swap
