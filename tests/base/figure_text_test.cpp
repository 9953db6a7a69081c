#include "spillway/base/figure_text.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(SecondsText, HasThreeDigitsInTheUnitThatFits) {
  EXPECT_EQ(seconds_text(0.0), "0 s");
  EXPECT_EQ(seconds_text(1e-6), "1.00 µs");
  EXPECT_EQ(seconds_text(0.00047), "470 µs");
  EXPECT_EQ(seconds_text(0.0312), "31.2 ms");
  EXPECT_EQ(seconds_text(0.471), "471 ms");
  EXPECT_EQ(seconds_text(2.806), "2.81 s");
  EXPECT_EQ(seconds_text(23.1), "23.1 s");
  EXPECT_EQ(seconds_text(7300.4), "7300 s");
  EXPECT_EQ(seconds_text(-0.02), "-20.0 ms");
}

TEST(SecondsText, RoundsIntoTheNextUnit) {
  EXPECT_EQ(seconds_text(0.9996), "1.00 s");
  EXPECT_EQ(seconds_text(0.9994), "999 ms");
  EXPECT_EQ(seconds_text(0.00099996), "1.00 ms");
  EXPECT_EQ(seconds_text(9.996), "10.0 s");
  EXPECT_EQ(seconds_text(99.96), "100 s");
}

TEST(RateText, HasThreeDigitsOrAllBeforeThePoint) {
  EXPECT_EQ(rate_text(0.0), "0 per second");
  EXPECT_EQ(rate_text(0.123), "0.12 per second");
  EXPECT_EQ(rate_text(6.897), "6.90 per second");
  EXPECT_EQ(rate_text(31.23), "31.2 per second");
  EXPECT_EQ(rate_text(7682.4), "7682 per second");
}

TEST(PercentText, HasOneDigitAndNoSignForNothing) {
  EXPECT_EQ(percent_text(0.0412), "4.1 %");
  EXPECT_EQ(percent_text(-1e-9), "0.0 %");
  EXPECT_EQ(signed_percent_text(0.0412), "+4.1 %");
  EXPECT_EQ(signed_percent_text(-0.0412), "-4.1 %");
  EXPECT_EQ(signed_percent_text(-1e-9), "+0.0 %");
}

}  // namespace
}  // namespace spillway
