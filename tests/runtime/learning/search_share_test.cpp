// How long searches for better plans rest.
#include "search_share.h"

#include <gtest/gtest.h>

#include "support/manual_clock.h"

namespace spillway::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(SearchShare, GivesAHundredthOfOneProcessor) {
  ManualClock clock;
  SearchShare share(clock, 4.0);
  Duration used{0};
  const TimePoint start = clock.now();
  for (int i = 0; i < 1000; ++i) {
    clock.advance(milliseconds(10));  // That it ran.
    used += milliseconds(10);
    clock.advance(share.rest_after(milliseconds(10)));
  }
  EXPECT_NEAR(spillway::seconds(used), 0.01 * spillway::seconds(clock.now() - start), 0.02 + 1e-6);
}

TEST(SearchShare, IsOneForAllSearches) {
  ManualClock clock;
  SearchShare share(clock, 1.0);
  EXPECT_EQ(share.rest_after(milliseconds(20)), Duration(0)) << "what is saved up";
  EXPECT_EQ(share.rest_after(milliseconds(1)), milliseconds(100));
  EXPECT_EQ(share.rest_after(milliseconds(1)), milliseconds(200)) << "another one, at that moment";
}

TEST(SearchShare, SavesLittleUp) {
  ManualClock clock;
  SearchShare share(clock, 8.0);
  clock.advance(seconds(3600));
  EXPECT_EQ(share.rest_after(milliseconds(20)), Duration(0));
  EXPECT_EQ(share.rest_after(milliseconds(8)), milliseconds(800));
}

TEST(SearchShare, CountsPartsOfProcessors) {
  ManualClock clock;
  SearchShare share(clock, 0.5);
  share.rest_after(milliseconds(20));
  EXPECT_EQ(share.rest_after(milliseconds(1)), milliseconds(200));
}

}  // namespace
}  // namespace spillway::runtime
