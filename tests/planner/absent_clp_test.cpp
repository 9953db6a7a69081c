#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/planner/clp/clp_solver.h"

namespace spillway::planner {
namespace {

/// Linked with what a build with SPILLWAY_WITH_CLP=OFF has in place of the solver.
TEST(AbsentClp, SaysWhatToDoWithoutIt) {
  try {
    make_clp_solver();
    FAIL() << "made one";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("COIN-OR's Clp"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("use --bound quick"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("-DSPILLWAY_WITH_CLP=ON"));
  }
}

}  // namespace
}  // namespace spillway::planner
