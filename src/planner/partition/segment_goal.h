#pragma once

#include <algorithm>

#include "plain_figures.h"
#include "spillway/planner/partition/segment_costs.h"

namespace spillway::planner {

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
  using SharedLink = SegmentCosts::SharedLink;

  virtual ~SegmentGoal() = default;
  /// Infinite where the stage cannot run the segment.
  virtual double cost(Segment segment, Borders borders) const = 0;
  /// Quickly, whether the exact cost is at most `at`; false where that takes longer to tell.
  virtual bool is_surely_within(Segment /*segment*/, double /*at*/) const { return false; }
  /// kExact is monotone, too, and nothing is shared.
  virtual bool is_monotone() const = 0;

  /// Returns what a segment on a stage with a shared link needs of that link when the worst segment
  /// may cost `at`; infinite where even all of it does not do.
  virtual double need(Segment segment, double at) const {
    return cost(segment, Borders::kExact) <= at ? 0.0 : kNever;
  }
  virtual const std::vector<SharedLink>& shared_links() const {
    static const std::vector<SharedLink> none;
    return none;
  }
  virtual double budget(const SharedLink& /*link*/, double /*at*/) const { return kNever; }
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
  double need(Segment segment, double at) const override {
    return costs_.swap_need(segment, at, costs_.device_bytes(segment.stage));
  }
  const std::vector<SharedLink>& shared_links() const override {
    return memory_reduction_ == MemoryReduction::kSwapAndRecompute ? costs_.shared_links()
                                                                   : SegmentGoal::shared_links();
  }
  double budget(const SharedLink& link, double at) const override {
    return carried_bytes(at, link.bytes_per_second);
  }

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
  double need(Segment segment, double at) const override {
    return costs_.swap_need(segment, seconds_, std::min(at, costs_.device_bytes(segment.stage)));
  }
  const std::vector<SharedLink>& shared_links() const override {
    return memory_reduction_ == MemoryReduction::kSwapAndRecompute ? costs_.shared_links()
                                                                   : SegmentGoal::shared_links();
  }
  double budget(const SharedLink& link, double /*at*/) const override {
    return carried_bytes(seconds_, link.bytes_per_second);
  }

 private:
  const SegmentCosts& costs_;
  const double seconds_;
  const MemoryReduction memory_reduction_;
};

}  // namespace spillway::planner
