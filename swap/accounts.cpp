// What counts under the budget, and what a run's statistics say of it.

#include <algorithm>
#include <utility>
#include <vector>

#include "engine_state.h"
#include "spillway/base/assert.h"

namespace spillway::swap {

namespace {

// Small blocks are granted to the heap in steps of a page, so that most are accounted without a
// lock. So many steps are granted ahead.
constexpr std::uint64_t kSmallStepsAhead = 8;
// What small blocks leave to storages: an access may span two pages, and without a frame the thread
// that touches one would wait for ever.
constexpr std::size_t kLeastFrames = 2;

}  // namespace

void SwapEngine::State::note_counted_locked() {
  const Bytes counted = page_size_ * pool_->existing_frames() + Bytes(small_granted_.load());
  SPILLWAY_ASSERT(counted <= options_.budget);
  counts_.counted_peak = std::max(counts_.counted_peak, counted);
  latest_peak_ = std::max(latest_peak_, resident_locked());
}

void SwapEngine::State::account_small(Bytes size, PinSet* within) {
  const std::uint64_t now = small_bytes_.fetch_add(size.count()) + size.count();
  if (now <= small_granted_.load(std::memory_order_relaxed)) return;
  Lock lock(mutex_);
  std::vector<memory::SlotId> frames;
  try {
    while (small_bytes_.load() > small_granted_.load()) {
      if (pool_->limit() <= kLeastFrames) refuse_locked(kLeastFrames + 1, within);
      if (pool_->existing_frames() >= pool_->limit()) {
        // The frame is taken and destroyed at once: its bytes now belong to the heap.
        frames.clear();
        const bool holds_pins = within != nullptr && within->engine_ != nullptr;
        acquire_frames_locked(lock, frames, 1, holds_pins ? within : nullptr);
        pool_->put_frame(frames.front());
      }
      pool_->set_limit(pool_->limit() - 1);
      small_granted_.fetch_add(page_size_.count());
    }
  } catch (...) {
    small_bytes_.fetch_sub(size.count());
    throw;
  }
  counts_.small_peak = std::max(counts_.small_peak, Bytes(small_granted_.load()));
  counts_.live_peak = std::max(counts_.live_peak, counts_.live + Bytes(small_bytes_.load()));
  note_counted_locked();
}

void SwapEngine::State::release_small(Bytes size) noexcept {
  const std::uint64_t slack = kSmallStepsAhead * page_size_.count();
  const std::uint64_t now = small_bytes_.fetch_sub(size.count()) - size.count();
  if (now + 2 * slack > small_granted_.load(std::memory_order_relaxed)) return;
  Lock lock(mutex_);
  while (small_bytes_.load() + slack < small_granted_.load()) {
    small_granted_.fetch_sub(page_size_.count());
    pool_->set_limit(pool_->limit() + 1);
  }
  wake_waiters_locked();
}

std::uint32_t SwapEngine::State::storage_pages() const noexcept {
  const std::uint64_t small = small_granted_.load(std::memory_order_relaxed) / page_size_.count();
  return static_cast<std::uint32_t>(budget_pages_ - std::min(small, budget_pages_));
}

SwapStatistics SwapEngine::State::statistics() {
  const StoreReport report = store_->report();
  Lock lock(mutex_);
  SwapStatistics now = counts_;
  now.counted = page_size_ * pool_->existing_frames() + Bytes(small_granted_.load());
  now.live = counts_.live + Bytes(small_bytes_.load());
  now.store = report;
  return now;
}

Bytes SwapEngine::State::resident_locked() const {
  return page_size_ * (pool_->existing_frames() - pool_->free_frames()) +
         Bytes(small_granted_.load());
}

Bytes SwapEngine::State::take_peak() {
  Lock lock(mutex_);
  return std::exchange(latest_peak_, resident_locked());
}

}  // namespace spillway::swap
