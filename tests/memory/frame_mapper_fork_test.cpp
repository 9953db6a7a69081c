#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "frame_mapper_conformance.h"
#include "support/lock_in_memory.h"

namespace spillway::memory {
namespace {

/// A child that lives, sharing all pages, until `finish`; then it runs `work` and ends with the
/// code that this returns. It allocates nothing and ends without destructors.
class Child {
 public:
  explicit Child(const std::function<int()>& work) {
    if (pipe(go_.data()) != 0) std::abort();
    process_ = fork();
    if (process_ != 0) return;
    signal(SIGSEGV, SIG_DFL);
    char byte = 0;
    if (read(go_[0], &byte, 1) != 1) _exit(100);
    _exit(work());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) finish();
    close(go_[0]);
    close(go_[1]);
  }

  /// The wait status.
  int finish() {
    if (write(go_[1], "x", 1) != 1) std::abort();
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

 private:
  std::array<int, 2> go_{};
  pid_t process_ = 0;
};

bool ended_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

TEST_P(FrameMapperConformance, OpenPagesLeaveWhileAForkedChildSharesThem) {
  auto owner = make_owner(2);
  owner->bring_in(1, Access::kWrite);
  write_byte(owner->page(1) + 100, 50);
  Child child([&] { return read_byte(owner->page(1) + 100) == 50 ? 7 : 8; });
  ASSERT_EQ(owner->move_out(1), MoveResult::kMoved);
  EXPECT_EQ(read_byte(owner->frame(1) + 100), 50U);
  write_byte(owner->frame(1) + 100, 51);
  EXPECT_TRUE(ended_with(child.finish(), 7)) << "the child keeps the bytes of the fork";
}

TEST_P(FrameMapperConformance, ClosedPagesLeaveUnseenByWritersWhileAForkedChildSharesThem) {
  auto owner = make_owner(2);
  owner->bring_in(1, Access::kWrite);
  owner->close_page(1);
  Child child([&] { return static_cast<int>(read_byte(owner->page(1))); });
  std::atomic<bool> is_trapped{false};
  std::atomic<bool> may_write{false};
  owner->ask_before_serving([&](Fault) {
    is_trapped = true;
    while (!may_write) std::this_thread::yield();
    return true;
  });
  std::thread writer([&] { write_byte(owner->page(1) + 9, 77); });
  while (!is_trapped) std::this_thread::yield();
  EXPECT_EQ(owner->move_out(1), MoveResult::kMoved);
  EXPECT_EQ(read_byte(owner->frame(1) + 9), 0U) << "nobody has opened it";
  may_write = true;
  writer.join();
  EXPECT_EQ(read_byte(owner->page(1)), 1U);
  EXPECT_EQ(read_byte(owner->page(1) + 9), 77U);
  EXPECT_TRUE(ended_with(child.finish(), 1));
}

TEST_P(FrameMapperConformance, PoolFramesMapWhileAForkedChildSharesThem) {
  auto owner = make_owner(3);
  Child child([] { return 0; });
  owner->bring_in(2, Access::kRead);
  EXPECT_EQ(read_byte(owner->page(2)), 2U);
  EXPECT_EQ(read_byte(owner->page(2) + kPageBytes - 1), 2U);
  EXPECT_TRUE(ended_with(child.finish(), 0));
}

TEST_P(FrameMapperConformance, RenewedFramesKeepTheirHugePages) {
  auto owner = make_owner(1, 1);
  FramePool& pool = owner->pool();
  const SlotId slot = pool.take_frame().value();
  std::byte* const frame = owner->in_slot(slot);
  const std::byte* const slots = owner->in_slot(SlotId(0));
  if (huge_bytes(slots, slots + 2 * kPageBytes) != 2 * kPageBytes) {
    GTEST_SKIP() << "the kernel gives no transparent huge pages here";
  }
  pool.put_frame(slot);
  Child child([] { return 0; });
  pool.renew_free_frames();
  ASSERT_EQ(pool.take_frame(), slot);
  ASSERT_EQ(owner->mapper().map(owner->page(0), frame, Access::kWrite), MoveResult::kMoved);
  EXPECT_EQ(huge_bytes(owner->page(0), owner->page(1)), kPageBytes);
}

TEST_P(FrameMapperConformance, ABusyPageThatNobodyNeedsCanBeDropped) {
  if (!is_ever_busy(GetParam())) GTEST_SKIP() << "this kind is never busy";
  auto owner = make_owner(2);
  owner->bring_in(1, Access::kWrite);
  if (!lock_in_memory(owner->page(1), 1)) GTEST_SKIP() << "mlock is limited here";
  Child child([&] { return static_cast<int>(read_byte(owner->page(1))); });
  ASSERT_EQ(owner->move_out(1), MoveResult::kBusy);
  owner->drop(1);
  EXPECT_EQ(read_byte(owner->page(1)), 0U) << "a new frame";
  EXPECT_THAT(owner->take_faults(), ::testing::ElementsAre(Fault{1, Access::kRead}));
  EXPECT_TRUE(ended_with(child.finish(), 1)) << "the child keeps the bytes of the fork";
}

TEST_P(FrameMapperConformance, AChildThatDestroysTheMapperLeavesTheParentAlone) {
  auto owner = make_owner(2);
  Child child([&] {
    owner.reset();
    return 5;
  });
  EXPECT_TRUE(ended_with(child.finish(), 5));
  EXPECT_EQ(read_byte(owner->page(1)), 1U);
  EXPECT_EQ(owner->take_faults().size(), 1U);
}

}  // namespace
}  // namespace spillway::memory
