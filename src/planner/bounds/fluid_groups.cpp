#include "fluid_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace spillway::planner {
namespace {

// Costs within such a ratio of each other form one class.
constexpr double kGroupRatio = 1.25;

std::int32_t class_of(double seconds) {
  return seconds <= 0.0
             ? std::numeric_limits<std::int32_t>::min()
             // By powers of the ratio, so that the class of a cost does not depend on which others
             // there are.
             : static_cast<std::int32_t>(std::floor(std::log(seconds) / std::log(kGroupRatio)));
}

/// The circle of moments, divided by cuts. Moments count on through the repetitions.
class CutCircle {
 public:
  CutCircle(const CutMoments& cuts, std::size_t op_count) : cuts_(cuts), around_(2 * op_count) {}

  static std::uint64_t begin_of(std::uint64_t op) { return 2 * op; }
  static std::uint64_t end_of(std::uint64_t op) { return 2 * op + 1; }

  /// The first cut at or behind a moment.
  CutVisit first_from(std::uint64_t moment) const {
    const auto step = static_cast<CutVisit>(moment / around_);
    const auto place = std::lower_bound(cuts_.begin(), cuts_.end(), moment % around_);
    return step * static_cast<CutVisit>(cuts_.size()) +
           static_cast<CutVisit>(place - cuts_.begin());
  }
  std::uint64_t moment(CutVisit visit) const {
    return visit / cuts_.size() * around_ + cuts_[visit % cuts_.size()];
  }
  /// The bucket that holds what follows a moment.
  CutVisit bucket_of(std::uint64_t moment) const { return first_from(moment + 1) - 1; }

 private:
  const CutMoments& cuts_;
  const std::uint64_t around_;
};

/// What tells groups apart.
struct GroupKey {
  CutVisit first_bucket = 0;
  bool has_copy = false;
  std::vector<std::uint32_t> stretches;  ///< Four numbers each.
  auto operator<=>(const GroupKey&) const = default;
};

/// The linear program sees a step at some dozens of cuts only. What happens to a page between two
/// of them it cannot tell, so intervals become the lists of cuts at which they are idle, and values
/// with equal lists are added up.
class GroupFinder {
 public:
  GroupFinder(const StepTape& tape, const TouchIntervals& touches, const CutMoments& cuts,
              std::size_t most_parents)
      : touches_(touches), op_count_(tape.ops.size()), circle_(cuts, op_count_) {
    std::vector<bool> is_counted;
    for (const Interval& interval : touches_.intervals)
      is_counted.push_back(visits_of(interval, interval.begin).second > 0);
    costs_ = recompute_costs(tape, touches_, is_counted, most_parents);
  }

  std::vector<FluidGroup> find() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) order.push_back(i);
    // The intervals of an epoch in the order of time: pages that have a copy from an earlier one
    // leave a later one for free.
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Interval& left = touches_.intervals[a];
      const Interval& right = touches_.intervals[b];
      return std::pair(left.epoch, left.later_steps) < std::pair(right.epoch, right.later_steps);
    });
    std::size_t begin = 0;
    for (std::size_t end = 0; end < order.size(); begin = end) {
      const std::uint32_t epoch = touches_.intervals[order[begin]].epoch;
      end = begin + 1;
      while (epoch != kNeverWritten && end < order.size() &&
             touches_.intervals[order[end]].epoch == epoch)
        ++end;
      add_epoch({order.begin() + static_cast<std::ptrdiff_t>(begin),
                 order.begin() + static_cast<std::ptrdiff_t>(end)});
    }
    return std::move(groups_);
  }

 private:
  /// The first cut and the number of cuts at which an interval is idle that begins with that
  /// operator, counted through the repetitions.
  std::pair<CutVisit, std::uint32_t> visits_of(const Interval& interval, std::uint64_t op) const {
    const CutVisit first = circle_.first_from(CutCircle::begin_of(op + 1));
    const CutVisit end = circle_.first_from(CutCircle::begin_of(op + 1 + interval.covered_ops));
    return {first, end - first};
  }

  std::uint64_t next_run(OpIndex op, std::uint64_t from) const {
    return from + (op + op_count_ - from % op_count_) % op_count_;
  }

  /// The intervals of one epoch in their order, or a single one that has its copy already.
  void add_epoch(const std::vector<std::uint32_t>& intervals) {
    const Interval& any = touches_.intervals[intervals.front()];
    GroupKey key;
    key.has_copy = any.epoch == kNeverWritten;
    std::uint64_t op = key.has_copy ? any.begin : touches_.epoch_begin[any.epoch];
    key.first_bucket = circle_.bucket_of(CutCircle::end_of(op));
    FluidGroup added;
    std::vector<std::uint32_t> members;
    for (const std::uint32_t i : intervals) {
      const Interval& interval = touches_.intervals[i];
      // Intervals know their operator within the step; here they are counted on from the write of
      // their epoch.
      op = next_run(interval.begin, op);
      const auto [first, visits] = visits_of(interval, op);
      op += interval.covered_ops + 1;
      const bool is_used = interval.end == IntervalEnd::kUsed;
      // Free to stay away: it costs nothing, or nothing that a bound should count.
      const bool is_free = !is_used && (key.has_copy || costs_[i].is_possible ||
                                        interval.end == IntervalEnd::kStays);
      if (visits == 0 || is_free) continue;
      // Whether it can be recomputed is part of what tells groups apart, how dearly is not: that
      // makes classes.
      key.stretches.insert(key.stretches.end(), {first, visits, is_used, costs_[i].is_possible});
      added.stretches.push_back({first, visits, is_used, {}});
      members.push_back(i);
    }
    if (members.empty()) return;
    // Values that are idle at the same cuts are one to the program, so it grows with the cuts and
    // not with the tensors of the step.
    const auto [place, is_new] = numbers_.emplace(key, groups_.size());
    if (is_new) {
      added.has_copy = key.has_copy;
      added.first_bucket = key.first_bucket;
      groups_.push_back(std::move(added));
    }
    FluidGroup& group = groups_[place->second];
    group.pages += any.pages;
    for (std::size_t s = 0; s < members.size(); ++s)
      if (costs_[members[s]].is_possible) add_class(group.stretches[s], members[s]);
  }

  void add_class(IdleStretch& stretch, std::uint32_t interval) {
    const RecomputeCost& cost = costs_[interval];
    RecomputeClass added;
    added.pages = touches_.intervals[interval].pages;
    added.at_return = cost.at_return;
    const OpIndex begin = touches_.intervals[interval].begin;
    const bool has_others = cost.other_writers > 0.0 || cost.parents.empty();
    const OpIndex from = has_others ? begin : std::min(begin, cost.parents.front().from);
    added.from = circle_.bucket_of(CutCircle::end_of(from));
    double besides = cost.other_writers;
    auto next = cost.parents.begin();
    for (std::uint32_t s = 0; s < stretch.visits; ++s) {
      const std::uint64_t moment = circle_.moment(stretch.first + s);
      // From here on some input has ended that nothing brings back.
      if (cost.return_before != kNoOp && moment > CutCircle::begin_of(cost.return_before)) break;
      for (; next != cost.parents.end() && CutCircle::end_of(next->from) <= moment; ++next)
        besides += next->seconds_per_page;
      added.besides.push_back(besides);
    }
    if (added.besides.empty()) return;
    const auto is_alike = [&](const RecomputeClass& each) {
      return class_of(each.at_return) == class_of(added.at_return) &&
             each.besides.size() == added.besides.size() &&
             class_of(each.besides.back()) == class_of(added.besides.back());
    };
    const auto place = std::find_if(stretch.classes.begin(), stretch.classes.end(), is_alike);
    if (place == stretch.classes.end()) {
      stretch.classes.push_back(std::move(added));
      return;
    }
    place->pages += added.pages;
    // The least of a class stands for all, so that the bound can only become lower.
    place->at_return = std::min(place->at_return, added.at_return);
    place->from = std::min(place->from, added.from);
    for (std::size_t s = 0; s < added.besides.size(); ++s)
      place->besides[s] = std::min(place->besides[s], added.besides[s]);
  }

  const TouchIntervals& touches_;
  const std::size_t op_count_;
  const CutCircle circle_;
  std::vector<RecomputeCost> costs_;
  std::map<GroupKey, std::size_t> numbers_;
  std::vector<FluidGroup> groups_;
};

}  // namespace

std::vector<FluidGroup> find_groups(const StepTape& tape, const TouchIntervals& touches,
                                    const CutMoments& cuts, std::size_t most_parents) {
  return GroupFinder(tape, touches, cuts, most_parents).find();
}

}  // namespace spillway::planner
