#include "store/whole_transfer.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::swap {
namespace {

/// Plays back what a system call returned, and notes where each call began.
struct Script {
  std::vector<ssize_t> returns;
  std::vector<std::size_t> starts;
  ssize_t operator()(std::size_t done) {
    starts.push_back(done);
    return starts.size() <= returns.size() ? returns[starts.size() - 1] : -EBADF;
  }
};

int run(Script& script, std::size_t size, Direction direction = Direction::kRead) {
  return move_whole(direction, size, [&](std::size_t done) { return script(done); });
}

TEST(WholeTransfer, GoesOnAfterAShortOne) {
  Script script{{8192, 4096, 4096}, {}};
  EXPECT_EQ(run(script, 16384), 0);
  EXPECT_EQ(script.starts, (std::vector<std::size_t>{0, 8192, 12288}));
}

TEST(WholeTransfer, GoesOnAtTheLastAlignedByte) {
  Script script{{5000, 12288}, {}};
  EXPECT_EQ(run(script, 16384), 0);
  EXPECT_EQ(script.starts, (std::vector<std::size_t>{0, 4096}));
}

TEST(WholeTransfer, TriesAgainAfterASignal) {
  Script script{{-EINTR, 4096, -EINTR, -EINTR, 4096}, {}};
  EXPECT_EQ(run(script, 8192), 0);
  EXPECT_EQ(script.starts.size(), 5U);
}

TEST(WholeTransfer, StopsAtAnError) {
  Script script{{4096, -EIO}, {}};
  EXPECT_EQ(run(script, 8192), EIO);
}

TEST(WholeTransfer, DoesNotSpinWithoutProgress) {
  Script at_end{{0}, {}};
  EXPECT_EQ(run(at_end, 8192), ENODATA);
  Script full{{4096, 0}, {}};
  EXPECT_EQ(run(full, 8192, Direction::kWrite), ENOSPC);
  Script below_a_block{{100}, {}};
  EXPECT_EQ(run(below_a_block, 8192), ENODATA);
}

TEST(WholeTransfer, DistrustsMoreBytesThanAskedFor) {
  Script script{{4096, 8192}, {}};
  EXPECT_EQ(run(script, 8192), EIO);
}

}  // namespace
}  // namespace spillway::swap
