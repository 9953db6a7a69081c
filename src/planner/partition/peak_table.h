#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace spillway::planner {

/// The largest of any stretch, in O(1) from O(n log n) figures.
class PeakTable {
 public:
  PeakTable() = default;
  explicit PeakTable(std::vector<double> values) {
    // Where nothing has a peak there is nothing to look up.
    if (std::all_of(values.begin(), values.end(), [](double each) { return each == 0.0; })) return;
    rows_.push_back(std::move(values));
    for (std::size_t width = 2; width <= rows_[0].size(); width *= 2) {
      const std::vector<double>& half = rows_.back();
      std::vector<double> row(rows_[0].size() - width + 1);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::max(half[i], half[i + width / 2]);
      rows_.push_back(std::move(row));
    }
  }

  /// Returns the largest value of [first, end), which is not empty.
  double largest(std::uint32_t first, std::uint32_t end) const {
    if (rows_.empty()) return 0.0;
    const auto row = static_cast<std::size_t>(std::bit_width(end - first) - 1);
    return std::max(rows_[row][first], rows_[row][end - (std::size_t{1} << row)]);
  }

 private:
  std::vector<std::vector<double>> rows_;  ///< Row r: of 2^r neighbours from each place on.
};

}  // namespace spillway::planner
