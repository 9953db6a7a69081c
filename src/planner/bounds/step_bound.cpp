#include <algorithm>
#include <limits>

#include "partial_bounds.h"
#include "recompute_costs.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {
namespace {

/// Pages that every plan moves per step, found at one operator: a cut through the endless
/// repetition.
///
/// A group is what one transfer serves: an interval for reads, an epoch for writes. The step
/// repeats, so a cut may meet several repetitions of one group at once, and m of its copies that
/// stay out there cost one transfer per step, not m. Idle copies that stay resident at a cut share
/// the room that the needs of its operator leave. Hence, with w_g pages moved per step for group g,
///
///     sum over g of m_g * (pages_g - w_g) <= room,    0 <= w_g <= pages_g,
///
/// on average over the repetitions too. The sum of w_g is least when the room goes to groups with
/// few copies at the cut first.
class CutBound {
 public:
  CutBound(std::size_t op_count, std::size_t group_count)
      : op_count_(op_count), copies_(group_count, 0), pages_(group_count, 0) {}

  void add(std::uint32_t group, const Interval& interval) {
    pages_[group] = interval.pages;
    copies_[group] += static_cast<std::uint32_t>(interval.covered_ops / op_count_);
    const std::size_t rest = interval.covered_ops % op_count_;
    // It is out at every cut alike.
    if (rest == 0) return;
    const std::size_t first = (interval.begin + std::size_t{1}) % op_count_;
    const std::size_t end = first + rest;
    // Open where the sweep begins, since it goes over the end of the step.
    if (end > op_count_) ++copies_[group];
    change(first, group, 1);
    if (end != op_count_) change(end % op_count_, group, -1);
  }

  /// The most that a cut shows, where `rooms` are the pages that operators leave for idle values.
  std::uint64_t most_moved(const std::vector<std::int64_t>& rooms) {
    for (std::uint32_t group = 0; group < copies_.size(); ++group) count(group, 1);
    const PerOp changes = group_by_op(change_ops_, op_count_);
    std::uint64_t most = 0;
    for (OpIndex op = 0; op < op_count_; ++op) {
      // Only what changes is counted anew, so that all cuts together take as long as the intervals
      // are many.
      for (const std::uint32_t i : changes.of(op)) {
        const Change& change = changes_[i];
        count(change.group, -1);
        copies_[change.group] += static_cast<std::uint32_t>(change.by);
        count(change.group, 1);
      }
      most = std::max(most, moved_at_cut(rooms[op]));
    }
    return most;
  }

 private:
  struct Change {
    std::uint32_t group;
    std::int32_t by;
  };

  void change(std::size_t op, std::uint32_t group, std::int32_t by) {
    change_ops_.push_back(static_cast<OpIndex>(op));
    changes_.push_back({group, by});
  }

  void count(std::uint32_t group, std::int64_t sign) {
    const std::size_t copies = copies_[group];
    if (copies >= idle_pages_.size()) idle_pages_.resize(copies + 1, 0);
    idle_pages_[copies] += sign * std::int64_t{pages_[group]};
  }

  std::uint64_t moved_at_cut(std::int64_t room) const {
    room = std::max<std::int64_t>(room, 0);
    std::int64_t moved = 0;
    // Fewest copies first: a page of room saves a whole transfer there, and a part of one
    // elsewhere.
    for (std::size_t copies = 1; copies < idle_pages_.size(); ++copies) {
      const auto each = static_cast<std::int64_t>(copies);
      // Rounded in favour of the plan, whose repetitions need not be equal.
      const std::int64_t kept = std::min(idle_pages_[copies], (room + each - 1) / each);
      room -= std::min(room, kept * each);
      moved += idle_pages_[copies] - kept;
    }
    return static_cast<std::uint64_t>(moved);
  }

  const std::size_t op_count_;
  std::vector<std::uint32_t> copies_;  ///< Per group: idle at once, where the sweep is.
  std::vector<std::uint32_t> pages_;
  std::vector<std::int64_t> idle_pages_;  ///< By number of copies: pages of one copy of each group.
  std::vector<OpIndex> change_ops_;
  std::vector<Change> changes_;
};

/// By more than rounding.
bool is_larger(double seconds, double than) { return seconds > than * (1.0 + 1e-9); }

/// Takes over time and reason of a bound that is larger.
void take(const StepBound& larger, StepBound& bound) {
  bound.step_seconds = larger.step_seconds;
  bound.kind = larger.kind;
  bound.from = larger.from;
  bound.to = larger.to;
  bound.recomputed_share = larger.recomputed_share;
  bound.recompute_seconds = larger.recompute_seconds;
}

/// The groups of all cuts; those that can be recomputed belong to none.
CutBound read_groups(const StepTape& tape, const TouchIntervals& touches,
                     const std::vector<RecomputeCost>& costs) {
  CutBound reads(tape.ops.size(), touches.intervals.size());
  for (std::uint32_t i = 0; i < touches.intervals.size(); ++i) {
    if (costs[i].is_possible) continue;
    const Interval& interval = touches.intervals[i];
    if (interval.end == IntervalEnd::kUsed) reads.add(i, interval);
  }
  return reads;
}

CutBound write_groups(const StepTape& tape, const TouchIntervals& touches,
                      const std::vector<RecomputeCost>& costs) {
  CutBound writes(tape.ops.size(), touches.epoch_count);
  for (std::uint32_t i = 0; i < touches.intervals.size(); ++i) {
    if (costs[i].is_possible) continue;
    const Interval& interval = touches.intervals[i];
    if (interval.epoch != kNeverWritten) writes.add(interval.epoch, interval);
  }
  return writes;
}

/// Compute, transfers and windows.
StepBound quick_bound(const StepTape& tape, const SwapLimits& limits) {
  StepBound bound;
  for (const auto& op : tape.ops) bound.compute_seconds += seconds(op.time);
  bound.step_seconds = bound.compute_seconds;
  if (tape.ops.empty()) return bound;
  const TouchIntervals touches = find_intervals(tape);
  // Nothing here charges for parents, so none takes a share.
  const std::vector<RecomputeCost> costs =
      recompute_costs(tape, touches, std::vector<bool>(touches.intervals.size(), true), 0);
  std::vector<std::int64_t> rooms;
  const std::vector<std::uint32_t> needs = needs_of_ops(tape);
  // Below zero where an operator alone exceeds the budget: then no plan exists, and a bound need
  // not be tight.
  for (const std::uint32_t need : needs) rooms.push_back(std::int64_t{limits.budget_pages} - need);
  const StepBound windows = bound_windows(tape, needs, limits, walk_costs(tape, touches, costs));
  bound.written_pages =
      std::max(write_groups(tape, touches, costs).most_moved(rooms), windows.written_pages);
  bound.read_pages =
      std::max(read_groups(tape, touches, costs).most_moved(rooms), windows.read_pages);
  const double moving = transfer_seconds(static_cast<double>(bound.written_pages),
                                         static_cast<double>(bound.read_pages), limits);
  if (is_larger(moving, bound.step_seconds)) {
    bound.step_seconds = moving;
    bound.kind = BoundKind::kTransfers;
  }
  if (is_larger(windows.step_seconds, bound.step_seconds)) take(windows, bound);
  return bound;
}

}  // namespace

const char* name_of(BoundKind kind) {
  switch (kind) {
    case BoundKind::kCompute: return "compute";
    case BoundKind::kTransfers: return "transfers";
    case BoundKind::kWindow: return "window";
    case BoundKind::kFluid: return "fluid";
  }
  return "unknown";
}

namespace {

/// What memory and near tier together leave to the far one: a step with one store again.
SwapLimits far_limits(const SwapLimits& limits) {
  SwapLimits far = limits;
  far.far.reset();
  far.rates = rates_behind(limits.rates, limits.far->rates);
  const std::uint64_t pages = std::uint64_t{limits.budget_pages} + limits.far->near_pages;
  // Host memory may hold more pages than a budget can count.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  far.budget_pages = static_cast<std::uint32_t>(std::min(pages, kMost));
  return far;
}

StepBound bound_one_tier(const StepTape& tape, const SwapLimits& limits,
                         const BoundOptions& options) {
  StepBound bound = quick_bound(tape, limits);
  if (options.solver == nullptr || tape.ops.empty()) return bound;
  const StepBound fluid = bound_fluid(tape, needs_of_ops(tape), limits, options);
  if (is_larger(fluid.step_seconds, bound.step_seconds)) take(fluid, bound);
  return bound;
}

}  // namespace

StepBound bound_plan(const StepTape& tape, const SwapLimits& limits, const BoundOptions& options) {
  StepBound near = bound_one_tier(tape, limits, options);
  if (!limits.far) return near;
  StepBound far = bound_one_tier(tape, far_limits(limits), options);
  far.is_of_far_tier = true;
  return is_larger(far.step_seconds, near.step_seconds) ? far : near;
}

std::uint32_t smallest_budget(const StepTape& tape) {
  const auto needs = needs_of_ops(tape);
  return needs.empty() ? 0 : *std::max_element(needs.begin(), needs.end());
}

OpIndex neediest_operator(const StepTape& tape) {
  const auto needs = needs_of_ops(tape);
  if (needs.empty()) return kNoOp;
  return static_cast<OpIndex>(std::max_element(needs.begin(), needs.end()) - needs.begin());
}

std::uint32_t live_peak(const StepTape& tape) {
  const auto levels = live_pages(tape);
  return levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
}

}  // namespace spillway::planner
