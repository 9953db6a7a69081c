#include "draws.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace spillway::phantoms {
namespace {

at::mt19937_data_pod after(at::mt19937 engine, std::uint64_t draws) {
  for (std::uint64_t i = 0; i < draws; ++i) engine();
  return engine.data();
}

bool same(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.seed_ == b.seed_ && a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_;
}

constexpr std::initializer_list<std::uint64_t> kBegins = {0, 1, 5, 623, 624, 625, 1248, 1249};
constexpr std::initializer_list<std::uint64_t> kDraws = {0,   1,    2,    227,  623,    624,
                                                         625, 1247, 1248, 1249, 100'003};

TEST(Draws, AreSkippedAsIfTheyWereDrawn) {
  for (const std::uint64_t begin : kBegins) {
    for (const std::uint64_t draws : kDraws) {
      SCOPED_TRACE(std::to_string(draws) + " draws after " + std::to_string(begin));
      at::mt19937_data_pod state = after(at::mt19937(3), begin);
      skip_draws(state, draws);
      EXPECT_TRUE(same(state, after(at::mt19937(3), begin + draws)));
    }
  }
}

TEST(Draws, AreCountedBetweenStates) {
  for (const std::uint64_t begin : kBegins)
    for (const std::uint64_t draws : kDraws)
      EXPECT_EQ(draws_between(after(at::mt19937(3), begin), after(at::mt19937(3), begin + draws),
                              200'000),
                draws);
}

TEST(Draws, OfAnotherSeedOrTooManyAreNotCounted) {
  EXPECT_EQ(draws_between(at::mt19937(3).data(), after(at::mt19937(4), 10), 5000), std::nullopt);
  EXPECT_EQ(draws_between(at::mt19937(3).data(), after(at::mt19937(3), 100'000), 5000),
            std::nullopt);
  // Backwards.
  EXPECT_EQ(draws_between(after(at::mt19937(3), 10), after(at::mt19937(3), 9), 5000), std::nullopt);
}

TEST(Draws, MoveAGeneratorOnAndLeaveItsSamples) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  at::Generator other = generator.clone();
  auto& moved = *static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  auto& drawn = *static_cast<at::CPUGeneratorImpl*>(other.unsafeGetGeneratorImpl());
  moved.set_next_double_normal_sample(0.5);
  for (int i = 0; i < 1000; ++i) drawn.random();
  skip_draws(generator, 1000);
  EXPECT_EQ(moved.random64(), drawn.random64());
  EXPECT_EQ(moved.next_double_normal_sample(), 0.5);
}

}  // namespace
}  // namespace spillway::phantoms
