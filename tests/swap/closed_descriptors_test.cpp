// A program that closes descriptors which it has not opened, and opens files of its own: they take
// the numbers. No byte of ours may ever go there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/memory/host_pages.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "store/extent_file.h"
#include "store/notifier.h"
#include "store/posix/factory.h"
#include "support/failing_calls.h"
#include "support/page_patterns.h"
#include "support/sanitized.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

using testing::HasSubstr;

// What old container filters refuse.
const std::vector<FailingCall> kNoOwnTable{{SYS_unshare, EPERM}, {SYS_close_range, EPERM}};
// What takes the calls and does nothing, as some systems that stand for Linux do.
const std::vector<FailingCall> kUnheeded{{SYS_unshare, 0}, {SYS_close_range, 0}};

/// Closes all from 3 up behind the back of every library, as a raw system call does, and opens
/// files of four bytes under the numbers that are free then, and under the high ones.
class ProgramFiles {
 public:
  explicit ProgramFiles(const std::string& directory) : directory_(directory) {
    for (long number = 3; number < 2000; ++number) ::syscall(SYS_close, number);
    for (int i = 0; i < 24; ++i) add(-1);
    for (int number = 995; number < 1010; ++number) add(number);
  }

  bool are_untouched() const {
    for (const int file : files_) {
      struct stat facts {};
      char text[5] = {};
      if (::fstat(file, &facts) != 0 || facts.st_size != 4) return false;
      if (::pread(file, text, 4, 0) != 4 || std::string(text) != "mine") return false;
    }
    return true;
  }

 private:
  void add(int number) {
    int file = ::open(directory_.c_str(), O_TMPFILE | O_RDWR, 0600);
    if (number >= 0) {
      ::syscall(SYS_dup2, file, number);
      ::close(file);
      file = number;
    }
    if (::write(file, "mine", 4) == 4) files_.push_back(file);
  }

  std::string directory_;
  std::vector<int> files_;
};

bool moves(SpillStore& store, PatternPages& pages, ExtentId extent, std::uint64_t pattern) {
  pages.fill(0, pattern, kExtentBytes);
  const TransferResult written =
      carry_out(store, {Direction::kWrite, extent, pages[0], kExtentBytes, 0});
  const TransferResult read =
      carry_out(store, {Direction::kRead, extent, pages[1], kExtentBytes, 1});
  if (written.error != 0) std::fprintf(stderr, "%s\n", written.detail.c_str());
  return written.error == 0 && read.error == 0 && pages.holds(1, pattern, kExtentBytes);
}

class ClosedDescriptors : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer does not support a fork of a process with threads";
#endif
    if (GetParam() == StoreKind::kIoUring && !why_no_io_uring().empty())
      GTEST_SKIP() << why_no_io_uring();
  }

  SpillStoreOptions options(bool is_striped) const {
    SpillStoreOptions options;
    options.kind = GetParam();
    options.directories.push_back({first_.path(), {}});
    if (is_striped) options.directories.push_back({second_.path(), {}});
    return options;
  }

  TemporaryDirectory first_, second_;
};

TEST_P(ClosedDescriptors, LeaveTheStoreAsItIs) {
  const auto outcome = run_with_failing_calls({}, [&] {
    auto store = make_spill_store(options(/*is_striped=*/true)).store;
    PatternPages pages(2);
    const auto before = store->reserve_extent();
    const auto other = store->reserve_extent();
    bool is_right = moves(*store, pages, *before, 1) && moves(*store, pages, *other, 2);
    const ProgramFiles files(first_.path());
    is_right = is_right && moves(*store, pages, *before, 3) && moves(*store, pages, *other, 4);
    while (store->report().extents_in_use < Bytes(8 * kExtentBytes)) store->reserve_extent();
    is_right = is_right && store->report().capacity > Bytes() && files.are_untouched();
    store.reset();
    return is_right && files.are_untouched();
  });
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

INSTANTIATE_TEST_SUITE_P(Stores, ClosedDescriptors,
                         testing::Values(StoreKind::kPosix, StoreKind::kIoUring),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

/// A store in the program's own table, whose file the program has closed.
bool refuses_a_lost_file(const std::string& directory) {
  const SpillDirectory place{directory, Bytes(64 * kExtentBytes)};
  auto file =
      std::make_unique<ExtentFile>(place, memory::make_own_descriptors(), Bytes(kExtentBytes));
  const auto descriptors = file->descriptors();
  auto store = make_posix_store(std::move(file), 4, std::make_shared<Notifier>());
  PatternPages pages(2);
  const auto extent = store->reserve_extent();
  bool is_right = !descriptors->is_apart() && moves(*store, pages, *extent, 1);
  {
    const ProgramFiles files(directory);
    for (const Direction direction : {Direction::kWrite, Direction::kRead}) {
      const TransferResult lost =
          carry_out(*store, {direction, *extent, pages[0], kExtentBytes, 0});
      std::fprintf(stderr, "%s\n", lost.detail.c_str());
      is_right =
          is_right && lost.error == EBADF &&
          lost.detail.find("the program has closed or replaced descriptor") != std::string::npos;
    }
    while (store->reserve_extent()) {
    }
    is_right = is_right && files.are_untouched() &&
               store->report().refusal.find("has closed or replaced") != std::string::npos;
    store.reset();
    is_right = is_right && files.are_untouched();
  }
  return is_right;
}

TEST(SharedDescriptors, EndTransfersByNameAndNotInAFileOfTheProgram) {
  const TemporaryDirectory directory;
  const auto body = [&] { return refuses_a_lost_file(directory.path()); };
  EXPECT_EQ(run_with_failing_calls(kNoOwnTable, body), ChildOutcome::kTrue);
  EXPECT_EQ(run_with_failing_calls(kUnheeded, body), ChildOutcome::kTrue);
}

TEST(SharedDescriptors, AreTheProgramsAndStayOpen) {
  const TemporaryDirectory directory;
  for (const auto& calls : {kNoOwnTable, kUnheeded}) {
    const auto outcome = run_with_failing_calls(calls, [&] {
      const int programs = ::open(directory.path().c_str(), O_TMPFILE | O_RDWR, 0600);
      const OwnDescriptors own;
      return !own.is_apart() && !own.why_shared().empty() && ::write(programs, "mine", 4) == 4;
    });
    EXPECT_EQ(outcome, ChildOutcome::kTrue);
  }
}

TEST(SharedDescriptors, AreNotGivenToIoUring) {
  if (!why_no_io_uring().empty()) GTEST_SKIP() << why_no_io_uring();
  const TemporaryDirectory directory;
  const auto outcome = run_with_failing_calls(kNoOwnTable, [&] {
    SpillStoreOptions options;
    options.directories.push_back({directory.path(), {}});
    const OpenedSpillStore opened = make_spill_store(options);
    return opened.description.starts_with("posix") && opened.warnings.size() == 2 &&
           opened.warnings[0].find("will lose its spilled tensors") != std::string::npos &&
           opened.warnings[1].find("io_uring needs a table of descriptors of its own") !=
               std::string::npos;
  });
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

TEST(SharedDescriptors, AreNotEnoughForUserfaultfd) {
  const memory::MapperProbe probe = memory::probe_mappers()[1];
  if (!probe.is_viable) GTEST_SKIP() << probe.reason;
  const auto outcome = run_with_failing_calls(kNoOwnTable, [] {
    const memory::MapperProbe refused = memory::probe_mappers()[1];
    std::fprintf(stderr, "%s\n", refused.reason.c_str());
    return !refused.is_viable &&
           refused.reason.find("a table of descriptors of its own") != std::string::npos;
  });
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

/// Whether a mapper is refused for a reason that holds these words, and leaves nothing open.
bool is_refused(memory::MapperKind kind, const std::string& words) {
  const int free_before = ::dup(STDERR_FILENO);
  ::close(free_before);
  std::string reason;
  try {
    memory::make_frame_mapper(kind);
  } catch (const UnsupportedError& refused) {
    reason = refused.what();
  }
  const int free_after = ::dup(STDERR_FILENO);
  ::close(free_after);
  std::fprintf(stderr, "%s\n", reason.c_str());
  return reason.find(words) != std::string::npos && free_before == free_after;
}

TEST(Userfaultfd, LeavesNothingOpenWhereItIsRefused) {
  const memory::MapperKind kind = memory::MapperKind::kUserfaultfdUser;
  if (const auto probe = memory::probe_mappers()[static_cast<std::size_t>(kind)]; !probe.is_viable)
    GTEST_SKIP() << probe.reason;
  const std::vector<FailingCall> no_thread{{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}};
  EXPECT_EQ(run_with_failing_calls(no_thread, [&] { return is_refused(kind, "no thread"); }),
            ChildOutcome::kTrue);
  EXPECT_EQ(run_with_failing_calls(
                {{SYS_recvmsg, EMFILE}},
                [&] { return is_refused(kind, "no room among the descriptors of the program"); }),
            ChildOutcome::kTrue);
}

/// Whether a forked child finds these bytes in all pages, also in those that were out.
bool are_right_in_a_child(SwapEngine& engine, const std::vector<std::byte*>& pages, int first) {
  engine.before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    engine.after_fork_in_child();
    for (const std::byte* page : pages)
      if (*page != std::byte(first++)) ::_exit(1);
    ::_exit(0);
  }
  engine.after_fork_in_parent();
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

class ClosedUnderTheEngine
    : public testing::TestWithParam<std::tuple<memory::MapperKind, StoreKind>> {};

TEST_P(ClosedUnderTheEngine, NoPageIsLostAndNoFileIsWritten) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not support a fork of a process with threads";
#endif
  const auto [mapper, kind] = GetParam();
  const TemporaryDirectory directory;
  if (const auto probe = memory::probe_mappers()[static_cast<std::size_t>(mapper)];
      !probe.is_viable)
    GTEST_SKIP() << probe.reason;
  if (kind == StoreKind::kIoUring && !why_no_io_uring().empty()) GTEST_SKIP() << why_no_io_uring();
  const auto outcome = run_with_failing_calls({}, [&, mapper = mapper, kind = kind] {
    SpillStoreOptions place;
    place.kind = kind;
    place.directories.push_back({directory.path(), {}});
    SwapEngineOptions options;
    options.budget = memory::kPageSize * 4;
    options.arena_size = 1_GiB;
    const SteadyClock clock;
    SwapEngine engine(options, memory::make_host_pages(mapper), make_spill_store(place).store,
                      clock);
    constexpr int kPages = 12;
    std::vector<std::byte*> pages;
    for (int i = 0; i < kPages; ++i)
      pages.push_back(engine.allocate(memory::kPageSize, nullptr).address);
    bool is_right = true;
    for (int round = 1; round <= 3; ++round) {
      for (int i = 0; i < kPages; ++i) std::memset(pages[i], 16 * round + i, memory::kPageBytes);
      const ProgramFiles files(directory.path());
      for (int i = 0; i < kPages; ++i) {
        const auto byte = std::byte(16 * round + i);
        is_right = is_right && pages[i][0] == byte && pages[i][memory::kPageBytes - 1] == byte;
      }
      is_right = is_right && are_right_in_a_child(engine, pages, 16 * round);
      is_right = is_right && files.are_untouched();
    }
    return is_right;
  });
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

std::string name_of_both(
    const testing::TestParamInfo<std::tuple<memory::MapperKind, StoreKind>>& both) {
  std::string name(memory::name_of(std::get<0>(both.param)));
  name += "_over_" + std::string(name_of(std::get<1>(both.param)));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ClosedUnderTheEngine,
                         testing::Combine(testing::Values(memory::MapperKind::kUserfaultfd,
                                                          memory::MapperKind::kUserfaultfdUser,
                                                          memory::MapperKind::kSignal,
                                                          memory::MapperKind::kCopy),
                                          testing::Values(StoreKind::kPosix, StoreKind::kIoUring)),
                         name_of_both);

}  // namespace
}  // namespace spillway::swap
