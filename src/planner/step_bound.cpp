#include <algorithm>

#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {
namespace {

/// Adds `pages` to the operators that an interval covers, as often as it covers them.
class CoverageSum {
 public:
  explicit CoverageSum(std::size_t op_count) : change_(op_count + 1, 0) {}

  void add(const Interval& interval) {
    const std::size_t op_count = change_.size() - 1;
    const std::size_t rounds = interval.covered_ops / op_count;
    const std::size_t rest = interval.covered_ops % op_count;
    const std::size_t first = (interval.begin + std::size_t{1}) % op_count;
    const auto pages = static_cast<std::int64_t>(interval.pages);
    everywhere_ += static_cast<std::int64_t>(rounds) * pages;
    change_[first] += pages;
    change_[std::min(first + rest, op_count)] -= pages;
    if (first + rest > op_count) {
      change_[0] += pages;
      change_[first + rest - op_count] -= pages;
    }
  }

  std::vector<std::int64_t> sums() const {
    std::vector<std::int64_t> sums;
    std::int64_t sum = everywhere_;
    for (std::size_t op = 0; op + 1 < change_.size(); ++op) sums.push_back(sum += change_[op]);
    return sums;
  }

 private:
  std::vector<std::int64_t> change_;
  std::int64_t everywhere_ = 0;
};

}  // namespace

StepBound bound_step(const StepTape& tape, const SwapLimits& limits) {
  StepBound bound;
  for (const auto& op : tape.ops) bound.compute_seconds += seconds(op.time);
  bound.step_seconds = bound.compute_seconds;
  if (tape.ops.empty()) return bound;
  const TouchIntervals touches = find_intervals(tape);
  CoverageSum without_write(tape.ops.size());
  CoverageSum without_read(tape.ops.size());
  for (const Interval& interval : touches.intervals) {
    if (interval.epoch == kNeverWritten) without_write.add(interval);
    if (interval.end != IntervalEnd::kUsed) without_read.add(interval);
  }
  const auto levels = gross_levels(tape);
  const auto free_of_writes = without_write.sums();
  const auto free_of_reads = without_read.sums();
  std::int64_t writes = 0;
  std::int64_t reads = 0;
  for (std::size_t op = 0; op < levels.size(); ++op) {
    const std::int64_t out = std::int64_t{levels[op]} - limits.budget_pages;
    writes = std::max(writes, out - free_of_writes[op]);
    reads = std::max(reads, out - free_of_reads[op]);
  }
  bound.written_pages = static_cast<std::uint64_t>(writes);
  bound.read_pages = static_cast<std::uint64_t>(reads);
  const auto page = static_cast<double>(limits.page_size.count());
  const double write_seconds = static_cast<double>(writes) * page / limits.write_bytes_per_second;
  const double read_seconds = static_cast<double>(reads) * page / limits.read_bytes_per_second;
  const double shorter = std::min(write_seconds, read_seconds);
  const double longer = std::max(write_seconds, read_seconds);
  // Either one after the other, or side by side as long as both have something to do.
  const double transfer =
      longer + std::min(shorter, shorter / limits.duplex_share - shorter);
  bound.step_seconds = std::max(bound.compute_seconds, transfer);
  return bound;
}

std::uint32_t smallest_budget(const StepTape& tape) {
  std::vector<OpIndex> counted_at(tape.values.size(), kNoOp);
  std::uint32_t smallest = 0;
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    std::uint32_t together = tape.ops[op].inside_peak_pages;
    for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i) {
      const ValueIndex used = tape.uses[tape.ops[op].first_use + i].value;
      if (counted_at[used] == op) continue;
      counted_at[used] = op;
      together += tape.values[used].pages;
    }
    smallest = std::max(smallest, together);
  }
  return smallest;
}

std::uint32_t live_peak(const StepTape& tape) {
  const auto levels = gross_levels(tape);
  return levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
}

}  // namespace spillway::planner
