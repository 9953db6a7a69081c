#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

enum class IntervalEnd : std::uint8_t {
  kUsed,   ///< An operator uses the value.
  kDies,   ///< The value is freed without another use.
  kStays,  ///< Nothing ends it within several periods.
};

inline constexpr std::uint32_t kNeverWritten = static_cast<std::uint32_t>(-1);

/// A stretch between two uses of a value, in which it may be out. The step repeats, so an interval
/// may go on in later periods, where the value has another number.
struct Interval {
  ValueIndex value = 0;           ///< As numbered at `begin`.
  OpIndex begin = 0;              ///< The operator that used it last.
  std::uint32_t covered_ops = 0;  ///< Operators after `begin` during which it may be out.
  std::uint32_t pages = 0;
  /// Intervals of one epoch lie between two writes of the value: one copy serves them all. Values
  /// that no step writes have their copy already.
  std::uint32_t epoch = kNeverWritten;
  IntervalEnd end = IntervalEnd::kUsed;
  /// Steps between the write that began the epoch and `begin`, as far as they touch the value:
  /// orders the intervals of an epoch, together with `begin`.
  std::uint32_t later_steps = 0;
};

/// The intervals of a tape and the static next uses that follow from them.
struct TouchIntervals {
  std::vector<Interval> intervals;         ///< By `begin`.
  std::vector<std::uint32_t> first_of_op;  ///< Intervals of begin i: [first_of_op[i], [i + 1]).
  std::uint32_t epoch_count = 0;
  std::vector<OpIndex> epoch_begin;         ///< The operator that writes; 0 where that is unknown.
  std::vector<std::uint32_t> use_distance;  ///< See SwapPlan.
  std::vector<std::uint32_t> birth_distance;  ///< See SwapPlan.
};

TouchIntervals find_intervals(const StepTape& tape);

/// The number of a value so many step boundaries later; kNoValue where it is none any more.
ValueIndex number_after(const StepTape& tape, ValueIndex value, std::uint64_t boundaries);

/// Pages live during each operator without any swapping, including the peak inside.
std::vector<std::uint32_t> live_pages(const StepTape& tape);

/// Pages by which the fullest operator exceeds the budget.
std::uint32_t excess_over(std::uint32_t budget_pages, const std::vector<std::uint32_t>& live);

/// Values by the operator of their birth, in order.
PerOp births_per_op(const StepTape& tape);
/// The same without shared pages: what another run of the operator makes.
PerOp made_per_op(const StepTape& tape);
/// Values by the operator of their death.
PerOp deaths_per_op(const StepTape& tape);

/// Groups `keys.size()` entries by key (an operator); kNoOp entries are left out. Stable.
PerOp group_by_op(const std::vector<OpIndex>& keys, std::size_t op_count);

}  // namespace spillway::planner
