#include "spillway/recompute/placements.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace spillway::recompute {
namespace {

/// Releases what is still claimed: beyond the scope that would wait for its kernel.
void release_all(const PlacementScope& scope) {
  for (const PlacementScope::Place place : scope.places()) {
    EXPECT_EQ(release_placement(place.address), place.claimed);
  }
}

TEST(PlacementScope, ClaimsBySizeInOrder) {
  std::array<char, 3> memory{};
  const PlacementScope scope({{&memory[0], 100}, {&memory[1], 200}, {&memory[2], 100}});
  EXPECT_EQ(claim_placement(99), nullptr);
  EXPECT_EQ(claim_placement(100), &memory[0]);
  EXPECT_EQ(claim_placement(100), &memory[2]);
  EXPECT_EQ(claim_placement(100), nullptr);
  EXPECT_EQ(claim_placement(200), &memory[1]);
  release_all(scope);
}

TEST(PlacementScope, TakesAReleasedPlaceAgain) {
  std::array<char, 2> memory{};
  const PlacementScope scope({{&memory[0], 100}});
  EXPECT_FALSE(release_placement(&memory[0]));  // Not claimed yet.
  EXPECT_EQ(claim_placement(100), &memory[0]);
  EXPECT_FALSE(release_placement(&memory[1]));
  EXPECT_TRUE(release_placement(&memory[0]));
  EXPECT_EQ(claim_placement(100), &memory[0]);
  release_all(scope);
}

TEST(PlacementScope, LeavesEarlierBlocksToTheAllocator) {
  std::array<char, 2> memory{};
  const PlacementScope scope({{.address = &memory[0], .bytes = 100, .after = 2},
                              {.address = &memory[1], .bytes = 100, .after = 1}});
  EXPECT_EQ(claim_placement(100), nullptr);
  EXPECT_EQ(claim_placement(200), nullptr);
  EXPECT_EQ(claim_placement(100), &memory[1]);
  EXPECT_EQ(claim_placement(100), &memory[0]);
  EXPECT_EQ(scope.places()[0].claimed_as, 2u);
  EXPECT_EQ(scope.places()[0].blocks, 3u);
  release_all(scope);
}

TEST(PlacementScope, StopsClaimsButTakesBack) {
  std::array<char, 2> memory{};
  PlacementScope scope({{&memory[0], 100}, {&memory[1], 100}});
  EXPECT_EQ(claim_placement(100), &memory[0]);
  scope.stop_claims();
  EXPECT_EQ(claim_placement(100), nullptr);
  EXPECT_TRUE(release_placement(&memory[0]));
  EXPECT_EQ(claim_placement(100), nullptr);
  release_all(scope);
}

TEST(PlacementScope, InnerOneHidesTheOuter) {
  std::array<char, 2> memory{};
  const PlacementScope outer({{&memory[0], 100}, {&memory[1], 100}});
  EXPECT_EQ(claim_placement(100), &memory[0]);
  {
    const PlacementScope inner({});
    EXPECT_EQ(claim_placement(100), nullptr);
    EXPECT_TRUE(release_placement(&memory[0]));
  }
  EXPECT_EQ(claim_placement(100), &memory[0]);
  release_all(outer);
}

TEST(PlacementScope, IsOfItsThreadAlone) {
  char memory = 0;
  const PlacementScope scope({{&memory, 100}});
  std::thread([&] {
    EXPECT_EQ(claim_placement(100), nullptr);
    EXPECT_FALSE(release_placement(&memory));
  }).join();
  EXPECT_EQ(claim_placement(100), &memory);
  release_all(scope);
}

TEST(PlacementScope, WithoutOneNothingIsClaimed) {
  char memory = 0;
  { const PlacementScope scope({{&memory, 100}}); }
  EXPECT_EQ(claim_placement(100), nullptr);
  EXPECT_FALSE(release_placement(&memory));
}

TEST(PlacementScope, WhatIsKeptBeyondItIsReleasedTwice) {
  char memory = 0;
  {
    const PlacementScope scope({{&memory, 100}});
    EXPECT_FALSE(scope.has_claims());
    EXPECT_EQ(claim_placement(100), &memory);
    EXPECT_TRUE(scope.has_claims());
  }
  EXPECT_TRUE(release_placement(&memory));   // The kernel's.
  EXPECT_FALSE(release_placement(&memory));  // Its owner's.
}

}  // namespace
}  // namespace spillway::recompute
