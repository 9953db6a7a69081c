#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::planner {

/// Minimize cost · x over x in [0, column_most] where A x >= row_least, in some rows with equality.
/// A is sparse and stored by column: those of column j are the entries from column_begin[j] up to
/// column_begin[j + 1]. No units: whoever fills it scales it. Plain data; all are finite.
struct LinearProgram {
  std::vector<double> column_cost;             ///< Per column: what one unit of x costs.
  std::vector<double> column_most;             ///< Per column, >= 0; x begins at 0.
  std::vector<std::uint32_t> column_begin{0};  ///< Into the entries; one more than columns.
  std::vector<std::uint32_t> entry_row;        ///< Per entry, < rows(); each once in a column.
  std::vector<double> entry;                   ///< Per entry: the coefficient in A.
  std::vector<double> row_least;               ///< Per row: what its activity has to reach.
  std::vector<bool> row_is_equal;              ///< Per row: its activity may not be more, either.

  std::size_t columns() const { return column_cost.size(); }
  std::size_t rows() const { return row_least.size(); }
};

/// Finds good prices for the rows of a linear program. Nothing depends on their being right: a
/// bound is computed from them as `proven_least` does, and bad prices make it low, not wrong.
class LinearSolver {
 public:
  virtual ~LinearSolver() = default;

  struct Solution {
    std::vector<double> row_prices;  ///< Per row: what one more unit of its least would cost.
    std::vector<double> columns;     ///< Per column: x near the optimum; for reports only.
  };
  /// `most_iterations` bounds the time, so that equal programs have equal solutions. Any number of
  /// threads may ask at the same time. A program without a solution, or one that takes too long,
  /// has some prices, too. Throws PlanError for arrays whose sizes contradict each other.
  virtual Solution solve(const LinearProgram& program, std::size_t most_iterations) const = 0;
};

/// A lower bound of the cost of all feasible points, for any prices y, one per row: y · row_least +
/// sum over columns j of min(0, column_cost_j - y · column_j) · column_most_j, where prices below
/// zero of rows without equality count as zero (weak duality over the box; see bounds.md). In units
/// of the cost; who relies on it takes off some 1e-9 of it for rounding.
double proven_least(const LinearProgram& program, const std::vector<double>& row_prices);

}  // namespace spillway::planner
