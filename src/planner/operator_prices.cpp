#include "operator_prices.h"

#include <algorithm>

#include "level_tree.h"
#include "search_limits.h"

namespace spillway::planner {
namespace {

/// Goes after the excess: an operator that is too full gets dearer, one with room to spare cheaper.
/// The prices are the dual of a linear program that would be far too large to solve for each of
/// hundreds of tries. The excess that is left when every interval decides for itself is a
/// subgradient of it, so going after that with shrinking steps comes near.
class PriceFinder {
 public:
  PriceFinder(const TouchIntervals& touches, const std::vector<std::uint32_t>& live,
              std::uint32_t target_pages, PageCost cost, std::vector<double> drop_costs)
      : touches_(touches),
        cost_(cost),
        drop_costs_(std::move(drop_costs)),
        rounds_(drop_costs_.empty() ? kPriceRounds : kFewPriceRounds),
        gains_(touches.epoch_count, 0.0),
        excess_(live.size()),
        prices_(live.size(), 0.0) {
    for (std::size_t op = 0; op < live.size(); ++op)
      excess_[op] = static_cast<double>(live[op]) - static_cast<double>(target_pages);
    for (const double excess : excess_) {
      if (excess <= 0.0) continue;
      ++crowded_;
      most_ = std::max(most_, excess);
    }
    if (crowded_ > 0) find_spans(live);
  }

  std::vector<double> find() {
    if (crowded_ == 0) return prices_;
    std::vector<double> sum(prices_.size(), 0.0);
    // A round at full pace makes an interval over the whole crowd pay for itself several times.
    const double pace = 4.0 * usual_cost() / (static_cast<double>(crowded_) * most_);
    for (int round = 0; round < rounds_; ++round) {
      const std::vector<double>& left = left_over();
      // Steps shrink like 1/n, so their sum has no limit: prices can get as high as they have to,
      // and still come to rest.
      const double step = pace / (1.0 + round / kCoolingRounds);
      for (std::size_t op = 0; op < prices_.size(); ++op) {
        prices_[op] = std::max(0.0, prices_[op] + step * left[op]);
        // Prices swing around where they end; the mean of the later half is nearer than the last of
        // them.
        if (round >= rounds_ / 2) sum[op] += prices_[op];
      }
    }
    for (double& price : sum) price /= rounds_ / 2;
    return sum;
  }

 private:
  /// Mean over the pages of intervals of what it takes to relieve them.
  double usual_cost() const {
    const double moved = cost_.write + cost_.read;
    if (drop_costs_.empty()) return moved;
    double pages = 0.0;
    double sum = 0.0;
    for (std::size_t i = 0; i < drop_costs_.size(); ++i) {
      pages += touches_.intervals[i].pages;
      sum += touches_.intervals[i].pages * std::min(moved, drop_costs_[i]);
    }
    return pages > 0.0 ? sum / pages : moved;
  }

  // The write is charged whole here, as for a value that leaves once: shared writes would have to
  // be decided together with the drops.
  bool is_dropped(std::size_t index) const {
    return !drop_costs_.empty() && drop_costs_[index] < cost_.write + cost_.read;
  }

  /// Intervals that relieve nobody never pay, so only the others are looked at.
  void find_spans(const std::vector<std::uint32_t>& live) {
    const std::size_t op_count = live.size();
    std::vector<double> crowd;
    for (const double excess : excess_) crowd.push_back(excess > 0.0 ? 1.0 : 0.0);
    const CircularSums crowded(crowd);
    for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) {
      const Interval& interval = touches_.intervals[i];
      const std::size_t begin = interval.begin + std::size_t{1};
      // Sums of ones, compared as numbers with rounding.
      if (crowded.sum(begin, interval.covered_ops) < 0.5) continue;
      Span span;
      span.pages = interval.pages;
      span.epoch = interval.epoch;
      span.rounds = interval.covered_ops / op_count;
      span.first = begin % op_count;
      span.end = span.first + interval.covered_ops % op_count;
      span.wrapped = span.end > op_count ? span.end - op_count : 0;
      span.end = std::min(span.end, op_count);
      span.is_dropped = is_dropped(i);
      const double read = interval.end == IntervalEnd::kUsed ? cost_.read : 0.0;
      span.cost = span.is_dropped ? drop_costs_[i] : read;
      spans_.push_back(span);
    }
    values_.resize(spans_.size());
    change_.resize(op_count + 1);
    before_.resize(op_count + 1);
    left_.resize(op_count);
  }

  void value_spans() {
    for (std::size_t op = 0; op < prices_.size(); ++op) before_[op + 1] = before_[op] + prices_[op];
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      double sum = span.rounds * before_.back() + before_[span.end] - before_[span.first];
      if (span.wrapped > 0) sum += before_[span.wrapped];
      values_[i] = sum;
    }
  }

  /// Excess that remains when everything leaves that pays for itself at the prices.
  const std::vector<double>& left_over() {
    value_spans();
    // One write serves all intervals of an epoch, so they pay for it together: it is made when what
    // they bring beyond their reads is more.
    std::fill(gains_.begin(), gains_.end(), -cost_.write);
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      if (span.epoch != kNeverWritten && !span.is_dropped)
        gains_[span.epoch] += std::max(0.0, values_[i] - span.cost);
    }
    std::fill(change_.begin(), change_.end(), 0.0);
    double always_out = 0.0;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      const bool pays = span.is_dropped || span.epoch == kNeverWritten || gains_[span.epoch] > 0.0;
      if (!pays || values_[i] <= span.cost) continue;
      // What is out for whole steps is out at every operator; only the rest has a begin and an end.
      always_out += span.rounds * span.pages;
      change_[span.first] -= span.pages;
      change_[span.end] += span.pages;
      if (span.wrapped == 0) continue;
      change_[0] -= span.pages;
      change_[span.wrapped] += span.pages;
    }
    double out = -always_out;
    for (std::size_t op = 0; op < left_.size(); ++op) {
      out += change_[op];
      left_[op] = excess_[op] + out;
    }
    return left_;
  }

  /// An interval on the circle of operators.
  struct Span {
    double pages = 0.0;
    double rounds = 0.0;  ///< So many times around the step, and then from `first` to `end`.
    std::size_t first = 0;
    std::size_t end = 0;
    std::size_t wrapped = 0;  ///< And from 0 to here.
    double cost = 0.0;        ///< Per page: of the read, or of the replays of what is dropped.
    std::uint32_t epoch = kNeverWritten;
    bool is_dropped = false;
  };

  const TouchIntervals& touches_;
  const PageCost cost_;
  const std::vector<double> drop_costs_;  ///< Per interval and page; none: nothing is dropped.
  const int rounds_;
  std::vector<double> gains_;  ///< Per epoch: what its intervals bring beyond the write.
  std::vector<double> excess_;
  std::vector<double> prices_;
  std::vector<Span> spans_;
  std::vector<double> values_;  ///< Per span: sum of the prices.
  std::vector<double> before_;  ///< Per operator: sum of the prices before it.
  std::vector<double> change_;
  std::vector<double> left_;
  std::size_t crowded_ = 0;
  double most_ = 0.0;
};

}  // namespace

std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& live,
                                    std::uint32_t target_pages, PageCost cost) {
  return PriceFinder(touches, live, target_pages, cost, {}).find();
}

std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& live,
                                    std::uint32_t target_pages, PageCost cost,
                                    const std::vector<double>& drop_costs) {
  return PriceFinder(touches, live, target_pages, cost, drop_costs).find();
}

std::vector<double> interval_values(const TouchIntervals& touches,
                                    const std::vector<double>& prices) {
  const CircularSums sums(prices);
  std::vector<double> values;
  values.reserve(touches.intervals.size());
  for (const Interval& interval : touches.intervals)
    values.push_back(sums.sum(interval.begin + std::size_t{1}, interval.covered_ops));
  return values;
}

}  // namespace spillway::planner
