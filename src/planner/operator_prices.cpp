#include "operator_prices.h"

#include <algorithm>

#include "circular_sums.h"

namespace spillway::planner {
namespace {

constexpr int kRounds = 160;
constexpr int kFewRounds = 64;  // Where many drop sets are tried, near prices do.
constexpr double kCoolingRounds = 16.0;  // After so many the pace has halved.

/// Goes after the excess: an operator that is too full gets dearer, one with room to spare cheaper.
class PriceFinder {
 public:
  PriceFinder(const TouchIntervals& touches, const std::vector<std::uint32_t>& gross,
              std::uint32_t target_pages, PageCost cost, std::vector<double> drop_costs)
      : touches_(touches),
        cost_(cost),
        drop_costs_(std::move(drop_costs)),
        rounds_(drop_costs_.empty() ? kRounds : kFewRounds),
        gains_(touches.epoch_count, 0.0),
        excess_(gross.size()),
        prices_(gross.size(), 0.0) {
    for (std::size_t op = 0; op < gross.size(); ++op)
      excess_[op] = static_cast<double>(gross[op]) - static_cast<double>(target_pages);
    for (const double excess : excess_) {
      if (excess <= 0.0) continue;
      ++crowded_;
      most_ = std::max(most_, excess);
    }
  }

  std::vector<double> find() {
    if (crowded_ == 0) return prices_;
    std::vector<double> sum(prices_.size(), 0.0);
    // A round at full pace makes an interval over the whole crowd pay for itself several times.
    const double pace = 4.0 * usual_cost() / (static_cast<double>(crowded_) * most_);
    for (int round = 0; round < rounds_; ++round) {
      const std::vector<double> left = left_over();
      const double step = pace / (1.0 + round / kCoolingRounds);
      for (std::size_t op = 0; op < prices_.size(); ++op) {
        prices_[op] = std::max(0.0, prices_[op] + step * left[op]);
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

  bool is_dropped(std::size_t index) const {
    return !drop_costs_.empty() && drop_costs_[index] < cost_.write + cost_.read;
  }

  double read_cost(const Interval& interval) const {
    return interval.end == IntervalEnd::kUsed ? cost_.read : 0.0;
  }

  /// Excess that remains when everything leaves that pays for itself at the prices.
  std::vector<double> left_over() {
    const std::vector<double> values = interval_values(touches_, prices_);
    std::fill(gains_.begin(), gains_.end(), -cost_.write);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Interval& interval = touches_.intervals[i];
      if (interval.epoch != kNeverWritten && !is_dropped(i))
        gains_[interval.epoch] += std::max(0.0, values[i] - read_cost(interval));
    }
    const std::size_t op_count = excess_.size();
    std::vector<double> change(op_count + 1, 0.0);
    double always_out = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Interval& interval = touches_.intervals[i];
      const bool pays = is_dropped(i) || interval.epoch == kNeverWritten || gains_[interval.epoch] > 0.0;
      if (!pays || values[i] <= (is_dropped(i) ? drop_costs_[i] : read_cost(interval))) continue;
      always_out += static_cast<double>(interval.covered_ops / op_count) * interval.pages;
      const std::size_t first = (interval.begin + std::size_t{1}) % op_count;
      const std::size_t end = first + interval.covered_ops % op_count;
      change[first] -= interval.pages;
      change[std::min(end, op_count)] += interval.pages;
      if (end <= op_count) continue;
      change[0] -= interval.pages;
      change[end - op_count] += interval.pages;
    }
    std::vector<double> left(op_count);
    double out = -always_out;
    for (std::size_t op = 0; op < op_count; ++op) {
      out += change[op];
      left[op] = excess_[op] + out;
    }
    return left;
  }

  const TouchIntervals& touches_;
  const PageCost cost_;
  const std::vector<double> drop_costs_;  ///< Per interval and page; none: nothing is dropped.
  const int rounds_;
  std::vector<double> gains_;  ///< Per epoch: what its intervals bring beyond the write.
  std::vector<double> excess_;
  std::vector<double> prices_;
  std::size_t crowded_ = 0;
  double most_ = 0.0;
};

}  // namespace

std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& gross,
                                    std::uint32_t target_pages, PageCost cost) {
  return PriceFinder(touches, gross, target_pages, cost, {}).find();
}

std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& gross,
                                    std::uint32_t target_pages, PageCost cost,
                                    const std::vector<double>& drop_costs) {
  return PriceFinder(touches, gross, target_pages, cost, drop_costs).find();
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
