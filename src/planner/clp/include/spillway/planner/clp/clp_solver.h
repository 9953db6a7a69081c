#pragma once

#include <memory>

#include "spillway/planner/linear_program.h"

namespace spillway::planner_clp {

/// Makes a solver of COIN-OR's Clp: the dual simplex method on one thread. Deterministic and
/// silent. Throws UnsupportedError in a build with SPILLWAY_WITH_CLP=OFF, which has none.
std::unique_ptr<planner::LinearSolver> make_clp_solver();

}  // namespace spillway::planner_clp
