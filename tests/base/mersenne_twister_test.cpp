#include "spillway/base/mersenne_twister.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <sstream>

namespace spillway::mersenne_twister {
namespace {

Block drawn_block(std::uint32_t seed) {
  std::mt19937 random(seed);
  Block block;
  for (std::uint32_t& word : block) word = static_cast<std::uint32_t>(random());
  return block;
}

Block stepped(Block block, std::uint64_t blocks) {
  for (; blocks > 0; --blocks) next_block(block);
  return block;
}

Block jumped(Block block, std::uint64_t blocks) {
  jump(block, blocks);
  return block;
}

/// A state as libstdc++ writes it: the words of a block that has been handed out, and how many.
Block block_of(const std::mt19937& engine) {
  std::stringstream text;
  text << engine;
  Block block;
  for (std::uint32_t& word : block) text >> word;
  return block;
}

TEST(MersenneTwister, MakesTheBlocksOfTheStandardLibrary) {
  std::mt19937 engine(5);
  engine.discard(kWords);
  Block block = block_of(engine);
  engine.discard(3 * kWords);
  EXPECT_EQ(stepped(block, 3), block_of(engine));
  EXPECT_EQ(jumped(block, 3), block_of(engine));
}

TEST(MersenneTwister, JumpsWhereStepsLead) {
  std::mt19937 random(11);
  for (const std::uint64_t blocks : {1, 2, 3, 26, 27, 31, 32, 33, 53, 1000})
    EXPECT_EQ(jumped(drawn_block(1), blocks), stepped(drawn_block(1), blocks)) << blocks;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::uint64_t blocks = 1 + random() % 16'000;
    EXPECT_EQ(jumped(drawn_block(seed), blocks), stepped(drawn_block(seed), blocks)) << blocks;
  }
}

TEST(MersenneTwister, JumpsInTwoAsInOne) {
  std::mt19937_64 random(12);
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::uint64_t first = 1 + random() % (std::uint64_t{1} << (20 + 2 * (seed % 16)));
    const std::uint64_t second = 1 + random() % (std::uint64_t{1} << 53);
    EXPECT_EQ(jumped(jumped(drawn_block(seed), first), second),
              jumped(drawn_block(seed), first + second))
        << first << " and " << second;
  }
}

TEST(MersenneTwister, SkipsByJumpsWhatSkipsByStepsDo) {
  for (const std::uint64_t blocks : {0, 1, 9'999, 10'000, 10'001, 40'000}) {
    Block block = drawn_block(3);
    skip_blocks(block, blocks);
    EXPECT_EQ(block, stepped(drawn_block(3), blocks)) << blocks;
  }
}

}  // namespace
}  // namespace spillway::mersenne_twister
