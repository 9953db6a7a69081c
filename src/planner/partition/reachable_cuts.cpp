#include "reachable_cuts.h"

#include <algorithm>

#include "greedy_cuts.h"

namespace spillway::planner {
namespace {

/// Of the limit: what upper bounds may take where the exact cost shall be within it, rounded.
constexpr double kSurely = 1.0 - 1e-9;

class Search {
 public:
  Search(const SegmentGoal& goal, const CutRange& range, double at, const KnownCuts& known)
      : goal_(goal), range_(range), at_(at), known_(known) {}

  ReachableCuts run() {
    ReachableCuts result;
    const GreedyCuts latest = greedy_cuts(goal_, range_, Borders::kNone, at_);
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

}  // namespace

ReachableCuts reachable_cuts(const SegmentGoal& goal, const CutRange& range, double at,
                             const KnownCuts& known) {
  return Search(goal, range, at, known).run();
}

}  // namespace spillway::planner
