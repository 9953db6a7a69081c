#include "silence_watch.h"

#include <gmock/gmock.h>

#include <array>

namespace spillway::transport::nccl {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array kAwaited{Rank(1), Rank(2)};
constexpr TimePoint kBegin{};

TEST(SilenceWatch, AsksWhoIsWaitedForLongAndNamesWhoDoesNotAnswer) {
  SilenceWatch watch(5s, 10s);
  EXPECT_THAT(watch.look(kAwaited, kBegin).to_ask, IsEmpty());
  EXPECT_EQ(watch.look(kAwaited, kBegin).next, kBegin + 5s);
  EXPECT_THAT(watch.look(kAwaited, kBegin + 5s).to_ask, ElementsAre(Rank(1), Rank(2)));
  watch.has_heard(Rank(1), kBegin + 6s);
  EXPECT_FALSE(watch.look(kAwaited, kBegin + 14s).gone);
  EXPECT_EQ(watch.look(kAwaited, kBegin + 15s).gone, Rank(2));
}

TEST(SilenceWatch, ForgetsWhoIsNotWaitedForAnyMore) {
  SilenceWatch watch(5s, 10s);
  watch.look(kAwaited, kBegin);
  watch.look(kAwaited, kBegin + 5s);
  EXPECT_EQ(watch.look({}, kBegin + 6s).next, TimePoint::max());
  EXPECT_FALSE(watch.look(kAwaited, kBegin + 100s).gone);
}

}  // namespace
}  // namespace spillway::transport::nccl
