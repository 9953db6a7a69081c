#include "tier_choice.h"

#include <algorithm>
#include <limits>

#include "level_tree.h"
#include "transfer_schedule.h"

namespace spillway::planner {

using profile::kNoValue;
using profile::kSurvives;

namespace {

constexpr std::uint32_t kNoGroup = static_cast<std::uint32_t>(-1);

/// Copies of one group and the stretch during which they take their place.
struct Copies {
  std::uint32_t group = 0;
  std::uint32_t pages = 0;
  std::uint64_t begin = 0;  ///< Operators from the step of the epoch's begin on.
  std::uint64_t end = 0;
  double saved_seconds = 0.0;  ///< By the near tier, for all pages.
  double least_idle = std::numeric_limits<double>::infinity();  ///< Seconds less far transfers.
  double order = 0.0;                                           ///< The highest comes first.
};

/// The near tier is memory that fills and empties along the step, so which copies it takes is a
/// packing of stretches. Greedy by one order, each copy whole as far as there is room during all of
/// its stretch: an exact choice would not be better founded, as the event model decides in the end
/// and copies may move on to the far tier.
class TierChooser {
 public:
  TierChooser(const StepTape& tape, const TouchIntervals& touches,
              const std::vector<std::uint32_t>& pages, const std::vector<double>& begins,
              const SwapLimits& limits)
      : touches_(touches),
        pages_(pages),
        begins_(begins),
        capacity_(limits.far->near_pages),
        near_(page_cost(limits.rates, limits.page_size)),
        far_(page_cost(rates_behind(limits.rates, limits.far->rates), limits.page_size)),
        op_count_(tape.ops.size()),
        groups_(copy_groups(tape, touches)),
        taken_(std::vector<std::uint32_t>(op_count_, 0)) {}

  std::vector<std::uint32_t> choose(TierRule rule, const std::vector<TierWish>& wishes) {
    std::vector<std::uint32_t> far(pages_.size(), 0);
    // The event model sends on to the far tier what the near one has no room for, so first come is
    // what happens by itself.
    if (rule == TierRule::kFirst && wishes.empty()) return far;
    collect();
    for (Copies& each : copies_) set_order(each, rule, wishes);
    std::stable_sort(copies_.begin(), copies_.end(),
                     [](const Copies& a, const Copies& b) { return a.order > b.order; });
    std::vector<std::uint32_t> near_pages(pages_.size(), 0);
    for (const Copies& each : copies_) {
      const bool is_wanted = wishes.empty() || wishes[each.group] != TierWish::kFar;
      // In part where not all fit: the last pages of a value are near, those before them far.
      near_pages[each.group] = is_wanted ? take_room(each) : 0;
    }
    for (std::size_t i = 0; i < pages_.size(); ++i)
      far[i] = pages_[i] - std::min(pages_[i], near_pages[groups_[i]]);
    return far;
  }

 private:
  void collect() {
    std::vector<std::uint32_t> at(pages_.size(), kNoGroup);
    for (std::uint32_t i = 0; i < pages_.size(); ++i) {
      if (pages_[i] == 0) continue;
      std::uint32_t& index = at[groups_[i]];
      if (index == kNoGroup) {
        index = static_cast<std::uint32_t>(copies_.size());
        copies_.push_back({.group = groups_[i], .begin = ~std::uint64_t{0}});
      }
      add(copies_[index], touches_.intervals[i], pages_[i]);
    }
    for (Copies& each : copies_) {
      const Interval& any = touches_.intervals[each.group];
      // A copy of what nobody writes never gets old: it keeps its place all the time, and costs no
      // write.
      if (any.epoch == kNeverWritten)
        each.end = each.begin + op_count_;
      else
        each.saved_seconds += each.pages * (far_.write - near_.write);
    }
  }

  void add(Copies& copies, const Interval& interval, std::uint32_t pages) const {
    const std::uint64_t begin = interval.later_steps * op_count_ + interval.begin + 1;
    const std::uint64_t end = begin + interval.covered_ops;
    // A copy is made for the interval in which most of its pages are out; the others use a part of
    // it.
    copies.pages = std::max(copies.pages, pages);
    copies.begin = std::min(copies.begin, begin);
    copies.end = std::max(copies.end, end);
    double moving = interval.epoch == kNeverWritten ? 0.0 : pages * far_.write;
    if (interval.end == IntervalEnd::kUsed) {
      copies.saved_seconds += pages * (far_.read - near_.read);
      moving += pages * far_.read;
    }
    // The shortest of its intervals is the one that the far tier would make an operator wait for.
    copies.least_idle = std::min(copies.least_idle, begin_of(end) - begin_of(begin) - moving);
  }

  double begin_of(std::uint64_t op) const {
    return begins_[op % op_count_] + static_cast<double>(op / op_count_) * begins_[op_count_];
  }

  void set_order(Copies& copies, TierRule rule, const std::vector<TierWish>& wishes) const {
    const double taken = copies.pages * (begin_of(copies.end) - begin_of(copies.begin));
    switch (rule) {
      case TierRule::kShortest:
        copies.order = taken > 0.0 ? copies.saved_seconds / taken : copies.saved_seconds;
        break;
      case TierRule::kLeastTime: copies.order = -copies.least_idle; break;
      case TierRule::kFirst: copies.order = -static_cast<double>(copies.begin); break;
    }
    if (!wishes.empty() && wishes[copies.group] == TierWish::kNear)
      copies.order = std::numeric_limits<double>::infinity();
  }

  /// Pages that find room in the near tier all the time.
  std::uint32_t take_room(const Copies& copies) {
    const auto first = static_cast<std::uint32_t>(copies.begin % op_count_);
    const auto length = static_cast<std::uint32_t>(copies.end - copies.begin);
    // Copies of several steps are there at once when one outlives its step.
    const auto at_once = static_cast<std::int64_t>((length + op_count_ - 1) / op_count_);
    const std::int64_t room = (capacity_ - taken_.max(first, length)) / at_once;
    const auto pages = static_cast<std::uint32_t>(std::clamp<std::int64_t>(room, 0, copies.pages));
    taken_.add(first, length, pages);
    return pages;
  }

  const TouchIntervals& touches_;
  const std::vector<std::uint32_t>& pages_;
  const std::vector<double>& begins_;
  const std::int64_t capacity_;
  const PageCost near_;
  const PageCost far_;
  const std::uint64_t op_count_;
  const std::vector<std::uint32_t> groups_;
  LevelTree taken_;  ///< Of the near tier, by operator.
  std::vector<Copies> copies_;
};

/// One number for all that a value is in turn: the smallest of a closed loop.
std::vector<ValueIndex> roots_of(const StepTape& tape) {
  std::vector<ValueIndex> roots(tape.values.size(), kNoValue);
  for (ValueIndex i = 0; i < roots.size(); ++i) {
    // Values that are never written keep their copy for ever, so all numbers that one storage goes
    // by in turn share it.
    for (ValueIndex at = i; at != kNoValue && roots[at] == kNoValue;) {
      roots[at] = i;
      at = tape.values[at].death == kSurvives ? tape.values[at].becomes : kNoValue;
    }
  }
  return roots;
}

}  // namespace

std::vector<std::uint32_t> copy_groups(const StepTape& tape, const TouchIntervals& touches) {
  const std::vector<ValueIndex> roots = roots_of(tape);
  std::vector<std::uint32_t> by_epoch(touches.epoch_count, kNoGroup);
  std::vector<std::uint32_t> by_value(tape.values.size(), kNoGroup);
  std::vector<std::uint32_t> groups;
  groups.reserve(touches.intervals.size());
  for (std::uint32_t i = 0; i < touches.intervals.size(); ++i) {
    const Interval& interval = touches.intervals[i];
    std::uint32_t& group = interval.epoch == kNeverWritten ? by_value[roots[interval.value]]
                                                           : by_epoch[interval.epoch];
    if (group == kNoGroup) group = i;
    groups.push_back(group);
  }
  return groups;
}

std::vector<std::uint32_t> choose_far_pages(const StepTape& tape, const TouchIntervals& touches,
                                            const std::vector<std::uint32_t>& pages,
                                            const std::vector<double>& begins,
                                            const SwapLimits& limits, TierRule rule,
                                            const std::vector<TierWish>& wishes) {
  return TierChooser(tape, touches, pages, begins, limits).choose(rule, wishes);
}

}  // namespace spillway::planner
