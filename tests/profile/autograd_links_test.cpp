#include "spillway/profile/autograd_links.h"

#include <gmock/gmock.h>

namespace spillway::profile {
namespace {

using ::testing::ElementsAre;

constexpr OpIndex kNone = kNoForward;

AutogradNode node(std::uint64_t number, std::uint64_t thread = 1) { return {thread, number}; }

AutogradFacts made(AutogradNode of) { return {.phase = OpPhase::kForward, .made = of}; }

AutogradFacts runs(AutogradNode in) { return {.phase = OpPhase::kBackward, .runs_in = in}; }

TEST(ForwardOperators, AreThoseThatMadeTheNode) {
  EXPECT_THAT(
      forward_operators(std::vector{made(node(3)), made(node(7)), runs(node(7)), runs(node(3))}),
      ElementsAre(kNone, kNone, 1, 0));
}

TEST(ForwardOperators, AreTheLatestBeforeANodeThatNobodyWasSeenToMake) {
  EXPECT_THAT(forward_operators(std::vector{made(node(3)), made(node(7)), runs(node(9)),
                                            runs(node(6)), runs(node(2))}),
              ElementsAre(kNone, kNone, 1, 0, kNone));
}

TEST(ForwardOperators, AreTheFirstOfSeveralWithOneNode) {
  EXPECT_THAT(forward_operators(std::vector{made(node(3)), made(node(4)), made(node(4)),
                                            made(node(5)), runs(node(4))}),
              ElementsAre(kNone, kNone, kNone, kNone, 1));
}

TEST(ForwardOperators, AreOfTheThreadThatMadeTheNode) {
  EXPECT_THAT(forward_operators(std::vector{made(node(5, 1)), made(node(5, 2)), runs(node(6, 2)),
                                            runs(node(5, 1)), runs(node(9, 3))}),
              ElementsAre(kNone, kNone, 1, 0, kNone));
}

TEST(ForwardOperators, MayBeInBackwardThemselves) {
  const AutogradFacts both{.phase = OpPhase::kBackward, .made = node(8), .runs_in = node(3)};
  EXPECT_THAT(forward_operators(std::vector{made(node(3)), both, runs(node(8))}),
              ElementsAre(kNone, 0, 1));
}

// A node is made before it runs; what says otherwise is of another step.
TEST(ForwardOperators, AreEarlierOnes) {
  EXPECT_THAT(forward_operators(std::vector{runs(node(3)), made(node(3))}),
              ElementsAre(kNone, kNone));
  EXPECT_TRUE(forward_operators({}).empty());
}

}  // namespace
}  // namespace spillway::profile
