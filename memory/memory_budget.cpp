#include "spillway/memory/memory_budget.h"

#include <utility>

#include "spillway/base/assert.h"

// All counters are relaxed: each is correct by itself, and none publishes other memory.
namespace spillway::memory {

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), size_(std::exchange(other.size_, Bytes())) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Reservation incoming(std::move(other));
  std::swap(budget_, incoming.budget_);
  std::swap(size_, incoming.size_);
  return *this;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->release_small(size_);
}

Bytes Reservation::keep() {
  budget_ = nullptr;
  return std::exchange(size_, Bytes());
}

MemoryBudget::MemoryBudget(Bytes limit) : limit_(limit) {}

bool MemoryBudget::try_take_frames(std::size_t frames) noexcept {
  return try_count(frames * kPageSize);
}

void MemoryBudget::release_frames(std::size_t frames) noexcept {
  subtract(counted_, frames * kPageSize);
}

bool MemoryBudget::try_take_small(Bytes size) noexcept {
  if (!try_count(size)) return false;
  add(small_, small_peak_, size);
  return true;
}

void MemoryBudget::release_small(Bytes size) noexcept {
  subtract(small_, size);
  subtract(counted_, size);
}

Reservation MemoryBudget::reserve_small(Bytes size) noexcept {
  return try_take_small(size) ? Reservation(*this, size) : Reservation();
}

void MemoryBudget::add_live(Bytes size) noexcept { add(live_, live_peak_, size); }

void MemoryBudget::remove_live(Bytes size) noexcept { subtract(live_, size); }

Bytes MemoryBudget::frames() const noexcept {
  const Bytes all = counted();
  const Bytes in_blocks = small();
  return all > in_blocks ? all - in_blocks : Bytes();
}

bool MemoryBudget::try_count(Bytes size) noexcept {
  std::uint64_t before = counted_.load(std::memory_order_relaxed);
  do {
    SPILLWAY_ASSERT(before <= limit_.count());
    if (size.count() > limit_.count() - before) return false;
  } while (
      !counted_.compare_exchange_weak(before, before + size.count(), std::memory_order_relaxed));
  raise_to(counted_peak_, before + size.count());
  return true;
}

void MemoryBudget::raise_to(Counter& peak, std::uint64_t value) noexcept {
  std::uint64_t highest = peak.load(std::memory_order_relaxed);
  while (highest < value &&
         !peak.compare_exchange_weak(highest, value, std::memory_order_relaxed)) {
  }
}

void MemoryBudget::add(Counter& counter, Counter& peak, Bytes size) noexcept {
  raise_to(peak, counter.fetch_add(size.count(), std::memory_order_relaxed) + size.count());
}

void MemoryBudget::subtract(Counter& counter, Bytes size) noexcept {
  const std::uint64_t before = counter.fetch_sub(size.count(), std::memory_order_relaxed);
  SPILLWAY_ASSERT(before >= size.count());
}

}  // namespace spillway::memory
