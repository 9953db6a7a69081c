#include "partial_bounds.h"

#include <algorithm>

#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::TapeValue;

namespace {

// Windows begin and end at so many moments at most: planning time grows with the cube of it.
constexpr std::size_t kMostBegins = 160;
constexpr std::size_t kMostEnds = 48;

/// A moment at which the operator holds all that it needs.
struct Cut {
  OpIndex op = 0;
  bool is_at_end = false;  ///< Of the operator; such a cut follows the one at its begin.
};

/// One number per window from cut `from` over `length` cuts, around the step.
///
///     S(i, j) = max( alone(i, j), max over k of S(i, k) + S(k, j) )
///
/// For every begin, since the step is a circle: which of them the best partition of the whole step
/// begins with is not known before.
template <typename Number>
class PerWindow {
 public:
  explicit PerWindow(std::size_t cuts) : cuts_(cuts), numbers_(cuts * (cuts + 1)) {}
  Number& at(std::size_t from, std::size_t length) {
    return numbers_[from % cuts_ * (cuts_ + 1) + length];
  }

  /// Makes every number the largest sum over partitions of its window into smaller ones.
  void add_up() {
    // The second parts of a window end together: by their end they lie side by side.
    PerWindow<Number> by_end(cuts_);
    for (std::size_t from = 0; from < cuts_; ++from) by_end.at(from + 1, 1) = at(from, 1);
    for (std::size_t length = 2; length <= cuts_; ++length) {
      for (std::size_t from = 0; from < cuts_; ++from) {
        const Number* first = &at(from, 0);
        const Number* second = &by_end.at(from + length, 0);
        Number best = first[length];
        for (std::size_t i = 1; i < length; ++i) {
          const Number sum = first[i] + second[length - i];
          best = sum > best ? sum : best;
        }
        at(from, length) = best;
        by_end.at(from + length, length) = best;
      }
    }
  }

  /// The cut at which the whole step begins best.
  std::size_t best_begin() {
    std::size_t best = 0;
    for (std::size_t from = 1; from < cuts_; ++from) {
      if (at(from, cuts_) > at(best, cuts_)) best = from;
    }
    return best;
  }

 private:
  std::size_t cuts_;
  std::vector<Number> numbers_;
};

/// Counts, operator by operator from one cut on, the pages that a window up to there must read and
/// write: what its operators use and what already lived, and what they made and still lives, less
/// the room that the operator at the begin or at the end leaves for idle values. Storages go by the
/// number of their value in the period of the cut; what is born in the next period gets numbers of
/// its own.
class WindowSweep {
 public:
  WindowSweep(const StepTape& tape, const std::vector<std::uint32_t>& needs,
              std::uint32_t budget_pages, const WalkCosts& costs)
      : tape_(tape),
        budget_(budget_pages),
        costs_(costs),
        wanted_recomputed_(costs.class_seconds.size(), 0),
        births_(births_per_op(tape)),
        deaths_(deaths_per_op(tape)),
        needs_(needs),
        predecessors_(tape.values.size(), kNoValue),
        wanted_in_(tape.values.size() * 2, 0),
        changed_in_(tape.values.size() * 2, 0),
        may_drop_(tape.values.size() * 2, false),
        counted_in_(tape.values.size() * 2, 0) {
    for (ValueIndex i = 0; i < tape.values.size(); ++i) {
      const TapeValue& value = tape.values[i];
      // A window may go over the end of the step, where a storage gets another number.
      if (value.becomes != kNoValue) predecessors_[value.becomes] = i;
      if (value.becomes == kNoValue && value.death == kSurvives) ends_at_boundary_.push_back(i);
    }
  }

  void begin(OpIndex op) {
    ++sweep_;
    begin_ = op_ = op;
    is_next_period_ = false;
    wanted_ = changed_ = 0;
    std::fill(wanted_recomputed_.begin(), wanted_recomputed_.end(), 0);
    // What the first operator uses is there at the cut: it holds its need then, so nothing of that
    // is read in the window.
    for (const auto& use : touches_of(tape_, op)) wanted_in_[use.value] = sweep_;
  }

  /// Goes on to the next operator; seconds that the passed one takes.
  double pass() {
    const double time = seconds(tape_.ops[op_].time);
    change_by(op_);
    if (++op_ == tape_.ops.size()) {
      op_ = 0;
      is_next_period_ = true;
      // What survives and is nothing in the next step has ended there, so it need not be written
      // for later.
      for (const ValueIndex value : ends_at_boundary_) forget(value);
    }
    want_uses(op_);
    return time;
  }

  OpIndex op() const { return op_; }

  /// Of the window from `begin` to where the sweep is: pages that have to be read.
  std::uint32_t read_pages() const { return wanted_ - std::min(wanted_, room(begin_)); }
  /// Of what may be recomputed instead, by classes of costs; all of it needs room, too.
  const std::vector<std::uint32_t>& wanted_recomputed() const { return wanted_recomputed_; }
  /// Room for either that the begin leaves.
  std::uint32_t room_for_recomputed() const {
    return room(begin_) - std::min(wanted_, room(begin_));
  }
  std::uint32_t written_pages() {
    ++count_;
    std::uint32_t used = 0;
    for (const auto& use : touches_of(tape_, op_)) {
      const ValueIndex value = use.value;
      const std::size_t storage = storage_of(value);
      if (changed_in_[storage] != sweep_ || may_drop_[storage]) continue;
      if (counted_in_[storage] == count_) continue;
      counted_in_[storage] = count_;
      used += tape_.values[value].pages;
    }
    // What the operator at the end uses is in memory; the room that it leaves is for the others.
    const std::uint32_t idle = changed_ - used;
    return idle - std::min(idle, room(op_));
  }

 private:
  const profile::TapeUse& use_of(OpIndex op, std::uint32_t i) const {
    return tape_.uses[tape_.ops[op].first_use + i];
  }

  /// Pages that idle values may take while the operator runs.
  std::uint32_t room(OpIndex op) const { return budget_ - std::min(budget_, needs_[op]); }

  void want_uses(OpIndex op) {
    for (std::uint32_t i = 0; i < touches_of(tape_, op).size(); ++i) {
      const ValueIndex value = use_of(op, i).value;
      const std::size_t storage = storage_of(value);
      if (!lived_at_begin(value) || wanted_in_[storage] == sweep_) continue;
      wanted_in_[storage] = sweep_;
      const std::uint32_t use = tape_.ops[op].first_use + i;
      // An input that ends before the window is no longer there for a replay in it.
      const bool can_return = costs_.return_before_use[use] > begin_;
      const std::uint8_t recomputed =
          can_return ? costs_.class_before_use[use] : WalkCosts::kOnlyRead;
      (recomputed == WalkCosts::kOnlyRead ? wanted_ : wanted_recomputed_[recomputed]) +=
          tape_.values[value].pages;
    }
  }

  void change_by(OpIndex op) {
    for (std::uint32_t i = 0; i < touches_of(tape_, op).size(); ++i) {
      const ValueIndex value = use_of(op, i).value;
      const bool is_changed = use_of(op, i).writes || changed_in_[storage_of(value)] == sweep_;
      const std::uint32_t use = tape_.ops[op].first_use + i;
      if (is_changed) change(value, costs_.drops_after_use[use]);
    }
    for (const ValueIndex born : births_.of(op)) change(born, costs_.drops_after_birth[born]);
    for (const ValueIndex died : deaths_.of(op)) forget(died);
  }

  std::size_t storage_of(ValueIndex value) const {
    if (!is_next_period_) return value;
    return predecessors_[value] != kNoValue ? predecessors_[value] : tape_.values.size() + value;
  }

  bool lived_at_begin(ValueIndex value) const {
    const ValueIndex then = is_next_period_ ? predecessors_[value] : value;
    if (then == kNoValue) return false;
    const OpIndex birth = tape_.values[then].birth;
    return birth == kCarriedIn || birth < begin_;
  }

  /// Written, born, or touched after that. What may be dropped need not be written to leave.
  void change(ValueIndex value, bool may_drop) {
    const std::size_t storage = storage_of(value);
    // Each storage counts once, as it was left last: a second write replaces what the first would
    // have had to move.
    take_back(storage, value);
    changed_in_[storage] = sweep_;
    may_drop_[storage] = may_drop;
    if (!may_drop) changed_ += tape_.values[value].pages;
  }

  void take_back(std::size_t storage, ValueIndex value) {
    if (changed_in_[storage] == sweep_ && !may_drop_[storage])
      changed_ -= tape_.values[value].pages;
  }

  void forget(ValueIndex value) {
    // Survivors without a successor end with the period in which they lived.
    const bool is_survivor = tape_.values[value].death == kSurvives;
    // The walk has just entered the next period, and this storage belongs to the one before.
    const std::size_t storage = is_survivor ? value : storage_of(value);
    take_back(storage, value);
    changed_in_[storage] = 0;
  }

  const StepTape& tape_;
  const std::uint32_t budget_;
  const WalkCosts& costs_;
  std::vector<std::uint32_t> wanted_recomputed_;  ///< Per class of costs.
  const PerOp births_;
  const PerOp deaths_;
  const std::vector<std::uint32_t>& needs_;
  std::vector<ValueIndex> predecessors_;
  std::vector<ValueIndex> ends_at_boundary_;
  std::vector<std::uint32_t> wanted_in_;   ///< Per storage: the sweep that counted it as wanted.
  std::vector<std::uint32_t> changed_in_;  ///< The same for storages born or written in the window.
  std::vector<bool> may_drop_;             ///< The same storages.
  std::vector<std::uint64_t> counted_in_;
  std::uint32_t sweep_ = 0;
  std::uint64_t count_ = 0;
  OpIndex begin_ = 0;
  OpIndex op_ = 0;
  bool is_next_period_ = false;
  std::uint32_t wanted_ = 0;
  std::uint32_t changed_ = 0;
};

/// The begins of all operators of a short step; of a long one so many that between two of them lies
/// about the same share of its time and of the pages that it uses. And the ends of the longest.
std::vector<Cut> choose_cuts(const StepTape& tape, const std::vector<std::uint32_t>& needs) {
  double all_time = 1e-9;
  double all_needs = 1e-9;
  for (std::size_t op = 0; op < needs.size(); ++op) {
    all_time += seconds(tape.ops[op].time);
    all_needs += needs[op];
  }
  std::vector<OpIndex> begins;
  double due = 0.0;
  double weight = 0.0;
  for (OpIndex op = 0; op < needs.size(); ++op) {
    if (needs.size() <= kMostBegins || weight >= due) {
      begins.push_back(op);
      due = weight + 2.0 / static_cast<double>(kMostBegins);
    }
    // By time and by needs: long operators hide transfers, large ones ask for them.
    weight += seconds(tape.ops[op].time) / all_time + needs[op] / all_needs;
  }
  std::vector<OpIndex> longest = begins;
  const std::size_t ends = std::min(begins.size(), kMostEnds);
  std::partial_sort(
      longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(ends), longest.end(),
      [&](OpIndex a, OpIndex b) {
        return tape.ops[a].time != tape.ops[b].time ? tape.ops[a].time > tape.ops[b].time : a < b;
      });
  longest.resize(ends);
  std::sort(longest.begin(), longest.end());
  std::vector<Cut> cuts;
  for (const OpIndex op : begins) {
    cuts.push_back({op, false});
    if (std::binary_search(longest.begin(), longest.end(), op)) cuts.push_back({op, true});
  }
  return cuts;
}

}  // namespace

std::vector<std::uint32_t> needs_of_ops(const StepTape& tape) {
  std::vector<OpIndex> counted_at(tape.values.size(), kNoOp);
  std::vector<std::uint32_t> needs;
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    std::uint32_t together = tape.ops[op].inside_peak_pages;
    for (const auto& use : touches_of(tape, op)) {
      const ValueIndex used = use.value;
      if (counted_at[used] == op) continue;
      counted_at[used] = op;
      together += tape.values[used].pages;
    }
    needs.push_back(together);
  }
  return needs;
}

double transfer_seconds(double written_pages, double read_pages, const SwapLimits& limits) {
  const auto page = static_cast<double>(limits.page_size.count());
  const double write_seconds = limits.rates.write.seconds_for(written_pages * page);
  const double read_seconds = limits.rates.read.seconds_for(read_pages * page);
  const double shorter = std::min(write_seconds, read_seconds);
  const double longer = std::max(write_seconds, read_seconds);
  return longer + std::min(shorter, shorter / limits.rates.duplex_share - shorter);
}

namespace {

/// What a window takes at least, and what is recomputed in it then.
struct WindowTime {
  double seconds = 0.0;
  double recompute_seconds = 0.0;
  double recomputed_share = 0.0;
};

/// Least over the pages that are recomputed, the cheapest ones first: computing takes longer
/// with each of them, moving shorter.
WindowTime window_time(double compute, std::uint32_t written, WindowSweep& sweep,
                       const WalkCosts& costs, const SwapLimits& limits) {
  const double read = sweep.read_pages();
  double pages = 0.0;
  for (const std::uint32_t each : sweep.wanted_recomputed()) pages += each;
  const double away = pages - std::min<double>(pages, sweep.room_for_recomputed());
  double recomputed = 0.0;
  double recompute_seconds = 0.0;
  const auto moving = [&](double computed) {
    return transfer_seconds(written, read + away - computed, limits);
  };
  for (std::size_t i = 0; i < costs.class_seconds.size() && recomputed < away; ++i) {
    const double more = std::min<double>(sweep.wanted_recomputed()[i], away - recomputed);
    const double each = costs.class_seconds[i];
    if (compute + recompute_seconds + more * each <= moving(recomputed + more)) {
      recomputed += more;
      recompute_seconds += more * each;
      continue;
    }
    // Where computing begins to take longer than moving, from both sides.
    double low = 0.0;
    double high = more;
    // The two sides are monotone in the pages that are recomputed, so bisection finds where they
    // meet, to 1e-9 of them.
    for (int round = 0; round < 30; ++round) {
      const double middle = (low + high) / 2;
      const bool is_less =
          compute + recompute_seconds + middle * each < moving(recomputed + middle);
      (is_less ? low : high) = middle;
    }
    // Rounded in favour of the plan on both sides: as little is computed, and as little moved, as
    // bisection leaves open.
    recompute_seconds += low * each;
    recomputed += high;
    break;
  }
  return {.seconds = std::max(compute + recompute_seconds, moving(recomputed)),
          .recompute_seconds = recompute_seconds,
          .recomputed_share = recomputed > 0.0 ? recomputed / (read + away) : 0.0};
}

/// The window of the best partition that takes most beyond its operators.
struct WorstWindow {
  std::size_t from = 0;
  std::size_t length = 0;
  double beyond = 0.0;
};

WorstWindow worst_window(PerWindow<double>& alone, PerWindow<double>& sums,
                         PerWindow<double>& compute, std::size_t begin, std::size_t all) {
  WorstWindow worst;
  std::vector<std::pair<std::size_t, std::size_t>> open{{begin, all}};
  while (!open.empty()) {
    const auto [from, length] = open.back();
    open.pop_back();
    const double sum = sums.at(from, length);
    std::size_t split = length;
    // The sums do not note how they came about; this finds it again for the few windows on the way.
    for (std::size_t i = 1; i < length && alone.at(from, length) < sum && split == length; ++i)
      if (sums.at(from, i) + sums.at(from + i, length - i) == sum) split = i;
    if (split < length) {
      open.emplace_back(from, split);
      open.emplace_back(from + split, length - split);
      continue;
    }
    const double beyond = sum - compute.at(from, length);
    if (beyond > worst.beyond) worst = {from, length, beyond};
  }
  return worst;
}

}  // namespace

StepBound bound_windows(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                        const SwapLimits& limits, const WalkCosts& costs) {
  const std::vector<Cut> cuts = choose_cuts(tape, needs);
  const std::size_t all = cuts.size();
  PerWindow<std::uint32_t> written(all);
  PerWindow<std::uint32_t> read(all);
  PerWindow<double> compute(all);
  PerWindow<double> alone(all);
  WindowSweep sweep(tape, needs, limits.budget_pages, costs);
  const auto time_before = [&](Cut cut) {
    return cut.is_at_end ? seconds(tape.ops[cut.op].time) : 0.0;
  };
  const auto sweep_from = [&](std::size_t from, auto visit) {
    sweep.begin(cuts[from % all].op);
    double passed = -time_before(cuts[from % all]);
    for (std::size_t length = 1; length <= all; ++length) {
      const Cut end = cuts[(from + length) % all];
      if (!end.is_at_end) {
        do passed += sweep.pass();
        while (sweep.op() != end.op);
      }
      visit(length, passed + time_before(end));
    }
  };
  for (std::size_t from = 0; from < all; ++from) {
    sweep_from(from, [&](std::size_t length, double passed) {
      read.at(from, length) = sweep.read_pages();
      written.at(from, length) = sweep.written_pages();
      compute.at(from, length) = passed;
      alone.at(from, length) =
          window_time(passed, written.at(from, length), sweep, costs, limits).seconds;
    });
  }
  read.add_up();
  written.add_up();
  // Only now, since what a window moves may itself be the sum over smaller ones within it.
  PerWindow<double> sums = alone;
  for (std::size_t from = 0; from < all; ++from) {
    for (std::size_t length = 1; length <= all; ++length) {
      double& least = alone.at(from, length);
      least = std::max(least,
                       transfer_seconds(written.at(from, length), read.at(from, length), limits));
      sums.at(from, length) = least;
    }
  }
  sums.add_up();
  StepBound bound;
  bound.kind = BoundKind::kWindow;
  bound.read_pages = read.at(read.best_begin(), all);
  bound.written_pages = written.at(written.best_begin(), all);
  bound.step_seconds = sums.at(sums.best_begin(), all);
  const WorstWindow worst = worst_window(alone, sums, compute, sums.best_begin(), all);
  if (worst.length == 0) return bound;
  bound.from = cuts[worst.from % all].op;
  bound.to = cuts[(worst.from + worst.length) % all].op;
  sweep_from(worst.from, [&](std::size_t length, double passed) {
    if (length != worst.length) return;
    const WindowTime time = window_time(passed, sweep.written_pages(), sweep, costs, limits);
    bound.recomputed_share = time.recomputed_share;
    bound.recompute_seconds = time.recompute_seconds;
  });
  return bound;
}

}  // namespace spillway::planner
