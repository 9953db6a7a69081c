#include "bottleneck_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "greedy_cuts.h"
#include "segment_goal.h"

namespace spillway::partition {
namespace {

/// Cuts from `first` on that a stage can begin at.
struct ReachedCuts {
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  void add(bool is_reached) {
    const auto place = static_cast<std::uint32_t>(latest.size());
    latest.push_back(is_reached ? place : latest.empty() ? kNone : latest.back());
  }
  bool is_empty() const { return latest.empty() || latest.back() == kNone; }
  /// The last one of all; there is one.
  std::uint32_t last() const { return first + latest.back(); }
  /// The last one before `cut`, or kNone.
  std::uint32_t last_before(std::uint32_t cut) const {
    if (cut <= first || latest.empty()) return kNone;
    const std::uint32_t place =
        latest[std::min(cut - first, static_cast<std::uint32_t>(latest.size())) - 1];
    return place == kNone ? kNone : first + place;
  }
  bool covers(std::uint32_t cut) const { return cut >= first && cut - first < latest.size(); }
  bool has(std::uint32_t cut) const { return latest[cut - first] == cut - first; }

  std::uint32_t first = 0;
  std::vector<std::uint32_t> latest;  ///< The last place up to here that some lead to.
};

/// What probes at other costs have found: what can be reached at less can be reached at more. This
/// leaves little to look at when two of them are near.
struct KnownCuts {
  std::vector<ReachedCuts> at_less, at_more;  ///< By stages before the cut; may end early.

  bool is_reached(std::uint32_t stages, std::uint32_t cut) const {
    return stages < at_less.size() && at_less[stages].covers(cut) && at_less[stages].has(cut);
  }
  bool is_beyond(std::uint32_t stages, std::uint32_t cut) const {
    return stages < at_more.size() && at_more[stages].covers(cut) && !at_more[stages].has(cut);
  }
};

struct ReachableCuts {
  std::optional<std::vector<std::uint32_t>> cuts;  ///< Stages + 1, no stage empty.
  double next_cost = kNever;                       ///< Without cuts: nothing below it has any.
  std::vector<ReachedCuts> reached;
};

/// Of the limit: what upper bounds may take where the exact cost shall be within it, rounded.
constexpr double kSurely = 1.0 - 1e-9;

/// Cuts whose segments cost at most `at`, whatever way costs change with the segment. Keeps, stage
/// by stage, the cuts that can be reached: a stage ends at j when it can begin at some i from which
/// its segment costs at most `at`. What the bounds of the costs rule out is not looked at: cuts
/// behind the filling from the left or before that from the right, and beginnings whose segment is
/// too long for the lower bound.
class ReachableCutsSearch {
 public:
  ReachableCutsSearch(const SegmentGoal& goal, const CutRange& range, double at,
                      const KnownCuts& known)
      : goal_(goal), range_(range), at_(at), known_(known) {}

  ReachableCuts run() {
    ReachableCuts result;
    const GreedyCuts latest = greedy_cuts(goal_, range_, Borders::kNone, at_);
    // Not even without borders does the filling get to the end, so no cuts do.
    if (!latest.is_complete) {
      result.next_cost = latest.next_cost;
      return result;
    }
    const GreedyCuts earliest = earliest_cuts(goal_, range_, at_);
    next_cost_ = std::min(latest.next_cost, earliest.next_cost);
    sure_units_ = range_.units() / range_.stages();
    reached_.resize(range_.stages() + 1);
    reached_[0].first = range_.first_unit;
    reached_[0].add(true);
    for (std::uint32_t k = 0; k < range_.stages(); ++k) {
      const std::uint32_t left = range_.stages() - 1 - k;
      const std::uint32_t from = std::max(earliest.cuts[k + 1], range_.first_unit + k + 1);
      const std::uint32_t to = std::min(latest.cuts[k + 1], range_.end_unit - left);
      extend(k, left == 0 ? range_.end_unit : from, to);
      if (reached_[k + 1].is_empty()) {
        result.next_cost = next_cost_;
        result.reached = std::move(reached_);
        return result;
      }
    }
    result.cuts = walk_back();
    result.reached = std::move(reached_);
    return result;
  }

 private:
  /// The cuts from..to behind stage k that can be reached.
  void extend(std::uint32_t k, std::uint32_t from, std::uint32_t to) {
    ReachedCuts& next = reached_[k + 1];
    next.first = from;
    std::uint32_t sure_end = from;  // Cuts before it are reached, whatever their borders.
    for (std::uint32_t end = from; end <= to; ++end) {
      if (end >= sure_end) sure_end = surely_reached(k, end, to);
      if (end < sure_end || known_.is_reached(k + 1, end)) {
        next.add(true);
        continue;
      }
      const bool is_reached = !known_.is_beyond(k + 1, end) && begin_of(k, end);
      next.add(is_reached);
      if (!is_reached && is_behind_all(k, end)) {
        while (++end <= to) next.add(false);
      }
    }
  }

  /// Whether stage k, even from the last of its beginnings, comes neither to this cut nor beyond.
  bool is_behind_all(std::uint32_t k, std::uint32_t end) {
    const std::uint32_t last = reached_[k].last();
    if (last >= end) return false;
    const double bound = goal_.cost({last, end, range_.first_stage + k}, Borders::kNone);
    if (bound <= at_) return false;
    next_cost_ = std::min(next_cost_, bound);
    return true;
  }

  /// Behind the cuts from `end` on that stage k reaches from its latest beginning even if every
  /// border were the largest one: one look for many cuts.
  std::uint32_t surely_reached(std::uint32_t k, std::uint32_t end, std::uint32_t to) {
    const std::uint32_t begin = reached_[k].last_before(end);
    if (sure_units_ == 0 || begin == ReachedCuts::kNone || begin + sure_units_ <= end) return end;
    const std::uint32_t last = std::min(begin + sure_units_, to);
    if (goal_.cost({begin, last, range_.first_stage + k}, Borders::kLargest) > at_ * kSurely) {
      // Stages are about equally long, so what was too long here is soon right again.
      sure_units_ /= 2;
      return end;
    }
    ++sure_units_;
    return last + 1;
  }

  /// The latest beginning of stage k from which it can end there.
  std::optional<std::uint32_t> begin_of(std::uint32_t k, std::uint32_t end) {
    const ReachedCuts& before = reached_[k];
    for (std::uint32_t begin = before.last_before(end); begin != ReachedCuts::kNone;
         begin = before.last_before(begin)) {
      const Segment segment{begin, end, range_.first_stage + k};
      if (goal_.is_surely_within(segment, at_)) return begin;
      const double cost = goal_.cost(segment, Borders::kExact);
      if (cost <= at_) return begin;
      next_cost_ = std::min(next_cost_, cost);
      const double bound = goal_.cost(segment, Borders::kNone);
      // Without borders a longer segment costs no less, so no earlier beginning does.
      if (bound > at_) {
        next_cost_ = std::min(next_cost_, bound);
        break;
      }
    }
    return std::nullopt;
  }

  std::vector<std::uint32_t> walk_back() {
    std::vector<std::uint32_t> cuts(range_.stages() + 1, range_.end_unit);
    for (std::uint32_t k = range_.stages(); k-- > 0;) cuts[k] = begin_of(k, cuts[k + 1]).value();
    return cuts;
  }

  const SegmentGoal& goal_;
  const CutRange range_;
  const double at_;
  const KnownCuts& known_;
  double next_cost_ = kNever;
  std::uint32_t sure_units_ = 0;      ///< So long a stage may surely be; tried and adapted.
  std::vector<ReachedCuts> reached_;  ///< By cut before each stage, and behind the last one.
};

/// More than any time or memory of problems that are not refused, with room to multiply.
constexpr double kMostCost = 1e60;

/// Costs at which cuts are known to be impossible (below `least`) and possible (`best`).
class Bisection {
 public:
  Bisection(const SegmentGoal& goal, const CutRange& range) : goal_(goal), range_(range) {
    windows_.least.assign(range.stages() + 1, range.first_unit);
    windows_.most.assign(range.stages() + 1, range.end_unit);
  }

  std::optional<SolvedCuts> run() {
    // Whether there are cuts at all; what they cost is the first upper end.
    if (!probe(kMostCost)) return std::nullopt;
    while (least_ < best_.worst) {
      const double middle = least_ + (best_.worst - least_) / 2;
      // At last no number lies between, and the lower one decides.
      probe(middle < best_.worst ? middle : least_);
    }
    return std::move(best_);
  }

 private:
  bool probe(double at) {
    if (goal_.is_monotone()) return probe_monotone(at);
    // Where borders cost, filling may miss cuts, but those that it finds hold.
    const GreedyCuts filled = greedy_cuts(goal_, range_, Borders::kExact, at);
    if (filled.is_complete && !filled.has_empty) return found(filled.cuts, at);
    return probe_reachable(at);
  }

  bool probe_monotone(double at) {
    const bool has_windows = best_.worst < kNever;
    GreedyCuts filled =
        greedy_cuts(goal_, range_, Borders::kExact, at, has_windows ? &windows_ : nullptr);
    if (!filled.is_complete) {
      windows_.least = std::move(filled.cuts);
      return not_found(at, filled.next_cost);
    }
    // An empty stage may mean that the stages before took too much, or that nothing helps.
    const bool is_found = filled.has_empty ? probe_reachable(at) : found(filled.cuts, at);
    (is_found ? windows_.most : windows_.least) = std::move(filled.cuts);
    return is_found;
  }

  bool probe_reachable(double at) {
    ReachableCuts reachable = ReachableCutsSearch(goal_, range_, at, known_).run();
    if (!reachable.reached.empty())
      // The next probe lies between, and need not look again at what both agree on.
      (reachable.cuts ? known_.at_more : known_.at_less) = std::move(reachable.reached);
    if (reachable.cuts) return found(*reachable.cuts, at);
    return not_found(at, reachable.next_cost);
  }

  bool found(const std::vector<std::uint32_t>& cuts, double at) {
    // What the segments really have, even where a bound of theirs is rounded to just below.
    const double known = bottleneck_of(goal_, range_, cuts);
    if (known > at) least_ = std::max(least_, std::nextafter(at, kNever));
    if (known <= best_.worst) best_ = {cuts, known};
    return true;
  }

  bool not_found(double at, double next_cost) {
    // No cuts cost `at` or less, nor less than the cheapest segment that was too dear.
    least_ = std::max(std::nextafter(at, kNever), std::min(next_cost, best_.worst));
    return false;
  }

  const SegmentGoal& goal_;
  const CutRange range_;
  SolvedCuts best_{{}, kNever};
  double least_ = 0.0;
  CutWindows windows_;
  KnownCuts known_;
};

}  // namespace

std::optional<SolvedCuts> least_bottleneck(const SegmentGoal& goal, const CutRange& range) {
  return Bisection(goal, range).run();
}

double bottleneck_of(const SegmentGoal& goal, const CutRange& range,
                     const std::vector<std::uint32_t>& cuts) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k < range.stages(); ++k)
    worst =
        std::max(worst, goal.cost({cuts[k], cuts[k + 1], range.first_stage + k}, Borders::kExact));
  return worst;
}

}  // namespace spillway::partition
