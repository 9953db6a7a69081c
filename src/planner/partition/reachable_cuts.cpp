#include "reachable_cuts.h"

#include <algorithm>

#include "greedy_cuts.h"

namespace spillway::planner {
namespace {

using SharedLink = SegmentCosts::SharedLink;

/// Of the limit: what upper bounds may take where the exact cost shall be within it, rounded.
constexpr double kSurely = 1.0 - 1e-9;

const SharedLink* link_of(const SegmentGoal& goal, std::uint32_t stage) {
  const std::vector<SharedLink>& links = goal.shared_links();
  const auto behind = std::partition_point(
      links.begin(), links.end(), [&](const SharedLink& link) { return link.end_stage <= stage; });
  return behind != links.end() && behind->first_stage <= stage ? &*behind : nullptr;
}

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
    reached_[0].add(0.0);
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
    const SharedLink* link = link_of(goal_, range_.first_stage + k);
    const double budget = link == nullptr ? kNever : goal_.budget(*link, at_);
    const bool ends_link = link == nullptr || range_.first_stage + k + 1 == link->end_stage ||
                           k + 1 == range_.stages();
    ReachedCuts& next = reached_[k + 1];
    next.first = from;
    std::uint32_t sure_end = from;  // Cuts before it are reached, whatever their borders.
    for (std::uint32_t end = from; end <= to; ++end) {
      if (link == nullptr && end >= sure_end) sure_end = surely_reached(k, end, to);
      if (end < sure_end || known_.is_reached(k + 1, end)) {
        next.add(0.0);
        continue;
      }
      const double used = known_.is_beyond(k + 1, end) ? kNever : least_used(k, end, budget);
      next.add(used == kNever ? kNever : ends_link ? 0.0 : used);
      if (used == kNever && is_behind_all(k, end)) {
        while (++end <= to) next.add(kNever);
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

  /// The least that the stages of the link use up to stage k, which ends there.
  double least_used(std::uint32_t k, std::uint32_t end, double budget) {
    double least = kNever;
    visit(k, end, budget,
          [&](std::uint32_t, double used) { return (least = std::min(least, used)) > 0.0; });
    return least;
  }

  /// Calls `see(begin, used)` for each beginning of stage k from which it can end there, latest
  /// first, until that says false.
  template <typename See>
  void visit(std::uint32_t k, std::uint32_t end, double budget, const See& see) {
    const ReachedCuts& before = reached_[k];
    const std::uint32_t stage = range_.first_stage + k;
    const bool is_shared = budget < kNever;
    for (std::uint32_t begin = before.last_before(end); begin != ReachedCuts::kNone;
         begin = before.last_before(begin)) {
      const Segment segment{begin, end, stage};
      double used = 0.0;
      if (is_shared) {
        used = before.used(begin) + goal_.need(segment, at_);
        if (used <= budget && !see(begin, used)) return;
        if (used <= budget) continue;
      } else {
        const bool is_sure = goal_.is_surely_within(segment, at_);
        const double cost = is_sure ? at_ : goal_.cost(segment, Borders::kExact);
        if (cost <= at_) {
          if (!see(begin, 0.0)) return;
          continue;
        }
        next_cost_ = std::min(next_cost_, cost);
      }
      const double bound = goal_.cost(segment, Borders::kNone);
      if (bound > at_) {
        next_cost_ = std::min(next_cost_, bound);
        return;
      }
    }
  }

  std::vector<std::uint32_t> walk_back() {
    std::vector<std::uint32_t> cuts(range_.stages() + 1, range_.end_unit);
    double left = kNever;  // Of the budget, for the stages of the link up to here.
    for (std::uint32_t k = range_.stages(); k-- > 0;) {
      const SharedLink* link = link_of(goal_, range_.first_stage + k);
      if (link == nullptr || k + 1 == range_.stages() ||
          range_.first_stage + k + 1 == link->end_stage)
        left = link == nullptr ? kNever : goal_.budget(*link, at_);
      double least = kNever;
      visit(k, cuts[k + 1], left, [&](std::uint32_t begin, double used) {
        if (used < least) {
          least = used;
          cuts[k] = begin;
        }
        return least > 0.0;
      });
      // The way that was kept uses the least, so that its beginning has what it used.
      if (link != nullptr) left = reached_[k].used(cuts[k]);
    }
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

bool are_possible(const SegmentGoal& goal, const CutRange& range,
                  const std::vector<std::uint32_t>& cuts, double at) {
  double used = 0.0;
  for (std::uint32_t k = 0; k < range.stages(); ++k) {
    const Segment segment{cuts[k], cuts[k + 1], range.first_stage + k};
    const SharedLink* link = link_of(goal, segment.stage);
    if (link == nullptr) {
      if (goal.cost(segment, Borders::kExact) > at) return false;
      continue;
    }
    if (k == 0 || segment.stage == link->first_stage) used = 0.0;
    used += goal.need(segment, at);
    if (used > goal.budget(*link, at)) return false;
  }
  return true;
}

}  // namespace spillway::planner
