#include "touch_intervals.h"

#include <algorithm>

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::TapeUse;
using profile::TapeValue;

namespace {

// Values that nobody touches for so many periods count as unused for good.
constexpr std::uint32_t kPeriodsAhead = 4;
// Values that a storage may be in turn before its life is taken for a closed loop.
constexpr std::uint32_t kLongestChain = 64;

/// One walk over the operators, then one over the values for what leads over the end of the step:
///
///     value 7    born . used . . . |                       becomes value 2
///     value 2                      | . . used . . dies
///                         \_________________/               one interval of value 7, one epoch
///
/// The next step has the same operators, so what follows the last touch of a value is what precedes
/// the first one of the value that it becomes. Nothing else of the next step is needed.
class IntervalFinder {
 public:
  explicit IntervalFinder(const StepTape& tape)
      : tape_(tape),
        op_count_(static_cast<OpIndex>(tape.ops.size())),
        touches_(tape.values.size()) {
    found_.use_distance.assign(tape.uses.size(), kDiesUnused);
    found_.birth_distance.assign(tape.values.size(), kDiesUnused);
  }

  TouchIntervals find() {
    mark_predecessors();
    const PerOp births = births_per_op(tape_);
    for (OpIndex op = 0; op < op_count_; ++op) {
      const std::uint32_t first = tape_.ops[op].first_use;
      const auto count = static_cast<std::uint32_t>(touches_of(tape_, op).size());
      for (std::uint32_t i = 0; i < count; ++i) touch(op, first + i);
      for (const ValueIndex value : births.of(op)) {
        Touches& born = touches_[value];
        born.last = op;
        born.last_slot = &found_.birth_distance[value];
        // A birth is a write: what was born has no copy in the store.
        born.epoch = new_epoch(op);
      }
      // Behind the touches of operator 0, which would be their first otherwise.
      if (op == 0) enter_strangers();
    }
    // Only now all first touches are known, to which the last ones lead over the boundary.
    for (ValueIndex i = 0; i < touches_.size(); ++i) close(i);
    for (ValueIndex i = 0; i < touches_.size(); ++i) add_idle(i);
    resolve_epochs();
    sort_by_begin();
    return std::move(found_);
  }

 private:
  struct Touches {
    OpIndex first = kNoOp;
    OpIndex last = kNoOp;
    std::uint32_t* last_slot = nullptr;  ///< Where the distance from `last` belongs.
    std::uint32_t epoch = kNeverWritten;
    ValueIndex predecessor = kNoValue;
    bool is_visited = false;  ///< Its idle period is part of another value's interval.
  };

  void mark_predecessors() {
    for (ValueIndex i = 0; i < touches_.size(); ++i) {
      if (tape_.values[i].becomes != kNoValue) touches_[tape_.values[i].becomes].predecessor = i;
    }
  }

  std::uint32_t new_epoch(OpIndex begin) {
    found_.epoch_begin.push_back(begin);
    inherits_.push_back(kNoValue);
    return static_cast<std::uint32_t>(inherits_.size() - 1);
  }

  void enter_carried(ValueIndex value) {
    Touches& touches = touches_[value];
    touches.epoch = new_epoch(0);
    inherits_.back() = touches.predecessor;
  }

  /// Carried-in values of unknown past are resident at operator 0 and may leave after it.
  void enter_strangers() {
    for (ValueIndex i = 0; i < touches_.size(); ++i) {
      Touches& touches = touches_[i];
      const bool is_carried = tape_.values[i].birth == kCarriedIn;
      if (!is_carried || touches.predecessor != kNoValue || touches.last != kNoOp) continue;
      enter_carried(i);
      touches.last = 0;
      touches.last_slot = &found_.birth_distance[i];
    }
  }

  void touch(OpIndex op, std::uint32_t use_index) {
    const TapeUse& use = tape_.uses[use_index];
    Touches& touches = touches_[use.value];
    if (touches.last == kNoOp) {
      enter_carried(use.value);
      touches.first = op;
      if (touches.predecessor == kNoValue) found_.birth_distance[use.value] = op;
      // An operator may read a value by two of its arguments: that is one touch, and no interval.
    } else if (touches.last != op) {
      *touches.last_slot = op - touches.last;
      add(use.value, touches, op - touches.last - 1, IntervalEnd::kUsed);
    }
    touches.last = op;
    touches.last_slot = &found_.use_distance[use_index];
    if (use.writes) touches.epoch = new_epoch(op);
  }

  void add(ValueIndex value, const Touches& touches, std::uint32_t covered, IntervalEnd end) {
    // Used by neighbouring operators: there is no moment at which it could be out.
    if (covered == 0) return;
    found_.intervals.push_back(
        {value, touches.last, covered, tape_.values[value].pages, touches.epoch, end});
  }

  /// Follows a value from its last touch over step boundaries to what happens to it next.
  void close(ValueIndex value) {
    Touches& touches = touches_[value];
    if (touches.last == kNoOp) return;
    const TapeValue& here = tape_.values[value];
    // Until another use is found. The slot is where the distance from the last touch belongs, a use
    // or the birth.
    *touches.last_slot = kDiesUnused;
    if (here.death != kSurvives) {
      add(value, touches, here.death - touches.last, IntervalEnd::kDies);
      return;
    }
    std::uint32_t covered = op_count_ - touches.last - 1;
    ValueIndex next = here.becomes;
    for (std::uint32_t period = 0; period < kPeriodsAhead && next != kNoValue; ++period) {
      if (touches_[next].first != kNoOp) {
        covered += touches_[next].first;
        *touches.last_slot = covered + 1;
        found_.birth_distance[next] = touches_[next].first;
        add(value, touches, covered, IntervalEnd::kUsed);
        return;
      }
      // Its idle time is part of this interval, and must not become another one.
      touches_[next].is_visited = true;
      if (tape_.values[next].death != kSurvives) {
        add(value, touches, covered + tape_.values[next].death + 1, IntervalEnd::kDies);
        return;
      }
      covered += op_count_;
      next = tape_.values[next].becomes;
    }
    if (next != kNoValue) *touches.last_slot = kStaysUnused;
    add(value, touches, covered, next == kNoValue ? IntervalEnd::kDies : IntervalEnd::kStays);
  }

  /// Live for the whole step, untouched, and no continuation of a touched value.
  void add_idle(ValueIndex value) {
    const Touches& touches = touches_[value];
    if (touches.last != kNoOp || touches.is_visited || op_count_ == 0) return;
    if (tape_.values[value].death != kSurvives) return;
    found_.birth_distance[value] = kStaysUnused;
    found_.intervals.push_back({value, op_count_ - 1, op_count_, tape_.values[value].pages,
                                kNeverWritten, IntervalEnd::kStays});
  }

  /// The value itself or the nearest one before it that the step touches.
  ValueIndex last_touched(ValueIndex value) const {
    for (std::size_t hops = 0; value != kNoValue && hops < touches_.size(); ++hops) {
      if (touches_[value].last != kNoOp) return value;
      value = touches_[value].predecessor;
    }
    return kNoValue;
  }

  /// Ties the epoch with which a step begins to the one with which the previous one ended.
  void resolve_epochs() {
    found_.epoch_count = static_cast<std::uint32_t>(inherits_.size());
    std::vector<std::uint32_t> resolved(inherits_.size());
    std::vector<std::uint32_t> steps(inherits_.size(), 0);
    for (std::uint32_t epoch = 0; epoch < resolved.size(); ++epoch) {
      std::uint32_t source = epoch;
      for (std::uint32_t hops = 0; source != kNeverWritten; ++hops) {
        const ValueIndex predecessor = last_touched(inherits_[source]);
        if (predecessor == kNoValue) break;
        // One copy serves the intervals on both sides of the boundary, if no operator writes in
        // between: so they have to be one epoch, although the value has two numbers.
        const std::uint32_t next = touches_[predecessor].epoch;
        // Coming back to the start means that no operator of the step writes the value.
        const bool is_loop = next == epoch || next == source || hops > kLongestChain;
        source = is_loop ? kNeverWritten : next;
        steps[epoch] = hops + 1;
      }
      resolved[epoch] = source;
    }
    for (Interval& interval : found_.intervals) {
      if (interval.epoch == kNeverWritten) continue;
      interval.later_steps = steps[interval.epoch];
      interval.epoch = resolved[interval.epoch];
    }
  }

  void sort_by_begin() {
    std::vector<OpIndex> begins;
    begins.reserve(found_.intervals.size());
    for (const Interval& interval : found_.intervals) begins.push_back(interval.begin);
    PerOp grouped = group_by_op(begins, op_count_);
    std::vector<Interval> sorted;
    sorted.reserve(begins.size());
    for (const std::uint32_t i : grouped.entries) sorted.push_back(found_.intervals[i]);
    found_.intervals = std::move(sorted);
    found_.first_of_op = std::move(grouped.first);
  }

  const StepTape& tape_;
  const OpIndex op_count_;
  std::vector<Touches> touches_;
  std::vector<ValueIndex> inherits_;  ///< Per epoch: the value whose last epoch it continues.
  TouchIntervals found_;
};

template <typename OpOf>
PerOp values_per_op(const StepTape& tape, const OpOf& op_of) {
  std::vector<OpIndex> keys;
  keys.reserve(tape.values.size());
  for (const TapeValue& value : tape.values) keys.push_back(op_of(value));
  return group_by_op(keys, tape.ops.size());
}

}  // namespace

TouchIntervals find_intervals(const StepTape& tape) { return IntervalFinder(tape).find(); }

ValueIndex number_after(const StepTape& tape, ValueIndex value, std::uint64_t boundaries) {
  for (; boundaries > 0 && value != profile::kNoValue; --boundaries)
    value = tape.values[value].becomes;
  return value;
}

std::vector<std::uint32_t> live_pages(const StepTape& tape) {
  const std::size_t op_count = tape.ops.size();
  std::vector<std::int64_t> change(op_count + 1, 0);
  for (const TapeValue& value : tape.values) {
    // During the operator that makes a value its pages are part of the peak inside, so they count
    // from the next one on.
    const std::size_t from = value.birth == kCarriedIn ? 0 : value.birth + std::size_t{1};
    const std::size_t to = value.death == kSurvives ? op_count : value.death + std::size_t{1};
    if (from >= to) continue;
    change[from] += value.pages;
    change[to] -= value.pages;
  }
  std::vector<std::uint32_t> levels(op_count);
  std::int64_t live = 0;
  for (std::size_t op = 0; op < op_count; ++op) {
    live += change[op];
    levels[op] = static_cast<std::uint32_t>(live) + tape.ops[op].inside_peak_pages;
  }
  return levels;
}

std::uint32_t excess_over(std::uint32_t budget_pages, const std::vector<std::uint32_t>& live) {
  const auto most = std::max_element(live.begin(), live.end());
  return most == live.end() ? 0 : *most - std::min(*most, budget_pages);
}

PerOp births_per_op(const StepTape& tape) {
  return values_per_op(tape, [](const TapeValue& value) { return value.birth; });
}

PerOp made_per_op(const StepTape& tape) {
  return values_per_op(
      tape, [](const TapeValue& value) { return value.is_shared ? kNoOp : value.birth; });
}

PerOp deaths_per_op(const StepTape& tape) {
  return values_per_op(tape, [](const TapeValue& value) { return value.death; });
}

PerOp group_by_op(const std::vector<OpIndex>& keys, std::size_t op_count) {
  PerOp grouped;
  grouped.first.assign(op_count + 1, 0);
  for (const OpIndex key : keys) {
    if (key != kNoOp) ++grouped.first[key + std::size_t{1}];
  }
  for (std::size_t op = 0; op < op_count; ++op) grouped.first[op + 1] += grouped.first[op];
  grouped.entries.resize(grouped.first[op_count]);
  std::vector<std::uint32_t> next(grouped.first.begin(), grouped.first.end() - 1);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != kNoOp) grouped.entries[next[keys[i]]++] = i;
  }
  return grouped;
}

}  // namespace spillway::planner
