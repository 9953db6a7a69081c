#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "plan_assembly.h"
#include "replay_walk.h"

namespace spillway::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// One direction of the link in a step that repeats: the seconds of the step in which it is busy.
class Lane {
 public:
  explicit Lane(double period) : period_(period), idle_(period) {}

  /// When a transfer of this length is over that begins at `from` and waits while the lane is busy.
  double end_of(double from, double length) const {
    if (length > idle_) return kNever;
    double base = std::floor(from / period_) * period_;
    double at = from - base;
    // A transfer may wait for the end of the step and go on in the next, as the step repeats; three
    // rounds without room, and there is none.
    for (int rounds = 0; rounds < 3;) {
      const auto next = busy_.upper_bound(at);
      if (next != busy_.begin()) at = std::max(at, std::prev(next)->second);
      const double idle_until = next == busy_.end() ? period_ : next->first;
      if (at + length <= idle_until) return base + at + length;
      // Cut into pieces by what is already on the lane, as pages are divisible.
      length -= std::max(0.0, idle_until - at);
      at = next == busy_.end() ? 0.0 : next->second;
      if (next != busy_.end()) continue;
      base += period_;
      ++rounds;
    }
    return kNever;
  }

  /// All of it is busy now.
  void take(double from, double to) {
    // It takes the lane in every step.
    if (to - from >= period_) return mark(0.0, period_);
    const double base = std::floor(from / period_) * period_;
    mark(from - base, std::min(to - base, period_));
    if (to - base > period_) mark(0.0, to - base - period_);
  }

 private:
  void mark(double from, double to) {
    auto at = busy_.upper_bound(from);
    if (at != busy_.begin() && std::prev(at)->second >= from) --at;
    while (at != busy_.end() && at->first <= to) {
      from = std::min(from, at->first);
      to = std::max(to, at->second);
      idle_ += at->second - at->first;
      at = busy_.erase(at);
    }
    busy_[from] = to;
    idle_ -= to - from;
  }

  const double period_;
  double idle_;
  std::map<double, double> busy_;  ///< Ends by begin.
};

/// A tensor between two accesses.
struct Candidate {
  ChosenGap gap;
  double leaves = 0.0;   ///< Seconds from the begin of the step to the end of the first access.
  double returns = 0.0;  ///< And to the begin of the second.
  double write_seconds = 0.0;
  double read_seconds = 0.0;
  double recompute_seconds = 0.0;   ///< 0: it cannot be recomputed.
  std::vector<ValueIndex> sources;  ///< What recomputing it reads.
  bool may_hide = true;             ///< Lanes only fill, so what was not hidden never will be.
  bool is_chosen = false;

  /// Between the end of its write-out and the start of its fetch, were it alone on the link.
  double free_seconds() const { return returns - leaves - write_seconds - read_seconds; }
};

/// While some operator holds too much: of the tensors that are idle then, the one with the longest
/// free time is swapped, if that hides its transfers. When none is left, each of them costs either
/// the part of its transfers that is not hidden, or its recomputation, of which the one that saves
/// most memory per second (MSPS) comes first; the cheaper way is taken. Transfers have the link for
/// themselves, one after the other: write-outs from the first access on, fetches back from the
/// second. The paper measures what that costs and shifts fetches by feedback of later iterations.
class CapuchinPolicy {
 public:
  CapuchinPolicy(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop)
      : tape_(tape),
        limits_(limits),
        should_stop_(should_stop),
        all_(tape),
        touches_(find_intervals(tape)),
        // A step whose operators take no time still needs a circle to walk on.
        step_seconds_(std::max(1e-12, compute_begins(tape).back())),
        writes_(step_seconds_),
        reads_(step_seconds_) {
    for (const std::uint32_t level : live_pages(tape)) levels_.push_back(level);
    const std::vector<double> begins = compute_begins(tape);
    for (const Interval& interval : touches_.intervals) {
      if (is_told(should_stop_)) break;
      if (interval.end != IntervalEnd::kDies) candidates_.push_back(candidate(interval, begins));
    }
  }

  void choose() {
    while (!is_told(should_stop_)) {
      const auto top = std::max_element(levels_.begin(), levels_.end());
      if (*top <= limits_.budget_pages) return;
      const auto op = static_cast<std::size_t>(top - levels_.begin());
      if (Candidate* const hidden = hidden_swap(op)) {
        swap(*hidden);
        continue;
      }
      Candidate* const least = least_waiting(op);
      if (!least) {
        // Nothing idle is left here, and the event model pages on demand.
        *top = limits_.budget_pages;
        continue;
      }
      Candidate* const again = most_per_second(op);
      if (again && again->recompute_seconds < -free_on_link(*least))
        recompute(*again);
      else
        swap(*least);
    }
  }

  std::vector<Replay> replays() const { return all_.replays(drops_); }
  const std::vector<ChosenGap>& swaps() const { return swaps_; }

 private:
  Candidate candidate(const Interval& interval, const std::vector<double>& begins) {
    const std::size_t op_count = tape_.ops.size();
    Candidate found;
    found.gap = {interval.value, interval.begin, interval.covered_ops, interval.pages};
    found.leaves = begins[interval.begin + 1];
    if (interval.end == IntervalEnd::kStays) {
      // Nobody asks for it within several steps: whatever its transfers take, they hide.
      found.returns = kNever;
      return found;
    }
    const std::size_t end = std::size_t{interval.begin} + 1 + interval.covered_ops;
    found.returns = begins[end % op_count] + static_cast<double>(end / op_count) * begins[op_count];
    // Both directions at once are what a full link has to do.
    const TransferRates& rates = limits_.rates;
    const double bytes = static_cast<double>(interval.pages) *
                         static_cast<double>(limits_.page_size.count()) / rates.duplex_share;
    if (interval.epoch != kNeverWritten) found.write_seconds = rates.write.seconds_for(bytes);
    found.read_seconds = rates.read.seconds_for(bytes);
    // Used in the next step only, where no replay of this one brings it back.
    if (end >= op_count) return found;
    for (const OpIndex op : walk_.cheapest_replays(interval.value, interval.begin)) {
      found.recompute_seconds += std::max(1e-12, seconds(tape_.ops[op].time));
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i)
        found.sources.push_back(tape_.uses[tape_.ops[op].first_use + i].value);
    }
    return found;
  }

  static double msps(const Candidate& each) { return each.gap.pages / each.recompute_seconds; }

  bool covers(const ChosenGap& gap, std::size_t op) const {
    const std::size_t from = (op + tape_.ops.size() - gap.begin - 1) % tape_.ops.size();
    return from < gap.covered_ops;
  }

  /// Calls `visit` with what is idle then and still there.
  template <typename Visit>
  void for_each_idle(std::size_t op, Visit visit) {
    for (Candidate& each : candidates_)
      if (!each.is_chosen && covers(each.gap, op)) visit(each);
  }

  /// Of those whose transfers hide, the one with the longest free time.
  // Free time alone says nothing of the other swaps on the link; so the longest is asked whether it
  // really hides beside them.
  Candidate* hidden_swap(std::size_t op) {
    while (true) {
      Candidate* best = nullptr;
      for_each_idle(op, [&](Candidate& each) {
        if (each.may_hide && (!best || each.free_seconds() > best->free_seconds())) best = &each;
      });
      if (!best || free_on_link(*best) >= 0.0) return best;
      // The lanes get fuller with each swap, so it is never asked again; without that every choice
      // would look at all candidates anew.
      best->may_hide = false;
    }
  }

  Candidate* least_waiting(std::size_t op) {
    Candidate* best = nullptr;
    double most = -kNever;
    for_each_idle(op, [&](Candidate& each) {
      const double free = free_on_link(each);
      if (best && free <= most) return;
      best = &each;
      most = free;
    });
    return best;
  }

  Candidate* most_per_second(std::size_t op) {
    Candidate* best = nullptr;
    for_each_idle(op, [&](Candidate& each) {
      if (each.recompute_seconds > 0.0 && (!best || msps(each) > msps(*best))) best = &each;
    });
    return best;
  }

  double write_end(const Candidate& each) const {
    return writes_.end_of(each.leaves, each.write_seconds);
  }
  /// Time runs backwards in that lane.
  double read_begin(const Candidate& each) const {
    return each.returns == kNever ? kNever : -reads_.end_of(-each.returns, each.read_seconds);
  }
  double free_on_link(const Candidate& each) const {
    const double end = write_end(each);
    return end == kNever ? -kNever : read_begin(each) - end;
  }

  void leave(Candidate& chosen) {
    chosen.is_chosen = true;
    for (std::uint32_t i = 0; i < chosen.gap.covered_ops; ++i)
      levels_[(chosen.gap.begin + 1 + i) % tape_.ops.size()] -= chosen.gap.pages;
  }

  void swap(Candidate& chosen) {
    leave(chosen);
    if (const double end = write_end(chosen); end != kNever) writes_.take(chosen.leaves, end);
    if (const double begin = read_begin(chosen); std::isfinite(begin))
      reads_.take(-chosen.returns, -begin);
    swaps_.push_back(chosen.gap);
  }

  /// Whatever is computed from it takes that much longer from now on.
  void recompute(Candidate& chosen) {
    leave(chosen);
    // Decided by the times at that moment, as in the paper; the replays themselves are found for
    // all drops together.
    drops_.push_back({chosen.gap.value, chosen.gap.begin});
    for (Candidate& other : candidates_) {
      const auto& sources = other.sources;
      if (std::find(sources.begin(), sources.end(), chosen.gap.value) != sources.end())
        other.recompute_seconds += chosen.recompute_seconds;
    }
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const StopCheck& should_stop_;
  const Recomputation all_;
  ReplayWalk walk_{all_};
  const TouchIntervals touches_;
  const double step_seconds_;
  Lane writes_;
  Lane reads_;
  std::vector<std::int64_t> levels_;
  std::vector<Candidate> candidates_;
  std::vector<ChosenGap> swaps_;
  std::vector<Drop> drops_;
};

StepPlan make_capuchin(const StepTape& tape, const SwapLimits& limits,
                       const StopCheck& should_stop) {
  CapuchinPolicy policy(tape, limits, should_stop);
  policy.choose();
  PlanAssembly assembly(tape, policy.replays(), limits);
  SwapPlan swapped = assembly.swapped(assembly.pages_for(policy.swaps()), TransferStyle{});
  return std::move(assembly).finish(std::move(swapped));
}

}  // namespace

extern const Strategy kCapuchin{
    "capuchin", "swaps by free time, then recomputes by memory saved per second",
    "Peng et al., Capuchin: tensor-based GPU memory management for deep "
    "learning, ASPLOS 2020",
    make_capuchin};

}  // namespace spillway::planner
