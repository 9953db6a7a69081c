#include <gtest/gtest.h>

#include "spillway/base/error.h"
#include "spillway/planner/clp/clp_solver.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::planner {
namespace {

/// Linked with what a build with SPILLWAY_WITH_CLP=OFF has in place of the solver.
TEST(AbsentClp, SaysWhatToDoWithoutIt) {
  GoldenPart().add(error_text<UnsupportedError>([] { planner_clp::make_clp_solver(); }));
}

}  // namespace
}  // namespace spillway::planner
