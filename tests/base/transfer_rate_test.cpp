#include "spillway/base/transfer_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace spillway {
namespace {

using namespace literals;

static_assert(!std::is_convertible_v<double, TransferRate>, "one has to say that it is a rate");
static_assert(!std::is_convertible_v<TransferRate, double>, "one has to say in which unit");

TEST(TransferRate, TellsSecondsAndBytes) {
  const TransferRate rate(4.0);
  EXPECT_EQ(rate.seconds_for(8_B), 2.0);
  EXPECT_EQ(rate.seconds_for(2.0), 0.5);
  EXPECT_EQ(rate.bytes_in(3.0), 12.0);
}

TEST(TransferRate, TakesNoTimeWithoutALimit) {
  EXPECT_EQ(TransferRate::unlimited().seconds_for(1_TiB), 0.0);
  EXPECT_TRUE(TransferRate::unlimited().is_unlimited());
  EXPECT_FALSE(TransferRate(1e18).is_unlimited());
}

TEST(TransferRate, MovesNothingWhereThereIsNone) {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  EXPECT_EQ(TransferRate().bytes_in(kForever), 0.0);
  EXPECT_TRUE(TransferRate(std::nan("")).is_none());
  EXPECT_TRUE(TransferRate(-1.0).is_none());
  EXPECT_FALSE(TransferRate(1e-9).is_none());
}

TEST(TransferRate, IsSharedAndAddsUp) {
  EXPECT_EQ(TransferRate(6.0) / 3.0, TransferRate(2.0));
  EXPECT_EQ(TransferRate(6.0) * 0.5 + TransferRate(1.0), TransferRate(4.0));
  EXPECT_EQ((TransferRate(6.0) - TransferRate(2.0)) / TransferRate(8.0), 0.5);
}

TEST(TransferRate, IsWrittenInGigabytes) {
  EXPECT_EQ(to_string(TransferRate(3.906e9)), "3.91 GB/s");
}

TEST(RateProblem, IsNoneForWhatDisksAndLinksHave) {
  for (const double rate : {1e5, 5e8, 1.2e10, 1e12})
    EXPECT_EQ(rate_problem("rate", TransferRate(rate)), "");
}

TEST(RateProblem, NamesTheRateAndTheLimits) {
  EXPECT_EQ(rate_problem("--link-out", TransferRate()),
            "--link-out is 0 bytes/s, not from 0.0001 to 1000 GB/s");
  for (const double rate :
       {-1e9, 99e3, 1.1e12, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_NE(rate_problem("rate", TransferRate(rate)), "") << rate;
}

}  // namespace
}  // namespace spillway
