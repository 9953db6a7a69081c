#include "spillway/runtime/host_tier.h"

#include <gtest/gtest.h>

#include "support/shadow_device.h"

namespace spillway::runtime {
namespace {

topology::LinkRate link() {
  topology::LinkRate link;
  link.out = TransferRate(5e10);
  link.in = TransferRate(3e10);
  link.both = TransferRate(6e10);
  link.in_fixed_seconds = 1e-5;
  return link;
}

TEST(TierRates, OfAMeasuredLinkAreItsOwn) {
  device::ShadowDevice gpu({device::DeviceKind::kCuda, 0});
  const topology::LinkRate measured = link();
  const TierRates tiers = tier_rates(4_MiB, 2_MiB, {}, &gpu, &measured);
  EXPECT_EQ(tiers.rates.write.bytes_per_second(), 5e10);
  EXPECT_EQ(tiers.rates.read.bytes_per_second(), 3e10);
  EXPECT_EQ(tiers.rates.duplex_share, 0.75);
  EXPECT_EQ(tiers.rates.read_fixed_seconds, 1e-5);
  EXPECT_EQ(tiers.rates.interference_seconds_per_byte, 0.0);
  ASSERT_TRUE(tiers.far);
  EXPECT_EQ(tiers.far->near_pages, 2U);
}

TEST(TierRates, LeaveOperatorsOfAGpuAloneAndSlowDownThoseOfTheHost) {
  device::ShadowDevice gpu({device::DeviceKind::kCuda, 0});
  const planner::TransferRates disks{.interference_seconds_per_byte = 7e-11};
  EXPECT_EQ(tier_rates(Bytes(), 2_MiB, disks, &gpu).rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(tier_rates(4_MiB, 2_MiB, disks, &gpu).rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(tier_rates(4_MiB, 2_MiB, disks, &gpu).far->rates.interference_seconds_per_byte, 0.0);
  EXPECT_EQ(tier_rates(4_MiB, 2_MiB, disks).far->rates.interference_seconds_per_byte, 7e-11);
}

}  // namespace
}  // namespace spillway::runtime
