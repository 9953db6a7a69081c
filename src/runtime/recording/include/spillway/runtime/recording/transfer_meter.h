#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/profile/transfer_rates.h"
#include "spillway/swap/transfer_observer.h"

namespace spillway::runtime {

/// Measures how fast the store is in this run: alone in each direction, and in both at once. What
/// was known before counts as if it had been seen too, and what was seen is forgotten by halves, so
/// that the rates follow a disk that somebody else takes.
class TransferMeter final : public swap::TransferObserver {
 public:
  struct Options {
    profile::TransferRates before;          ///< What is known, or guessed, without measuring.
    Bytes trust{std::uint64_t{64} << 20};   ///< So much as if it had been moved at these rates.
    Bytes horizon{std::uint64_t{4} << 30};  ///< Of each kind: halved when so much was moved.
  };

  explicit TransferMeter(const Options& options) : options_(options) {}

  void begin_transfer(const swap::Transfer& transfer, StorageId storage, bool is_awaited,
                      TimePoint at) override;
  void end_transfers(std::span<const swap::TransferResult> results, TimePoint at,
                     Bytes resident) override;
  void stood_still(TimePoint from, TimePoint until) override;

  /// As seen so far. Any thread.
  profile::TransferRates rates() const;

  /// What all transfers have moved so far, in both directions; it only grows. Half of a transfer
  /// counts at its begin, half at its end: in the mean that is when its bytes moved. Any thread.
  Bytes moved() const { return Bytes(moved_twice_.load(std::memory_order_relaxed) / 2); }

 private:
  /// What the store is doing: only writing, only reading, both.
  enum Kind : std::uint8_t { kWriting, kReading, kBoth, kKinds };
  using Times = std::array<double, kKinds>;

  struct Moved {
    double seconds = 0.0;
    double written = 0.0;  ///< Bytes.
    double read = 0.0;
  };

  void pass_time_locked(TimePoint at);
  void count_locked(const swap::TransferResult& result);

  const Options options_;
  std::atomic<std::uint64_t> moved_twice_{0};  ///< Bytes begun and bytes ended.
  mutable std::mutex mutex_;
  std::array<Moved, kKinds> moved_;
  Times passed_{};                                    ///< Seconds of each kind since the start.
  std::unordered_map<std::uint64_t, Times> started_;  ///< By tag: `passed_` when it began.
  std::uint32_t writes_ = 0;                          ///< Under way.
  std::uint32_t reads_ = 0;
  TimePoint last_{};
};

}  // namespace spillway::runtime
