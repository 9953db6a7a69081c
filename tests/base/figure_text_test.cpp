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

TEST(DaysText, TurnIntoYearsAndHaveAnEnd) {
  EXPECT_EQ(days_text(0.5), "0.50 days");
  EXPECT_EQ(days_text(17.24), "17.2 days");
  EXPECT_EQ(days_text(700.0), "700 days");
  EXPECT_EQ(days_text(800.0), "2.2 years");
  EXPECT_EQ(days_text(1.3e4), "36 years");
  EXPECT_EQ(days_text(1e9), "more than 1000 years");
}

TEST(ShareAbove, IsNothingBelowRounding) {
  EXPECT_EQ(share_above(1.25, 1.0), 0.25);
  EXPECT_EQ(share_above(0.1 + 0.2, 0.3), 0.0);  // Else 2.2e-16.
  EXPECT_EQ(share_above(0.3, 0.1 + 0.2), 0.0);
  EXPECT_EQ(share_above(1.0, 2.0), 0.0);
  EXPECT_EQ(share_above(1.0, 0.0), 0.0);
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

TEST(AllDigits, ComeBackAsTheyWere) {
  EXPECT_EQ(all_digits(0.1), "0.1");
  EXPECT_EQ(all_digits(0.0), "0");
  EXPECT_EQ(std::stod(all_digits(1.0 / 3.0)), 1.0 / 3.0);
}

TEST(Counted, HasOneOrSeveral) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(12, "micro-batch"), "12 micro-batches");
}

TEST(AsOption, RoundsUp) {
  EXPECT_EQ(as_option(Bytes(1 << 20)), "1MiB");
  EXPECT_EQ(as_option(Bytes((1 << 20) + 1)), "2MiB");
  EXPECT_EQ(as_option(10_GiB), "10GiB");
  EXPECT_EQ(as_option(10_GiB - Bytes(1)), "10GiB");
  EXPECT_EQ(as_option(10_GiB + Bytes(1)), "10241MiB");
  for (const Bytes size : {1_B, 12345678_B, 5_TiB + 17_B}) {
    EXPECT_GE(parse_bytes(as_option(size)), size);
    EXPECT_LT(parse_bytes(as_option(size)), size + 1_MiB);
  }
}

}  // namespace
}  // namespace spillway
