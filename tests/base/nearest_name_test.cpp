#include "spillway/base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace spillway {
namespace {

constexpr std::array<std::string_view, 4> kNames{"budget", "nvme", "queue-depth", "quiet"};

TEST(EditDistance, CountsEachKindOfSlip) {
  EXPECT_EQ(edit_distance("budget", "budget"), 0u);
  EXPECT_EQ(edit_distance("budgt", "budget"), 1u);    // dropped
  EXPECT_EQ(edit_distance("buddget", "budget"), 1u);  // doubled
  EXPECT_EQ(edit_distance("bugdet", "budget"), 1u);   // swapped neighbours
  EXPECT_EQ(edit_distance("", "nvme"), 4u);
}

TEST(NearestName, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_name("bugdet", kNames), "budget");
  EXPECT_EQ(nearest_name("queue_depth", kNames), "queue-depth");
  EXPECT_EQ(nearest_name("qiet", kNames), "quiet");
}

TEST(NearestName, StaysSilentAboutAnythingElse) {
  EXPECT_EQ(nearest_name("learning-rate", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("", kNames), std::nullopt);
}

TEST(HintFor, ListsAllNamesWhenNoneIsNear) {
  EXPECT_EQ(hint_for("bugdet", kNames), " (did you mean 'budget'?)");
  EXPECT_EQ(hint_for("xyzzy", kNames), " (known: budget nvme queue-depth quiet)");
}

}  // namespace
}  // namespace spillway
