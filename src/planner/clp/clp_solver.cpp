#include "spillway/planner/clp/clp_solver.h"

#include <coin/ClpPresolve.hpp>
#include <coin/ClpSimplex.hpp>
#include <coin/ClpSolve.hpp>
#include <vector>

#include "spillway/base/error.h"

namespace spillway::planner_clp {
namespace {

class ClpSolver final : public planner::LinearSolver {
 public:
  Solution solve(const planner::LinearProgram& program, std::size_t most_iterations) const override;
};

planner::LinearSolver::Solution ClpSolver::solve(const planner::LinearProgram& program,
                                                 std::size_t most_iterations) const {
  const std::size_t entries = program.entry.size();
  if (program.column_most.size() != program.columns() ||
      program.column_begin.size() != program.columns() + 1 ||
      program.column_begin.back() != entries || program.entry_row.size() != entries ||
      program.row_is_equal.size() != program.rows())
    throw PlanError("a linear program of {} columns and {} rows has arrays of other sizes",
                    program.columns(), program.rows());
  const std::vector<CoinBigIndex> begins(program.column_begin.begin(), program.column_begin.end());
  const std::vector<int> rows(program.entry_row.begin(), program.entry_row.end());
  const std::vector<double> zeros(program.columns(), 0.0);
  std::vector<double> row_most(program.rows(), COIN_DBL_MAX);
  for (std::size_t row = 0; row < program.rows(); ++row)
    if (program.row_is_equal[row]) row_most[row] = program.row_least[row];

  ClpSimplex model;
  model.setLogLevel(0);
  model.loadProblem(static_cast<int>(program.columns()), static_cast<int>(program.rows()),
                    begins.data(), rows.data(), program.entry.data(), zeros.data(),
                    program.column_most.data(), program.column_cost.data(),
                    program.row_least.data(), row_most.data());
  model.setMaximumIterations(static_cast<int>(most_iterations));
  ClpSolve how;
  how.setSolveType(ClpSolve::useDual);
  how.setPresolveType(ClpSolve::presolveOn);
  model.initialSolve(how);
  const double* prices = model.getRowPrice();
  const double* columns = model.getColSolution();
  return {.row_prices = {prices, prices + program.rows()},
          .columns = {columns, columns + program.columns()}};
}

}  // namespace

std::unique_ptr<planner::LinearSolver> make_clp_solver() { return std::make_unique<ClpSolver>(); }

}  // namespace spillway::planner_clp
