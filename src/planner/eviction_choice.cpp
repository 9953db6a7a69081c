#include "eviction_choice.h"

#include <algorithm>
#include <array>

#include "level_tree.h"
#include "operator_prices.h"

namespace spillway::planner {
namespace {

// What relieves nobody has no price to divide by; with this one it comes last.
constexpr double kNoPrice = 1e-30;

// What it costs to take a page out for an interval, cheapest first.
enum CostClass : std::uint8_t { kFree, kWriteOnly, kReadOnly, kWriteAndRead, kClassCount };

std::vector<double> ones_where_above(const std::vector<std::uint32_t>& levels,
                                     std::uint32_t target_pages) {
  std::vector<double> ones;
  for (const std::uint32_t level : levels) ones.push_back(level > target_pages ? 1.0 : 0.0);
  return ones;
}

/// A heap per class of cost: within one all pages cost the same, so its best is the interval that
/// relieves longest, and only the tops of the four have to be compared.
class Chooser {
 public:
  Chooser(const TouchIntervals& touches, const std::vector<std::uint32_t>& live,
          std::uint32_t target_pages, ChoiceRule rule, PageCost cost)
      : touches_(touches),
        target_(target_pages),
        rule_(rule),
        op_count_(static_cast<std::uint32_t>(live.size())),
        class_cost_{0.0, cost.write, cost.read, cost.write + cost.read},
        pages_(touches.intervals.size(), 0),
        copied_(touches.epoch_count, 0),
        levels_(live),
        crowded_(ones_where_above(live, target_pages)) {
    if (rule == ChoiceRule::kBestValue)
      values_ = interval_values(touches, operator_prices(touches, live, target_pages, cost));
  }

  EvictionChoice choose() {
    // The step repeats: what began before its end may still be open when it begins again.
    for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) {
      const Interval& interval = touches_.intervals[i];
      const std::uint64_t end = std::uint64_t{interval.begin} + 1 + interval.covered_ops;
      if (end > op_count_) push(i, end - op_count_);
    }
    // In the order of the step: when an operator's turn comes, all that could make room for it is
    // in the heaps.
    for (std::uint32_t op = 0; op < op_count_; ++op) {
      if (op > 0) push_begun_after(op - 1);
      relieve(op);
    }
    give_back();
    return {std::move(pages_), std::move(levels_)};
  }

 private:
  struct Candidate {
    std::uint64_t end;  ///< First operator that it no longer relieves, counted from this period.
    std::uint32_t interval;
    std::uint32_t limit;  ///< Pages that may leave at this cost.
    double value = 0.0;   ///< What its operators pay, for the rule that asks.
    bool operator<(const Candidate& other) const {
      if (value != other.value) return value < other.value;
      return end != other.end ? end < other.end : interval > other.interval;
    }
  };

  void push_begun_after(std::uint32_t op) {
    for (std::uint32_t i = touches_.first_of_op[op]; i < touches_.first_of_op[op + 1]; ++i)
      push(i, std::uint64_t{op} + 1 + touches_.intervals[i].covered_ops);
  }

  void push(std::uint32_t index, std::uint64_t end) {
    const Interval& interval = touches_.intervals[index];
    const bool is_read = interval.end == IntervalEnd::kUsed;
    // One write serves all intervals of an epoch. So up to the pages that left in another one of
    // them, this one costs less: it stands in two classes.
    const std::uint32_t copied = interval.epoch == kNeverWritten
                                     ? interval.pages
                                     : std::min(interval.pages, copied_[interval.epoch]);
    const double value = values_.empty() ? 0.0 : values_[index];
    if (copied > pages_[index]) push_to(is_read ? kReadOnly : kFree, {end, index, copied, value});
    if (copied < interval.pages)
      push_to(is_read ? kWriteAndRead : kWriteOnly, {end, index, interval.pages, value});
  }

  void push_to(CostClass cost_class, const Candidate& candidate) {
    auto& heap = heaps_[cost_class];
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end());
  }

  /// Drops candidates at the top that have ended or given all their pages.
  void clean_top(std::vector<Candidate>& heap, std::uint32_t op) const {
    while (!heap.empty()) {
      const Candidate& top = heap.front();
      const bool has_ended = top.end <= op;
      if (has_ended && values_.empty()) {
        heap.clear();  // The others end before it.
      } else if (has_ended || pages_[top.interval] >= top.limit) {
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
      } else {
        return;
      }
    }
  }

  /// Crowded operators from `op` to `end`.
  double with_memory_reduction(std::uint32_t op, std::uint64_t end) const {
    return std::max(crowded_.sum(op, end - op), 1.0);
  }

  int best_class(std::uint32_t op) {
    int best = -1;
    double best_score = 0.0;
    for (int i = 0; i < kClassCount; ++i) {
      clean_top(heaps_[i], op);
      if (heaps_[i].empty()) continue;
      if (i == kFree) return kFree;
      const Candidate& top = heaps_[i].front();
      double score = class_cost_[i] / with_memory_reduction(op, top.end);
      // Belady's rule counts reads. What dies unused costs none, but a write that nobody ever
      // reads, so it goes only when nothing else is left.
      if (rule_ == ChoiceRule::kFarthestUse)
        score = i == kWriteOnly ? 1.0 : -static_cast<double>(top.end);
      if (rule_ == ChoiceRule::kBestValue) score = class_cost_[i] / std::max(top.value, kNoPrice);
      if (best < 0 || score < best_score) {
        best = i;
        best_score = score;
      }
    }
    return best;
  }

  void relieve(std::uint32_t op) {
    std::int64_t excess = levels_.at(op) - target_;
    while (excess > 0) {
      const int from = best_class(op);
      if (from < 0) return;
      const Candidate candidate = heaps_[from].front();
      const std::uint32_t index = candidate.interval;
      const auto taken = static_cast<std::uint32_t>(
          std::min<std::int64_t>(excess, candidate.limit - pages_[index]));
      take(index, taken);
      // Not less what was taken: an interval that is longer than the step relieves this operator
      // several times.
      excess = levels_.at(op) - target_;
    }
  }

  void take(std::uint32_t index, std::uint32_t taken) {
    const Interval& interval = touches_.intervals[index];
    if (pages_[index] == 0) order_.push_back(index);
    pages_[index] += taken;
    if (interval.epoch != kNeverWritten)
      copied_[interval.epoch] = std::max(copied_[interval.epoch], pages_[index]);
    levels_.add(interval.begin + 1, interval.covered_ops, -std::int64_t{taken});
  }

  /// Keeps what later choices have made needless: the dearest first, then the newest.
  void give_back() {
    const auto cost_of = [&](std::uint32_t index) {
      const Interval& interval = touches_.intervals[index];
      return (interval.epoch == kNeverWritten ? 0.0 : class_cost_[kWriteOnly]) +
             (interval.end == IntervalEnd::kUsed ? class_cost_[kReadOnly] : 0.0);
    };
    std::reverse(order_.begin(), order_.end());
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return cost_of(a) > cost_of(b); });
    for (const std::uint32_t index : order_) {
      const Interval& interval = touches_.intervals[index];
      const std::int64_t slack = target_ - levels_.max(interval.begin + 1, interval.covered_ops);
      if (slack <= 0) continue;
      // Of a value that is out for several steps as many copies are, and each page that stays takes
      // its room that often.
      const std::int64_t times_counted = interval.covered_ops / op_count_ + 1;
      const auto kept =
          static_cast<std::uint32_t>(std::min<std::int64_t>(pages_[index], slack / times_counted));
      if (kept == 0) continue;
      pages_[index] -= kept;
      levels_.add(interval.begin + 1, interval.covered_ops, kept);
    }
  }

  const TouchIntervals& touches_;
  const std::int64_t target_;
  const ChoiceRule rule_;
  const std::uint32_t op_count_;
  const std::array<double, kClassCount> class_cost_;
  std::vector<std::uint32_t> pages_;
  std::vector<std::uint32_t> copied_;  ///< Per epoch: pages that have a copy from there on.
  LevelTree levels_;
  const CircularSums crowded_;  ///< 1 for each operator that is reduced by taking something out.
  std::vector<double> values_;  ///< Per interval, for the rule that asks.
  std::array<std::vector<Candidate>, kClassCount> heaps_;
  std::vector<std::uint32_t> order_;  ///< Intervals in the order in which they were taken.
};

}  // namespace

EvictionChoice choose_evictions(const TouchIntervals& touches,
                                const std::vector<std::uint32_t>& live, std::uint32_t target_pages,
                                ChoiceRule rule, PageCost cost) {
  return Chooser(touches, live, target_pages, rule, cost).choose();
}

}  // namespace spillway::planner
