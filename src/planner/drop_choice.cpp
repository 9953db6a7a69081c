#include "drop_choice.h"

#include <algorithm>

#include "level_tree.h"
#include "operator_prices.h"

namespace spillway::planner {
namespace {

class DropChooser {
 public:
  DropChooser(const TouchIntervals& touches, const std::vector<std::uint32_t>& live,
              std::uint32_t target_pages, PageCost cost, const std::vector<double>& drop_costs)
      : touches_(touches), target_(target_pages), levels_(live) {
    const auto values =
        interval_values(touches, operator_prices(touches, live, target_pages, cost, drop_costs));
    for (std::uint32_t i = 0; i < touches.intervals.size(); ++i) {
      if (values[i] <= 0.0) continue;
      const Interval& interval = touches.intervals[i];
      const double moving = (interval.epoch == kNeverWritten ? 0.0 : cost.write) +
                            (interval.end == IntervalEnd::kUsed ? cost.read : 0.0);
      const double least = std::min(moving, drop_costs[i]);
      options_.push_back({i, drop_costs[i] < moving, least, least / values[i], 0});
    }
  }

  std::vector<std::uint32_t> choose() {
    std::stable_sort(options_.begin(), options_.end(),
                     [](const Option& a, const Option& b) { return a.rate < b.rate; });
    for (Option& option : options_) take(option);
    std::stable_sort(options_.begin(), options_.end(), [](const Option& a, const Option& b) {
      return a.cost * static_cast<double>(a.taken) > b.cost * static_cast<double>(b.taken);
    });
    std::vector<std::uint32_t> chosen;
    for (Option& option : options_) {
      give_back(option);
      if (option.is_drop && option.taken > 0) chosen.push_back(option.interval);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  struct Option {
    std::uint32_t interval = 0;
    bool is_drop = false;
    double cost = 0.0;  ///< Per page.
    double rate = 0.0;  ///< Cost against what the reduced operators pay; the lowest goes first.
    std::int64_t taken = 0;
  };

  std::int64_t excess(const Interval& interval) const {
    return levels_.max(interval.begin + 1, interval.covered_ops) - target_;
  }

  void take(Option& option) {
    const Interval& interval = touches_.intervals[option.interval];
    const std::int64_t missing = excess(interval);
    if (missing <= 0) return;
    // Pages can be moved one by one; a value is computed as a whole.
    option.taken = interval.pages;
    if (!option.is_drop) option.taken = std::min(option.taken, missing);
    levels_.add(interval.begin + 1, interval.covered_ops, -option.taken);
  }

  /// What later ones have made needless.
  void give_back(Option& option) {
    const Interval& interval = touches_.intervals[option.interval];
    if (option.taken == 0 || -excess(interval) < option.taken) return;
    levels_.add(interval.begin + 1, interval.covered_ops, option.taken);
    option.taken = 0;
  }

  const TouchIntervals& touches_;
  const std::int64_t target_;
  LevelTree levels_;
  std::vector<Option> options_;
};

}  // namespace

std::vector<std::uint32_t> choose_drops(const TouchIntervals& touches,
                                        const std::vector<std::uint32_t>& live,
                                        std::uint32_t target_pages, PageCost cost,
                                        const std::vector<double>& drop_costs) {
  return DropChooser(touches, live, target_pages, cost, drop_costs).choose();
}

}  // namespace spillway::planner
