#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::planner {

/// Minimize cost · x where every row's activity is at least `row_least`, or equal to it, and
/// 0 <= x <= column_most. Entries are stored by column.
struct LinearProgram {
  std::vector<double> column_cost;
  std::vector<double> column_most;
  std::vector<std::uint32_t> column_begin{0};  ///< Into the entries; one more than columns.
  std::vector<std::uint32_t> entry_row;
  std::vector<double> entry;
  std::vector<double> row_least;
  std::vector<bool> row_is_equal;

  std::size_t columns() const { return column_cost.size(); }
  std::size_t rows() const { return row_least.size(); }
};

/// Finds good prices for the rows of a linear program. Nothing depends on their being right: a
/// bound is computed from them as `proven_least` does, and bad prices make it low, not wrong.
class LinearSolver {
 public:
  virtual ~LinearSolver() = default;

  struct Solution {
    std::vector<double> row_prices;  ///< What one more unit of a row's least would cost.
    std::vector<double> columns;     ///< Near the optimum; for reports only.
  };
  /// `most_iterations` bounds the time, so that equal programs have equal solutions.
  virtual Solution solve(const LinearProgram& program, std::size_t most_iterations) const = 0;
};

/// What no feasible point costs less than, whatever the prices are (weak duality over the box).
double proven_least(const LinearProgram& program, const std::vector<double>& row_prices);

}  // namespace spillway::planner
