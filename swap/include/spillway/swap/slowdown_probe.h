#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "spillway/base/clock.h"

namespace spillway::swap {

/// What processors compute while a store moves bytes. Tests give their own.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Rounds of equal work that are done; it only grows.
  virtual std::uint64_t rounds() const = 0;
  /// Lets the time pass, while nothing but the work goes on.
  virtual void wait(Duration time) = 0;
};

/// Threads on all processors of this process that compute, half of the time in their caches and
/// half from memory, and meet after each round, as the threads of an operator do. They end with it.
std::unique_ptr<Workload> make_workload();

/// One measurement of a workload, alone and beside transfers.
struct SlowdownSample {
  double alone = 0.0;   ///< Rounds per second, right before and after.
  double beside = 0.0;  ///< The same while bytes moved.
  double bytes_per_second = 0.0;
};

/// Seconds that a moved byte costs: c where work that takes T alone takes T + c · bytes beside
/// them. Median of the samples, 0 where the work was no slower. None when they disagree: fewer than
/// three, quartiles further apart than their median (or 10 ps per byte), or more than 1 ns per
/// byte.
std::optional<double> slowdown_per_byte(std::span<const SlowdownSample> samples);

/// Bytes per second of which one processor takes the checksum that `--verify` takes.
double measure_checksums(const Clock& clock);

}  // namespace spillway::swap
