#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "spillway/base/bytes.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {

class MemoryBudget;

/// Bytes that are counted against a budget until this guard dies. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  bool is_granted() const { return budget_ != nullptr; }
  Bytes size() const { return size_; }

  /// Leaves the bytes counted; whoever takes them over calls `MemoryBudget::release_small`.
  Bytes keep();

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget& budget, Bytes size) : budget_(&budget), size_(size) {}

  MemoryBudget* budget_ = nullptr;
  Bytes size_;
};

/// Counts what one tier holds: frames and blocks too small for frames, together never more than the
/// limit. The only place where that promise is kept, so nothing takes bytes around it. It grants or
/// refuses; making room is the caller's. Thread-safe and lock-free.
class MemoryBudget {
 public:
  explicit MemoryBudget(Bytes limit);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// Count `frames` more, or return false and change nothing.
  [[nodiscard]] bool try_take_frames(std::size_t frames) noexcept;
  void release_frames(std::size_t frames) noexcept;

  /// Count `size` bytes of a small block, or return false and change nothing.
  [[nodiscard]] bool try_take_small(Bytes size) noexcept;
  void release_small(Bytes size) noexcept;
  /// The same behind a guard; not granted when there is no room.
  [[nodiscard]] Reservation reserve_small(Bytes size) noexcept;

  /// Notes storages that live, in this tier or spilled. For statistics; nothing is refused.
  void add_live(Bytes size) noexcept;
  void remove_live(Bytes size) noexcept;

  Bytes limit() const { return limit_; }
  Bytes counted() const noexcept { return read(counted_); }
  Bytes small() const noexcept { return read(small_); }
  Bytes frames() const noexcept;  ///< Bytes in frames; exact while no other thread counts.
  Bytes room() const noexcept { return limit_ - counted(); }
  /// Frames that would still be granted.
  std::size_t frames_that_fit() const noexcept { return room() / kPageSize; }

  Bytes counted_peak() const noexcept { return read(counted_peak_); }
  Bytes small_peak() const noexcept { return read(small_peak_); }
  Bytes live() const noexcept { return read(live_); }
  Bytes live_peak() const noexcept { return read(live_peak_); }

 private:
  using Counter = std::atomic<std::uint64_t>;

  static Bytes read(const Counter& counter) noexcept {
    return Bytes(counter.load(std::memory_order_relaxed));
  }
  static void raise_to(Counter& peak, std::uint64_t value) noexcept;
  static void add(Counter& counter, Counter& peak, Bytes size) noexcept;
  static void subtract(Counter& counter, Bytes size) noexcept;
  bool try_count(Bytes size) noexcept;

  const Bytes limit_;
  Counter counted_{0};
  Counter counted_peak_{0};
  Counter small_{0};
  Counter small_peak_{0};
  Counter live_{0};
  Counter live_peak_{0};
};

}  // namespace spillway::memory
