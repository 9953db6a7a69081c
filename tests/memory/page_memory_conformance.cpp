#include "page_memory_conformance.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstring>

#include "frame_mapper_conformance.h"
#include "support/lock_in_memory.h"

namespace spillway::memory {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Report = AllowingSink::Report;

void AllowingSink::begin_access(PageIndex page, Access access) {
  const std::lock_guard lock(mutex_);
  State& state = states_[page];
  if (state == State::kWritable || (state == State::kReadable && access == Access::kRead)) {
    memory_.access_control()->wake(page);
    return;
  }
  if (state == State::kEmpty) {
    memory_.map(page, SlotId(0), access);
  } else {
    memory_.access_control()->allow_writes(page, 1);
  }
  state = access == Access::kRead ? State::kReadable : State::kWritable;
  reports_.push_back({page, access});
}

void AllowingSink::note_mapped(PageIndex page, Access allowed) {
  const std::lock_guard lock(mutex_);
  states_[page] = allowed == Access::kRead ? State::kReadable : State::kWritable;
}

std::vector<Report> AllowingSink::reports() {
  const std::lock_guard lock(mutex_);
  return reports_;
}

void PageMemoryConformance::SetUp() {
  const std::string objection = GetParam().objection();
  if (!objection.empty()) GTEST_SKIP() << objection;
  tested_ = GetParam().make();
  if (tested_.device != nullptr) queue_ = tested_.device->make_queue("test");
  sink_ = std::make_unique<AllowingSink>(memory());
  size_ = memory().page_size().count();
  memory().reserve(kPages, kSlots, *sink_);
  memory().prepare(0, kPages);
}

void PageMemoryConformance::copy(device::DeviceSpan to, device::DeviceSpan from) {
  if (queue_ == nullptr) {
    std::memcpy(to.data, from.data, to.size.count());
    return;
  }
  queue_->copy(to, from);
  EXPECT_EQ(queue_->record().wait().error, "");
}

void PageMemoryConformance::set(device::DeviceSpan span, int value) {
  auto byte = static_cast<std::byte>(value);
  copy(span.part(Bytes(), Bytes(1)), device::host_span_of(byte));
  copy(span.part(Bytes(size_ - 1), Bytes(1)), device::host_span_of(byte));
}

bool PageMemoryConformance::holds(device::DeviceSpan span, int value) {
  std::array<std::byte, 2> ends{};
  copy(device::host_span_of(ends[0]), span.part(Bytes(), Bytes(1)));
  copy(device::host_span_of(ends[1]), span.part(Bytes(size_ - 1), Bytes(1)));
  return ends[0] == static_cast<std::byte>(value) && ends[1] == static_cast<std::byte>(value);
}

void PageMemoryConformance::fill(std::uint32_t slot, int value) {
  memory().make_frame(SlotId(slot));
  set(memory().span_of(SlotId(slot)), value);
}

namespace {

INSTANTIATE_TEST_SUITE_P(Kinds, PageMemoryConformance, ::testing::ValuesIn(page_memory_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(PageMemoryConformance, LaysPagesSideBySide) {
  EXPECT_TRUE(std::has_single_bit(size_));
  for (PageIndex page = 0; page < kPages; ++page) {
    const device::DeviceSpan span = memory().span_of(page);
    EXPECT_EQ(span.device, memory().device());
    EXPECT_EQ(span.size, memory().page_size());
    EXPECT_EQ(span.data, memory().span_of(PageIndex(0)).data + page * size_);
  }
}

TEST_P(PageMemoryConformance, MovesFramesBeneathPagesAndBackWithTheirBytes) {
  fill(0, 1);
  memory().prepare_map(5, SlotId(0));
  memory().map(5, SlotId(0), Access::kWrite);
  EXPECT_TRUE(holds(memory().span_of(PageIndex(5)), 1));
  set(memory().span_of(PageIndex(5)), 2);
  ASSERT_EQ(memory().unmap(SlotId(3), 5), MoveResult::kMoved);
  EXPECT_TRUE(holds(memory().span_of(SlotId(3)), 2));
  memory().map(6, SlotId(3), Access::kWrite);
  EXPECT_TRUE(holds(memory().span_of(PageIndex(6)), 2));
  EXPECT_THAT(sink_->reports(), IsEmpty());
}

TEST_P(PageMemoryConformance, KeepsFramesApart) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    fill(slot, static_cast<int>(slot) + 10);
    memory().map(slot * 2, SlotId(slot), Access::kWrite);
  }
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    EXPECT_TRUE(holds(memory().span_of(PageIndex(slot * 2)), static_cast<int>(slot) + 10));
  // Slots that have given their frame away are empty, and get others.
  ASSERT_EQ(memory().unmap(SlotId(1), 0), MoveResult::kMoved);
  ASSERT_EQ(memory().unmap(SlotId(0), 2), MoveResult::kMoved);
  EXPECT_TRUE(holds(memory().span_of(SlotId(1)), 10));
  EXPECT_TRUE(holds(memory().span_of(SlotId(0)), 11));
}

TEST_P(PageMemoryConformance, MakesFramesAnewInSlotsThatHaveDroppedTheirs) {
  for (int round = 1; round < 4; ++round) {
    fill(2, round);
    EXPECT_TRUE(holds(memory().span_of(SlotId(2)), round));
    memory().drop_frame(SlotId(2));
  }
  fill(2, 9);
  memory().map(1, SlotId(2), Access::kWrite);
  EXPECT_TRUE(holds(memory().span_of(PageIndex(1)), 9));
}

TEST_P(PageMemoryConformance, ReportsAccessesToEmptyPagesAndThenTheFirstWrite) {
  if (memory().access_control() == nullptr) GTEST_SKIP() << "nobody reports accesses";
  fill(0, 7);
  EXPECT_EQ(read_byte(&last(3)), 7U);
  EXPECT_THAT(sink_->reports(), ElementsAre(Report{3, Access::kRead}));
  write_byte(&first(3), 8);
  EXPECT_THAT(sink_->reports(), ElementsAre(Report{3, Access::kRead}, Report{3, Access::kWrite}));
  EXPECT_EQ(read_byte(&first(3)), 8U);
}

TEST_P(PageMemoryConformance, ReportsWritesFromWhereTheyAreForbiddenUntilTheyAreAllowed) {
  AccessControl* const control = memory().access_control();
  if (control == nullptr) GTEST_SKIP() << "nobody reports accesses";
  for (const PageIndex page : {1U, 2U}) {
    fill(page, 5);
    memory().map(page, SlotId(page), Access::kWrite);
  }
  control->forbid_writes(1, 2);
  sink_->note_mapped(1, Access::kRead);
  sink_->note_mapped(2, Access::kRead);
  EXPECT_EQ(read_byte(&first(1)), 5U);
  EXPECT_THAT(sink_->reports(), IsEmpty());
  write_byte(&first(2), 6);
  EXPECT_THAT(sink_->reports(), ElementsAre(Report{2, Access::kWrite}));
  control->allow_writes(1, 1);
  sink_->note_mapped(1, Access::kWrite);
  write_byte(&first(1), 6);
  control->wake(1);
  EXPECT_EQ(sink_->reports().size(), 1U);
}

TEST_P(PageMemoryConformance, CopiesAndDropsPagesWhoseFramesAreHeld) {
  if (!GetParam().is_ever_busy) GTEST_SKIP() << "its frames always move";
  fill(0, 3);
  memory().map(4, SlotId(0), Access::kWrite);
  if (!lock_in_memory(&first(4), 1)) GTEST_SKIP() << "mlock is limited here";
  ASSERT_EQ(memory().unmap(SlotId(1), 4), MoveResult::kBusy);
  EXPECT_TRUE(holds(memory().span_of(PageIndex(4)), 3)) << "nothing has changed";
  memory().make_frame(SlotId(1));
  memory().copy(SlotId(1), 4);
  memory().drop(4);
  EXPECT_TRUE(holds(memory().span_of(SlotId(1)), 3));
  memory().map(4, SlotId(1), Access::kWrite);
  EXPECT_TRUE(holds(memory().span_of(PageIndex(4)), 3));
}

/// The wait status of a forked child that ends with what `work` returns.
int in_child(const std::function<int()>& work) {
  constexpr unsigned kSeconds = 60;
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(kSeconds);
    ::signal(SIGSEGV, SIG_DFL);
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return status;
}

TEST_P(PageMemoryConformance, GivesAForkedChildItsPages) {
  InheritedPages* const inherited = memory().inherited_pages();
  if (inherited == nullptr) GTEST_SKIP() << "children cannot use it";
  fill(0, 4);
  memory().map(0, SlotId(0), Access::kRead);
  sink_->note_mapped(0, Access::kRead);
  const int file = ::memfd_create("shown", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(2 * size_)), 0);
  ASSERT_EQ(::pwrite(file, "\x11", 1, static_cast<off_t>(size_)), 1);
  const int status = in_child([&] {
    inherited->make_writable(0, 1);
    write_byte(&first(0), 40);
    inherited->seal(1, 2);
    std::byte* const staged = inherited->stage();
    if (staged == nullptr) return 1;
    staged[0] = std::byte(50);
    if (!inherited->place(1, staged) || read_byte(&first(1)) != 50) return 2;
    write_byte(&last(1), 51);
    if (!inherited->show_file(2, file, size_) || read_byte(&first(2)) != 0x11) return 3;
    write_byte(&first(2), 60);
    return read_byte(&first(0)) == 40 ? 77 : 4;
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77) << status;
  EXPECT_EQ(read_byte(&first(0)), 4U) << "the child's writes are its own";
  unsigned char shown = 0;
  EXPECT_EQ(::pread(file, &shown, 1, static_cast<off_t>(size_)), 1);
  EXPECT_EQ(shown, 0x11);
  ::close(file);
}

TEST_P(PageMemoryConformance, EndsAForkedChildThatTouchesASealedPage) {
  InheritedPages* const inherited = memory().inherited_pages();
  if (inherited == nullptr) GTEST_SKIP() << "children cannot use it";
  const int status = in_child([&] {
    inherited->seal(1, 1);
    return static_cast<int>(read_byte(&first(1)));
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  fill(0, 6);
  EXPECT_EQ(read_byte(&first(1)), 6U) << "the parent is served as before";
}

}  // namespace
}  // namespace spillway::memory
