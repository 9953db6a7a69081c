#include "spillway/base/transfer_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spillway {
namespace {

TEST(RateProblem, IsNoneForWhatDisksAndLinksHave) {
  for (const double rate : {1e5, 5e8, 1.2e10, 1e12}) EXPECT_EQ(rate_problem("rate", rate), "");
}

TEST(RateProblem, NamesTheRateAndTheLimits) {
  EXPECT_EQ(rate_problem("--link-out", 0.0),
            "--link-out is 0 bytes/s, not from 0.0001 to 1000 GB/s");
  for (const double rate :
       {-1e9, 99e3, 1.1e12, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_NE(rate_problem("rate", rate), "") << rate;
}

}  // namespace
}  // namespace spillway
