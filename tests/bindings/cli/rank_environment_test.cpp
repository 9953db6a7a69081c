#include "rank_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

Launcher rank_of_two(std::uint32_t number) {
  return {.name = {},
          .variable = {},
          .rank_variable = {},
          .rank = number,
          .ranks = 2,
          .ranks_here = 2,
          .rank_here = number};
}

TEST(RankGpu, IsThatOfItsNumberOnItsHost) {
  EXPECT_EQ(gpu_of_rank(rank_of_two(0), nullptr), "0");
  EXPECT_EQ(gpu_of_rank(rank_of_two(1), nullptr), "1");
}

TEST(RankGpu, IsTakenFromThoseThatAreNamed) {
  EXPECT_EQ(gpu_of_rank(rank_of_two(0), "3,GPU-8932f937"), "3");
  EXPECT_EQ(gpu_of_rank(rank_of_two(1), "3,GPU-8932f937"), "GPU-8932f937");
  EXPECT_EQ(gpu_of_rank(rank_of_two(1), "3,1,0"), "1");
}

TEST(RankGpu, StaysWhereNoneOrOneIsNamed) {
  EXPECT_FALSE(gpu_of_rank(rank_of_two(1), ""));
  EXPECT_FALSE(gpu_of_rank(rank_of_two(1), "0"));
}

TEST(RankGpu, StaysWhereARankIsAloneOrNotNumbered) {
  EXPECT_FALSE(gpu_of_rank({.name = {},
                            .variable = {},
                            .rank_variable = {},
                            .rank = 1,
                            .ranks = 2,
                            .ranks_here = 1,
                            .rank_here = 0},
                           nullptr));
  EXPECT_FALSE(gpu_of_rank(
      {.name = {}, .variable = {}, .rank_variable = {}, .rank = 1, .ranks = 2, .ranks_here = 2},
      nullptr));
}

TEST(RankGpu, ThatIsNotThereIsRefused) {
  const Launcher third{.name = {},
                       .variable = {},
                       .rank_variable = {},
                       .rank = 2,
                       .ranks = 3,
                       .ranks_here = 3,
                       .rank_here = 2};
  EXPECT_THROW(static_cast<void>(gpu_of_rank(third, "0,1")), ConfigError);
}

TEST(WordsFor, HaveTheNumbersOfTheShard) {
  EXPECT_EQ(words_for({2, 4}, {"train", "--seed", "{shard}", "data.{shard}-of-{shards}.txt"}),
            (Words{"train", "--seed", "2", "data.2-of-4.txt"}));
  EXPECT_EQ(words_for({0, 1}, {"{shard}{shard}", "{shards}"}), (Words{"00", "1"}));
}

TEST(WordsFor, KeepWhatStandsInTwoPairsOfBraces) {
  EXPECT_EQ(words_for({2, 4}, {"{{shard}}", "{{shards}} {shard}"}),
            (Words{"{shard}", "{shards} 2"}));
  EXPECT_EQ(words_for({2, 4}, {"{{shard}", "{}", "{", "{shard", "{shardss}", "{ shard}"}),
            (Words{"{2", "{}", "{", "{shard", "{shardss}", "{ shard}"}));
}

class ShardOfThisProcess : public testing::Test {
 protected:
  void TearDown() override {
    ::unsetenv("PMI_RANK");
    ::unsetenv("PMI_SIZE");
  }
  static Shard of(const char* rank, const char* ranks, std::uint32_t shards) {
    if (rank != nullptr) ::setenv("PMI_RANK", rank, 1);
    if (ranks != nullptr) ::setenv("PMI_SIZE", ranks, 1);
    runtime::Settings settings;
    settings.split = true;
    settings.shards = shards;
    return shard_of_this_process(settings);
  }
};

TEST_F(ShardOfThisProcess, HasRanksThatFollowEachOther) {
  EXPECT_EQ(of("0", "6", 3).number, 0u);
  EXPECT_EQ(of("1", "6", 3).number, 0u);
  EXPECT_EQ(of("5", "6", 3).number, 2u);
  EXPECT_EQ(of("5", "6", 3).count, 3u);
}

TEST_F(ShardOfThisProcess, IsTheOnlyOneWithoutALauncher) {
  EXPECT_EQ(of(nullptr, nullptr, 3).number, 0u);
  EXPECT_EQ(of(nullptr, nullptr, 3).count, 1u);
}

TEST_F(ShardOfThisProcess, IsLeftToAllRanksWhereTheyDoNotDivide) {
  EXPECT_EQ(of("2", "3", 2).number, 0u);
  EXPECT_EQ(of("2", "3", 2).count, 2u);
}

TEST_F(ShardOfThisProcess, NeedsTheNumberOfRanks) {
  ::setenv("PMIX_RANK", "2", 1);
  EXPECT_THROW(of(nullptr, nullptr, 2), ConfigError);
  ::unsetenv("PMIX_RANK");
}

}  // namespace
}  // namespace spillway::cli
