#include "spillway/device/link_probe.h"

#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/device/cpu.h"

namespace spillway::device {
namespace {

LinkPoint point(Bytes block, std::uint32_t depth, double out, double both) {
  return {block, depth, {out, out, out}, {out, out, out}, {both, both, both}};
}

TEST(LinkProbe, TakesForPlansWhatRunsMove) {
  LinkProbe probe;
  EXPECT_EQ(probe.best(), nullptr);
  EXPECT_EQ(probe.fixed_seconds(&LinkPoint::out), std::nullopt);
  probe.points = {point(32_MiB, 8, 5e10, 9e10), point(4_MiB, 1, 1e10, 2e10),
                  point(4_MiB, 16, 4e10, 7e10)};
  EXPECT_EQ(probe.best(), &probe.points[2]);
  EXPECT_DOUBLE_EQ(*probe.fixed_seconds(&LinkPoint::out), 4194304 * (1 / 1e10 - 1 / 4e10));
  probe.points.resize(1);
  EXPECT_EQ(probe.best(), probe.points.data());
  EXPECT_EQ(probe.fixed_seconds(&LinkPoint::out), std::nullopt) << "nothing was alone";
}

TEST(MeasureLink, MeasuresEachPointThatIsSmallEnough) {
  std::vector<std::string> told;
  LinkProbeOptions options;
  options.blocks = {64_KiB, 128_KiB};
  options.depths = {1, 2};
  options.most_at_once = 128_KiB;
  options.pinned_sizes = {64_KiB};
  options.repetitions = 2;
  options.progress = [&](const std::string& what) { told.push_back(what); };
  const LinkProbe probe = measure_link(*make_cpu_device(), options);
  ASSERT_EQ(probe.points.size(), 3U) << "two of 128 KiB are more than may be at once";
  for (const LinkPoint& each : probe.points)
    for (const Spread* rate : {&each.out, &each.in, &each.both}) {
      EXPECT_GT(rate->least, 0.0);
      EXPECT_LE(rate->least, rate->median);
      EXPECT_LE(rate->median, rate->most);
    }
  ASSERT_TRUE(probe.beside);
  EXPECT_EQ(probe.beside->link.block, probe.best()->block);
  EXPECT_GT(probe.beside->link.both.median, 0.0);
  EXPECT_GT(probe.beside->work_alone, 0.0);
  EXPECT_GE(probe.beside->lost_seconds_per_byte, 0.0);
  ASSERT_EQ(probe.pinning.size(), 1U);
  EXPECT_EQ(told.size(), 5U);
}

TEST(MeasureLink, RefusesToMeasureNothing) {
  for (const auto& change : {+[](LinkProbeOptions& options) { options.blocks.clear(); },
                             +[](LinkProbeOptions& options) { options.depths = {0}; },
                             +[](LinkProbeOptions& options) { options.repetitions = 0; }}) {
    LinkProbeOptions options;
    change(options);
    EXPECT_THROW(measure_link(*make_cpu_device(), options), ConfigError);
  }
}

}  // namespace
}  // namespace spillway::device
