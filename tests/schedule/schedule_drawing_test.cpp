#include "spillway/schedule/schedule_drawing.h"

#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "support/drawn_schedule.h"
#include "support/generated_schedule.h"

namespace spillway::schedule {
namespace {

using planner_schedule::drawing;
using planner_schedule::even_costs;
using planner_schedule::gems;
using planner_schedule::generated;
using planner_schedule::ScheduleCosts;
using planner_schedule::ScheduleTiming;
using planner_schedule::StageCosts;
using planner_schedule::time_schedule;
using planner_schedule::with_recomputation;

std::string with_equal_backward(const Schedule& schedule) {
  return drawing(schedule, time_schedule(schedule, even_costs(schedule, 1.0, 0.5, 0.5)));
}

TEST(Drawing, GPipe) {
  EXPECT_EQ(with_equal_backward(generated("gpipe", 3, 2)), "r0: F0 F1 .. .. .. .. B1 B0\n"
                                                           "r1: .. F0 F1 .. .. B1 B0 ..\n"
                                                           "r2: .. .. F0 F1 B1 B0 .. ..\n");
}

TEST(Drawing, OneForwardOneBackward) {
  EXPECT_EQ(drawing(generated("1f1b", 4, 5)),
            "r0: F0 F1 F2 F3 .. .. .. .. .. .. B0 B0 F4 B1 B1 .. B2 B2 .. B3 B3 .. B4 B4\n"
            "r1: .. F0 F1 F2 .. .. .. .. B0 B0 F3 B1 B1 F4 B2 B2 .. B3 B3 .. B4 B4 .. ..\n"
            "r2: .. .. F0 F1 .. .. B0 B0 F2 B1 B1 F3 B2 B2 F4 B3 B3 .. B4 B4 .. .. .. ..\n"
            "r3: .. .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 .. .. .. .. .. ..\n");
}

TEST(Drawing, Interleaved) {
  EXPECT_EQ(drawing(generated("interleaved", 2, 2)),
            "r0: F0 F1 f0 f1 .. .. b0 b0 .. b1 b1 B0 B0 B1 B1\n"
            "r1: .. F0 F1 f0 b0 b0 f1 b1 b1 B0 B0 B1 B1 .. ..\n");
}

TEST(Drawing, ZeroBubbleOne) {
  EXPECT_EQ(drawing(generated("zb-h1", 3, 4)), "r0: F0 F1 F2 .. .. I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
                                               "r1: .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
                                               "r2: .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
}

TEST(Drawing, ZeroBubbleTwo) {
  EXPECT_EQ(drawing(generated("zb-h2", 3, 5)),
            "r0: F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 .. ..\n"
            "r1: .. F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4 ..\n"
            "r2: .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4\n");
}

TEST(Drawing, ZeroBubbleV) {
  EXPECT_EQ(drawing(generated("zb-v", 2, 3)),
            "r0: F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 I1 w2 I2 W1 W2 ..\n"
            "r1: .. F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 I1 i2 I2 w1 W1 w2 W2\n");
}

TEST(Drawing, VHalf) {
  EXPECT_EQ(drawing(generated("v-half", 2, 3)),
            "r0: F0 .. .. f0 F1 i0 w0 f1 F2 I0 i1 W0 w1 f2 .. I1 i2 W1 w2 I2 W2\n"
            "r1: .. F0 f0 .. .. F1 f1 i0 I0 w0 F2 W0 f2 i1 I1 w1 W1 i2 I2 w2 W2\n");
}

// Figure of the Chimera paper for four stages and four micro-batches, up to names.
TEST(Drawing, Chimera) {
  EXPECT_EQ(with_equal_backward(generated("chimera", 4, 4)),
            "r0: F0a F0b ... F1a B1a F1b B1b B0a ... B0b\n"
            "r1: ... F0a F1a F0b F1b B1a B0a B1b B0b ...\n"
            "r2: ... F1a F0a F1b F0b B0a B1a B0b B1b ...\n"
            "r3: F1a F1b ... F0a B0a F0b B0b B1a ... B1b\n");
}

TEST(Drawing, GemsMast) {
  EXPECT_EQ(drawing(generated("gems-mast", 4, 2)),
            "r0: F0 .. .. .. .. .. .. .. .. .. B0 B0 F1 B1 B1 .. .. .. .. .. ..\n"
            "r1: .. F0 .. .. .. .. .. .. B0 B0 F1 .. .. .. .. B1 B1 .. .. .. ..\n"
            "r2: .. .. F0 .. .. .. B0 B0 F1 .. .. .. .. .. .. .. .. B1 B1 .. ..\n"
            "r3: .. .. .. F0 B0 B0 F1 .. .. .. .. .. .. .. .. .. .. .. .. B1 B1\n");
}

TEST(Drawing, GemsMaster) {
  EXPECT_EQ(drawing(generated("gems-master", 4, 4)),
            "r0: F0 .. .. .. .. .. .. .. .. .. B0 B0 F1 B1 B1 F2 .. .. .. .. .. .. .. .. .. .. .. "
            ".. B2 B2 F3 B3 B3 .. .. .. .. .. ..\n"
            "r1: .. F0 .. .. .. .. .. .. B0 B0 F1 .. .. .. .. B1 B1 F2 .. .. .. .. .. .. .. .. B2 "
            "B2 F3 .. .. .. .. B3 B3 .. .. .. ..\n"
            "r2: .. .. F0 .. .. .. B0 B0 F1 .. .. .. .. .. .. .. .. B1 B1 F2 .. .. .. .. B2 B2 F3 "
            ".. .. .. .. .. .. .. .. B3 B3 .. ..\n"
            "r3: .. .. .. F0 B0 B0 F1 .. .. .. .. .. .. .. .. .. .. .. .. B1 B1 F2 B2 B2 F3 .. .. "
            ".. .. .. .. .. .. .. .. .. .. B3 B3\n");
}

TEST(Drawing, GemsMastWithTwoMicroBatches) {
  EXPECT_EQ(drawing(generated("gems-mast", 4, 4)),
            "r0: F0a F0b ... ... ... ... ... ... ... ... ... B0a B0a B0b B0b F1a F1b B1a B1a B1b "
            "B1b ... ... ... ... ... ...\n"
            "r1: ... F0a F0b ... ... ... ... ... ... B0a B0a B0b B0b F1a F1b ... ... ... ... B1a "
            "B1a B1b B1b ... ... ... ...\n"
            "r2: ... ... F0a F0b ... ... ... B0a B0a B0b B0b F1a F1b ... ... ... ... ... ... ... "
            "... B1a B1a B1b B1b ... ...\n"
            "r3: ... ... ... F0a F0b B0a B0a B0b B0b F1a F1b ... ... ... ... ... ... ... ... ... "
            "... ... ... B1a B1a B1b B1b\n");
}

TEST(Drawing, GemsMastOnAnOddNumberOfRanks) {
  EXPECT_EQ(drawing(generated("gems-mast", 3, 2)),
            "r0: F0 .. .. .. .. .. .. B0 B0 F1 B1 B1 .. .. .. ..\n"
            "r1: .. F0 .. .. .. B0 B0 F1 .. .. .. .. B1 B1 .. ..\n"
            "r2: .. .. F0 B0 B0 F1 .. .. .. .. .. .. .. .. B1 B1\n");
}

TEST(Drawing, RecomputationAndSteps) {
  const std::vector<std::uint32_t> last{1};
  const Schedule schedule = with_recomputation(generated("gpipe", 2, 1), last);
  ScheduleCosts costs = even_costs(schedule, 1.0, 0.5, 0.5);
  for (StageCosts& stage : costs.stages) stage.step_seconds = 1.0;
  EXPECT_EQ(drawing(schedule, time_schedule(schedule, costs)), "r0: F0 .. .. .. B0 S0\n"
                                                               "r1: .. F0 R0 B0 S1 ..\n");
}

TEST(Drawing, NamesTheStagesOfARankWithThree) {
  EXPECT_EQ(with_equal_backward(
                generated("breadth-first", {.ranks = 1, .micro_batches = 1, .stages_per_rank = 3})),
            "r0: F0.0 F0.1 F0.2 B0.2 B0.1 B0.0\n");
}

TEST(MicroBatchLabel, TellsReplicasApart) {
  const Action action{ActionKind::kForward, 0, 3, 1};
  EXPECT_EQ(micro_batch_label(generated("1f1b", 2, 4), {ActionKind::kForward, 0, 3}), "3");
  EXPECT_EQ(micro_batch_label(generated("chimera", 2, 8), action), "1d");
  EXPECT_EQ(micro_batch_label(gems(2, 1, 4), {ActionKind::kForward, 0, 0, 3}), "3");
  EXPECT_EQ(micro_batch_label(gems(2, 30, 2), {ActionKind::kForward, 0, 27, 1}), "1/27");
}

TEST(Drawing, RefusesPicturesThatNobodyCanSee) {
  const Schedule schedule = generated("gpipe", 2, 2);
  const ScheduleTiming timing = time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0));
  EXPECT_THROW(drawing(schedule, timing, 1e-9), ConfigError);
  EXPECT_THROW(drawing(schedule, timing, 0.0), ConfigError);
}

}  // namespace
}  // namespace spillway::schedule
