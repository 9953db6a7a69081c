#include "spillway/runtime/recording/typical_times.h"

#include <gmock/gmock.h>

#include <numeric>

namespace spillway::runtime {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr double kSlowdown = 1e-9;  // 1 ns per byte.

TEST(TimesAlone, AreShorterByWhatMovedBeside) {
  const OpTimes step{{100ns, 50ns, 70ns}, {Bytes(10), Bytes(0), Bytes(20)}};
  EXPECT_THAT(times_alone(step, kSlowdown), ElementsAre(90ns, 50ns, 50ns));
  EXPECT_THAT(times_alone(step, 0.0), ElementsAre(100ns, 50ns, 70ns));
}

TEST(TimesAlone, PassOnWhatAShortOperatorCannotHaveLost) {
  // A page of 100 bytes ends in an operator of 40 ns.
  const OpTimes step{{40ns, 30ns, 900ns, 50ns}, {Bytes(100), Bytes(0), Bytes(0), Bytes(0)}};
  EXPECT_THAT(times_alone(step, kSlowdown), ElementsAre(20ns, 15ns, 835ns, 50ns));
}

TEST(TimesAlone, AreWhatWasMeasuredWhereNobodyCounted) {
  EXPECT_THAT(times_alone({{40ns, 30ns}, {}}, kSlowdown), ElementsAre(40ns, 30ns));
}

TEST(TypicalTimes, AreEqualHoweverMuchMoved) {
  const StepTimes steps{{{110ns, 220ns}, {Bytes(10), Bytes(20)}},
                        {{100ns, 200ns}, {Bytes(0), Bytes(0)}},
                        {{105ns, 240ns}, {Bytes(5), Bytes(40)}}};
  EXPECT_EQ(typical_time(steps, kSlowdown), 300ns);
  EXPECT_THAT(typical_op_times(steps, kSlowdown), ElementsAre(100ns, 200ns));
  EXPECT_EQ(typical_time(steps, 0.0), 330ns);
}

TEST(TypicalTimes, AddUpToTheMedianStep) {
  const StepTimes steps{
      {{10ns, 100ns, 10ns}, {}}, {{90ns, 20ns, 10ns}, {}}, {{10ns, 20ns, 120ns}, {}}};
  const std::vector<Duration> times = typical_op_times(steps, 0.0);
  EXPECT_THAT(times, ElementsAre(30ns, 60ns, 30ns));
  EXPECT_EQ(std::reduce(times.begin(), times.end()), typical_time(steps, 0.0));
}

}  // namespace
}  // namespace spillway::runtime
