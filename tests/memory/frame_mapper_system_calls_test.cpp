#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "frame_mapper_conformance.h"
#include "support/lock_in_memory.h"

namespace spillway::memory {
namespace {

constexpr std::size_t kSize = 4096;

class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0) std::abort();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_{};
};

TEST_P(FrameMapperConformance, SystemCallsReadEmptyPagesOrFail) {
  auto owner = make_owner(2);
  Pipe pipe;
  const ssize_t size = write(pipe.writer(), owner->page(1), kSize);
  if (!serves_system_calls(GetParam())) {
    EXPECT_EQ(size, -1);
    EXPECT_EQ(errno, EFAULT);
    return;
  }
  ASSERT_EQ(size, static_cast<ssize_t>(kSize));
  std::array<std::byte, kSize> copy{};
  ASSERT_EQ(read(pipe.reader(), copy.data(), kSize), static_cast<ssize_t>(kSize));
  EXPECT_EQ(copy[0], std::byte(1));
  EXPECT_THAT(owner->take_faults(), ::testing::ElementsAre(Fault{1, Access::kRead}));
}

TEST_P(FrameMapperConformance, SystemCallsWriteEmptyAndClosedPagesOrFail) {
  auto owner = make_owner(3);
  owner->bring_in(2, Access::kRead);
  for (const std::size_t index : {std::size_t{1}, std::size_t{2}}) {
    Pipe pipe;
    std::vector<std::byte> sent(kSize, std::byte(42));
    ASSERT_EQ(write(pipe.writer(), sent.data(), kSize), static_cast<ssize_t>(kSize));
    const ssize_t size = read(pipe.reader(), owner->page(index), kSize);
    if (!serves_system_calls(GetParam())) {
      EXPECT_EQ(size, -1);
      EXPECT_EQ(errno, EFAULT);
      continue;
    }
    EXPECT_EQ(size, static_cast<ssize_t>(kSize));
    EXPECT_EQ(read_byte(owner->page(index) + kSize - 1), 42U);
    EXPECT_THAT(owner->take_faults(), ::testing::ElementsAre(Fault{index, Access::kWrite}));
  }
}

// By raw system calls, as lock_in_memory.
long lock_when_faulted(std::byte* page) {
  return syscall(SYS_mlock2, page, kPageBytes, MLOCK_ONFAULT);
}
long unlock(std::byte* page) { return syscall(SYS_munlock, page, kPageBytes); }

// A program may lock tensor memory. Where the kernel then refuses the move, the page stays.
TEST_P(FrameMapperConformance, LockedPagesKeepTheirBytes) {
  auto owner = make_owner(3);
  owner->bring_in(1, Access::kWrite);
  if (!lock_in_memory(owner->page(1), 1)) {
    GTEST_SKIP() << "mlock is limited here: " << std::strerror(errno);
  }
  write_byte(owner->page(1) + 70, 70);
  owner->close_page(1);
  const MoveResult result = owner->move_out(1);
  EXPECT_EQ(result == MoveResult::kBusy, is_ever_busy(GetParam()));
  EXPECT_EQ(read_byte(owner->page(1) + 70), 70U);
  unlock(owner->page(1));
  ASSERT_EQ(owner->move_out(1), MoveResult::kMoved);
  EXPECT_EQ(read_byte(owner->frame(1) + 70), 70U);
}

TEST_P(FrameMapperConformance, EmptyPagesThatWereLockedAreServed) {
  auto owner = make_owner(3);
  if (lock_when_faulted(owner->page(1)) != 0) {
    GTEST_SKIP() << "mlock is limited here: " << std::strerror(errno);
  }
  EXPECT_EQ(read_byte(owner->page(1) + kPageBytes - 1), 1U);
  write_byte(owner->page(1), 4);
  EXPECT_THAT(owner->take_faults(),
              ::testing::ElementsAre(Fault{1, Access::kRead}, Fault{1, Access::kWrite}));
  if (owner->move_out(1) == MoveResult::kBusy) owner->drop(1);
  EXPECT_FALSE(owner->is_in(1));
}

// Frames are read into by direct I/O and move under their page as soon as the read has returned,
// while the kernel may still be letting go of them.
TEST_P(FrameMapperConformance, AFrameReadByDirectIoMovesAtOnce) {
  char path[] = "frame_mapper_direct_io_XXXXXX";
  const int file = mkostemp(path, O_DIRECT);
  if (file < 0) GTEST_SKIP() << "no direct I/O in this folder: " << std::strerror(errno);
  unlink(path);
  auto owner = make_owner(2);
  std::memset(owner->frame(0), 0x3c, kPageBytes);
  ASSERT_EQ(pwrite(file, owner->frame(0), kPageBytes, 0), static_cast<ssize_t>(kPageBytes));
  for (int round = 0; round < 50; ++round) {
    std::memset(owner->frame(1), 0, kPageBytes);
    ASSERT_EQ(pread(file, owner->frame(1), kPageBytes, 0), static_cast<ssize_t>(kPageBytes));
    owner->bring_in(1, Access::kRead);
    EXPECT_EQ(std::memcmp(owner->page(1), owner->frame(0), kPageBytes), 0);
    // And out of the page itself, as write-out does.
    ASSERT_EQ(pwrite(file, owner->page(1), kPageBytes, 0), static_cast<ssize_t>(kPageBytes));
    while (owner->move_out(1) == MoveResult::kBusy) {
    }
  }
  close(file);
}

}  // namespace
}  // namespace spillway::memory
