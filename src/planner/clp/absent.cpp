// Takes the place of clp_solver.cpp in a build with SPILLWAY_WITH_CLP=OFF.
#include "spillway/base/error.h"
#include "spillway/planner/clp/clp_solver.h"

namespace spillway::planner_clp {

std::unique_ptr<planner::LinearSolver> make_clp_solver() {
  throw UnsupportedError(
      "COIN-OR's Clp, which solves the linear program of a tight bound, is not part of this build "
      "(use --bound quick, or configure with -DSPILLWAY_WITH_CLP=ON)");
}

}  // namespace spillway::planner_clp
