#pragma once

#include <algorithm>
#include <utility>

#include "plain_figures.h"
#include "spillway/planner/partition/segment_costs.h"

namespace spillway::partition {

/// Units and stages that are cut anew, both ends [first, end).
struct CutRange {
  std::uint32_t first_unit = 0;
  std::uint32_t end_unit = 0;
  std::uint32_t first_stage = 0;
  std::uint32_t end_stage = 0;

  std::uint32_t units() const { return end_unit - first_unit; }
  std::uint32_t stages() const { return end_stage - first_stage; }
};

inline CutRange whole(const SegmentCosts& costs) { return {0, costs.units(), 0, costs.stages()}; }

/// What the worst segment shall have as little of as possible. `cost` of kNone and kLargest
/// encloses that of kExact, and does not fall when a segment grows on its stage.
class SegmentGoal {
 public:
  virtual ~SegmentGoal() = default;
  /// Infinite where the stage cannot run the segment.
  virtual double cost(Segment segment, Borders borders) const = 0;
  /// Quickly, whether the exact cost is at most `at`; false where that takes longer to tell.
  virtual bool is_surely_within(Segment /*segment*/, double /*at*/) const { return false; }
  /// kExact is monotone, too.
  virtual bool is_monotone() const = 0;
};

/// Least time per micro-batch of a stage that stays within its device.
class TimeGoal : public SegmentGoal {
 public:
  explicit TimeGoal(const SegmentCosts& costs,
                    MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute)
      : costs_(costs), memory_reduction_(memory_reduction) {}

  double cost(Segment segment, Borders borders) const override {
    return costs_.least_seconds(segment, costs_.device_bytes(segment.stage), borders,
                                memory_reduction_);
  }
  bool is_monotone() const override { return costs_.is_monotone(); }

 private:
  const SegmentCosts& costs_;
  const MemoryReduction memory_reduction_;
};

/// Least memory of a stage that takes at most so long per micro-batch, and stays within its device.
class MemoryGoal : public SegmentGoal {
 public:
  MemoryGoal(const SegmentCosts& costs, double seconds,
             MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute)
      : costs_(costs), seconds_(seconds), memory_reduction_(memory_reduction) {}

  double cost(Segment segment, Borders borders) const override {
    const double bytes = costs_.least_bytes(segment, seconds_, borders, memory_reduction_);
    return bytes <= costs_.device_bytes(segment.stage) ? bytes : kNever;
  }
  bool is_surely_within(Segment segment, double at) const override {
    return costs_.least_bytes(segment, seconds_, Borders::kExact, MemoryReduction::kNone) <=
           std::min(at, costs_.device_bytes(segment.stage));
  }
  bool is_monotone() const override { return costs_.is_monotone(); }

 private:
  const SegmentCosts& costs_;
  const double seconds_;
  const MemoryReduction memory_reduction_;
};

/// A cost as published partitioners count it. `least_bottleneck` finds the least for those that do
/// not fall when a segment grows, and cuts that may be worse for others; `balanced_by_table`, which
/// looks at every segment that costs no more than these, finds the least for any.
template <typename CostOf>
class RawGoal : public SegmentGoal {
 public:
  explicit RawGoal(CostOf cost_of) : cost_of_(std::move(cost_of)) {}

  double cost(Segment segment, Borders /*borders*/) const override { return cost_of_(segment); }
  bool is_monotone() const override { return true; }

 private:
  const CostOf cost_of_;
};

}  // namespace spillway::partition
