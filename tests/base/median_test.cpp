#include "spillway/base/median.h"

#include <gtest/gtest.h>

#include "spillway/base/clock.h"

namespace spillway {
namespace {

TEST(Median, IsTheValueInTheMiddle) {
  std::vector<double> values{9.0, 1.0, 4.0};
  EXPECT_EQ(median(values), 4.0);
  std::vector<float> one{7.0F};
  EXPECT_EQ(median(one), 7.0F);
}

TEST(Median, IsTheMeanOfTwoInTheMiddle) {
  std::vector<double> values{8.0, 1.0, 2.0, 100.0};
  EXPECT_EQ(median(values), 5.0);
  std::vector<Duration> times{Duration(40), Duration(10), Duration(30), Duration(20)};
  EXPECT_EQ(median(times), Duration(25));
}

TEST(Median, IsNotMovedByOneOutlier) {
  std::vector<double> values{1.0, 1.0, 1.0, 1e9, 1.0};
  EXPECT_EQ(median(values), 1.0);
}

TEST(Median, OfNothingIsZero) {
  std::vector<double> none;
  EXPECT_EQ(median(none), 0.0);
}

TEST(SpreadOf, IsMedianAndRange) {
  const Spread spread = spread_of({3.0, 1.0, 2.0});
  EXPECT_EQ(spread.median, 2.0);
  EXPECT_EQ(spread.least, 1.0);
  EXPECT_EQ(spread.most, 3.0);
  EXPECT_EQ(spread_of({4.0, 1.0, 2.0, 9.0}).median, 3.0);
}

}  // namespace
}  // namespace spillway
