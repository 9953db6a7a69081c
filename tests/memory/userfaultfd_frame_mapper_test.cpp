// What holds for the userfaultfd kinds alone: its thread, and frames that the kernel holds.
#include <gmock/gmock.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "frame_mapper_conformance.h"

namespace spillway::memory {
namespace {

/// Holds physical pages as a device does that transfers into them, until it dies.
class HeldPages {
 public:
  HeldPages(std::byte* address, std::size_t size) {
    io_uring_params parameters{};
    ring_ = static_cast<int>(syscall(SYS_io_uring_setup, 1, &parameters));
    if (ring_ < 0) return;
    iovec range{address, size};
    held_ = syscall(SYS_io_uring_register, ring_, IORING_REGISTER_BUFFERS, &range, 1) == 0;
  }
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;
  ~HeldPages() {
    if (held_) syscall(SYS_io_uring_register, ring_, IORING_UNREGISTER_BUFFERS, nullptr, 0);
    if (ring_ >= 0) close(ring_);
  }
  bool held() const { return held_; }

 private:
  int ring_ = -1;
  bool held_ = false;
};

constexpr const char* kNoRing = "io_uring is not allowed here";

class UserfaultfdFrameMapper : public ::testing::Test {
 protected:
  void SetUp() override {
    const MapperProbe probe = probe_mappers()[1];
    if (!probe.is_viable) GTEST_SKIP() << probe.reason;
    owner_ = std::make_unique<PageOwner>(make_frame_mapper(MapperKind::kUserfaultfdUser), 2, 3);
  }

  /// Makes the frame of a page that is out consist of small pages, numbered in their first byte.
  void split_frame(std::size_t index) {
    std::byte* const frame = owner_->frame(index);
    madvise(frame, kPageBytes, MADV_DONTNEED);
    madvise(frame, kPageBytes, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < kPageBytes / 4096; ++i) {
      frame[i * 4096] = std::byte(i);
      frame[i * 4096 + 1] = std::byte(1);
    }
  }
  static bool is_numbered(const std::byte* frame) {
    for (std::size_t i = 0; i < kPageBytes / 4096; ++i) {
      if (read_byte(frame + i * 4096) != i % 256) return false;
      if (read_byte(frame + i * 4096 + 1) != 1) return false;
    }
    return true;
  }

  std::unique_ptr<PageOwner> owner_;
};

std::size_t fault_threads() {
  std::size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    found += name == "spillway-fault" ? 1 : 0;
  }
  return found;
}

TEST_F(UserfaultfdFrameMapper, KeepsOneNamedThreadThatBlocksAllSignals) {
  read_byte(owner_->page(0));
  EXPECT_EQ(fault_threads(), 1U);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "spillway-fault") continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      std::uint64_t blocked = 0;
      if (std::sscanf(line.c_str(), "SigBlk: %lx", &blocked) != 1) continue;
      EXPECT_NE(blocked & (1U << (SIGTERM - 1)), 0U);
      EXPECT_NE(blocked & (1U << (SIGINT - 1)), 0U);
    }
  }
  owner_.reset();
  EXPECT_EQ(fault_threads(), 0U);
}

TEST_F(UserfaultfdFrameMapper, ProbingLeavesNoThread) {
  owner_.reset();
  probe_mappers();
  EXPECT_EQ(fault_threads(), 0U);
}

TEST_F(UserfaultfdFrameMapper, APageThatADeviceHoldsStaysUntilItIsLetGo) {
  owner_->bring_in(1, Access::kWrite);
  {
    const HeldPages held(owner_->page(1) + kPageBytes / 2, 4096);
    if (!held.held()) GTEST_SKIP() << kNoRing;
    EXPECT_EQ(owner_->move_out(1), MoveResult::kBusy);
    write_byte(owner_->page(1), 4);
    EXPECT_TRUE(owner_->take_faults().empty());
  }
  // The ring lets go on a kernel worker.
  while (owner_->move_out(1) == MoveResult::kBusy) {
  }
  EXPECT_EQ(read_byte(owner_->frame(1)), 4U);
}

TEST_F(UserfaultfdFrameMapper, APageOfSmallPagesThatCannotLeaveIsPutBackAsItWas) {
  split_frame(1);
  owner_->bring_in(1, Access::kWrite);
  {
    const HeldPages held(owner_->page(1) + kPageBytes / 2, 4096);
    if (!held.held()) GTEST_SKIP() << kNoRing;
    ASSERT_EQ(owner_->move_out(1), MoveResult::kBusy);
    EXPECT_TRUE(is_numbered(owner_->page(1)));
    owner_->close_page(1);
    ASSERT_EQ(owner_->move_out(1), MoveResult::kBusy);
    EXPECT_TRUE(owner_->take_faults().empty());
    EXPECT_TRUE(is_numbered(owner_->page(1)));
    EXPECT_TRUE(owner_->take_faults().empty());
    for (const std::size_t spot : {std::size_t{5}, kPageBytes - 5}) {
      write_byte(owner_->page(1) + spot, 1);
      EXPECT_THAT(owner_->take_faults(), ::testing::ElementsAre(Fault{1, Access::kWrite}));
      owner_->close_page(1);
    }
  }
  while (owner_->move_out(1) == MoveResult::kBusy) {
  }
  EXPECT_TRUE(is_numbered(owner_->frame(1)));
}

TEST_F(UserfaultfdFrameMapper, AFrameOfSmallPagesThatIsPartlyHeldIsMappedByCopying) {
  split_frame(1);
  const HeldPages held(owner_->frame(1) + kPageBytes / 2, 4096);
  if (!held.held()) GTEST_SKIP() << kNoRing;
  owner_->bring_in(1, Access::kRead);
  EXPECT_TRUE(is_numbered(owner_->page(1)));
  EXPECT_TRUE(owner_->take_faults().empty());
  write_byte(owner_->page(1) + kPageBytes - 7, 1);
  EXPECT_THAT(owner_->take_faults(), ::testing::ElementsAre(Fault{1, Access::kWrite}));
}

}  // namespace
}  // namespace spillway::memory
