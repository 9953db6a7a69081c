#pragma once

#include <memory>
#include <vector>

#include "spillway/planner/partition/partition_problem.h"

namespace spillway::partition {

/// Units [first, end) on a stage.
struct Segment {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  std::uint32_t stage = 0;
};

/// How border tensors count. The two others enclose the exact figure, and grow with the segment,
/// which the exact one need not.
enum class Borders : std::uint8_t { kExact, kNone, kLargest };

/// Ways in which a stage may reduce its memory.
enum class MemoryReduction : std::uint8_t { kNone, kRecompute, kSwapAndRecompute };

/// A segment as it runs before swaps and recomputation. Seconds and bytes of one micro-batch.
struct SegmentLoad {
  double seconds = 0.0;       ///< Forward and backward, and transfers that do not hide.
  double link_seconds = 0.0;  ///< Busy time of the busier link at its ends.
  double fixed_bytes = 0.0;   ///< Static bytes, relayed tensors, working peak, reserved.
  double stash_bytes = 0.0;   ///< Stash of its layers, and border tensors that they keep.
  double in_flight = 1.0;
  TransferRate swap_rate;

  double raw_bytes() const { return fixed_bytes + in_flight * stash_bytes; }
  /// Bytes per micro-batch that memory reduction has to take away so that `bytes` are left: at most
  /// 0 where none have to go, infinite where that is impossible.
  double excess_bytes(double bytes) const;
  /// Before any memory reduction: its layers, and the links at its ends.
  double busy_seconds() const;
};

/// Time and memory of any segment on any stage, before and after the best swaps and recomputation:
/// the measure of all partitioners. A **unit** is a layer, or layers that stay together; cuts lie
/// between units. Recomputation in fractions of layers (the bound); whole ones are chosen by
/// `partition_estimate.h`. Building takes O(n log n), figures O(1), those after memory reduction
/// O(log n).
///
///     bytes(T)   = fixed + in_flight * max(0, stash - saved(T - seconds) - T * rate)
///     seconds(X) = the least T with bytes(T) <= X
///
/// where saved(t) is the most stash that t seconds of recomputation save.
class SegmentCosts {
 public:
  /// Throws what check(problem) throws, and a ConfigError for a unit that fits on no device.
  explicit SegmentCosts(PartitionProblem problem);
  ~SegmentCosts();
  SegmentCosts(SegmentCosts&&) noexcept;
  SegmentCosts& operator=(SegmentCosts&&) noexcept;

  const PartitionProblem& problem() const;
  std::uint32_t units() const;
  std::uint32_t stages() const;
  LayerIndex first_layer(std::uint32_t unit) const;  ///< Of `units()`: the number of layers.

  SegmentLoad load(Segment segment, Borders borders = Borders::kExact) const;
  /// Bytes that a cut before `unit` sends in each direction: every tensor once.
  double crossing_bytes(std::uint32_t unit) const;
  double parameter_bytes(std::uint32_t first, std::uint32_t end) const;
  /// Bytes of the parameters of units [first, end), tied weights counted once.
  double held_parameter_bytes(std::uint32_t first, std::uint32_t end) const;
  /// Bytes of those parameters that are trained.
  double trained_bytes(std::uint32_t first, std::uint32_t end) const;
  double buffer_bytes(std::uint32_t first, std::uint32_t end) const;
  /// Forward and backward on a device of slowdown 1.
  double layer_seconds(std::uint32_t first, std::uint32_t end) const;
  /// All of a stage that moves with its layers at a flush: weights, states and buffers, each once.
  double static_bytes(std::uint32_t first, std::uint32_t end) const;
  double device_bytes(std::uint32_t stage) const;  ///< Infinite without a limit.

  /// Least time per micro-batch within so many bytes; infinite where nothing helps.
  double least_seconds(Segment segment, double bytes, Borders borders = Borders::kExact,
                       MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute) const;
  /// Least memory at so many seconds per micro-batch; infinite where it takes longer anyway.
  double least_bytes(Segment segment, double seconds, Borders borders = Borders::kExact,
                     MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute) const;
  bool is_monotone() const;  ///< Borders cost nothing here.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::partition
