#pragma once

#include "spillway/planner/linear_program.h"

namespace spillway::planner {

/// COIN-OR's Clp: the dual simplex method on one thread. Deterministic and silent.
class ClpSolver final : public LinearSolver {
 public:
  /// Throws PlanError for a program whose arrays do not fit together.
  Solution solve(const LinearProgram& program, std::size_t most_iterations) const override;
};

}  // namespace spillway::planner
