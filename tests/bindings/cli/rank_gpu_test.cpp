#include "rank_environment.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

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

}  // namespace
}  // namespace spillway::cli
