#include "spillway/swap/spill_store_factory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/failing_calls.h"
#include "support/golden_part.h"
#include "support/page_patterns.h"
#include "support/shadow_device.h"
#include "support/small_file_system.h"
#include "support/temporary_directory.h"
#include "swap/masked_io.h"

namespace spillway::swap {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SpillStoreOptions on(std::vector<SpillDirectory> directories) {
  SpillStoreOptions options;
  options.directories = std::move(directories);
  return options;
}

/// Of the warnings those with that text: others are of this machine.
std::vector<std::string> warnings_of(const OpenedSpillStore& opened, const std::string& text) {
  std::vector<std::string> found;
  for (const std::string& warning : opened.warnings)
    if (warning.find(text) != std::string::npos) found.push_back(warning);
  return found;
}

TEST(StoreKind, HasNamesThatCanBeReadBack) {
  GoldenPart golden;
  for (const StoreKind kind :
       {StoreKind::kAuto, StoreKind::kIoUring, StoreKind::kPosix, StoreKind::kRam})
    EXPECT_EQ(store_kind_from(name_of(kind)), kind);
  golden.add(error_text<ConfigError>([] { store_kind_from("iouring"); }));
  golden.add(error_text<ConfigError>([] { store_kind_from("x"); }));
}

TEST(MakeSpillStore, PutsHostMemoryBeforeDirectories) {
  const TemporaryDirectory directory;
  SpillStoreOptions options = on({{directory.path(), 8_MiB}});
  options.kind = StoreKind::kPosix;
  options.host_tier = 7_MiB;
  const OpenedSpillStore opened = make_spill_store(options);
  GoldenPart golden;
  mask_io(golden);
  golden.add(opened.description);
  EXPECT_EQ(opened.store->report().capacity, 14_MiB);
  EXPECT_EQ(opened.store->report().host.capacity, 6_MiB);
}

/// Memory of this process that its children do not get.
Bytes hidden_from_children() {
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t total = 0;
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    static_cast<void>(std::sscanf(line.c_str(), "Size: %lu kB", &kilobytes));
    if (line.starts_with("VmFlags:") && line.find(" dc") != std::string::npos) total += kilobytes;
  }
  return Bytes(total << 10);
}

/// The system copies pinned memory during a fork: gibibytes for each worker of a data loader.
TEST(MakeSpillStore, HidesHostMemoryFromForkedChildrenThatCannotUseTheDevice) {
  const Bytes before = hidden_from_children();
  SpillStoreOptions options;
  options.kind = StoreKind::kRam;
  options.ram_capacity = 4_MiB;
  options.host_tier = 8_MiB;
  options.device = std::make_shared<device::ShadowDevice>();
  const OpenedSpillStore of_device = make_spill_store(options);
  const Bytes hidden = hidden_from_children();
  EXPECT_GE(hidden, before + 8_MiB);
  const TemporaryDirectory directory;
  options = on({{directory.path(), 8_MiB}});
  options.kind = StoreKind::kPosix;
  options.host_tier = 8_MiB;
  const OpenedSpillStore of_host = make_spill_store(options);
  // The system hides some pages of its own, too.
  EXPECT_LT(hidden_from_children(), hidden + 8_MiB) << "children read what left the CPU's memory";
}

TEST(MakeSpillStore, RefusesHostMemoryThatMakesNoSense) {
  GoldenPart golden;
  const TemporaryDirectory directory;
  SpillStoreOptions options = on({{directory.path(), 8_MiB}});
  options.host_tier = 1_MiB;
  golden.add(error_text<ConfigError>([&] { make_spill_store(options); }));
  options.host_tier = Bytes(std::uint64_t{1} << 50);
  golden.add(error_text<IoError>([&] { make_spill_store(options); }));
  options.directories.clear();
  options.kind = StoreKind::kRam;
  options.ram_capacity = 8_MiB;
  options.host_tier = 8_MiB;
  golden.add(error_text<ConfigError>([&] { make_spill_store(options); }));
}

TEST(MakeSpillStore, DescribesWhatItOpened) {
  const TemporaryDirectory directory;
  SpillStoreOptions options = on({{directory.path(), 8_MiB}});
  options.kind = StoreKind::kPosix;
  const OpenedSpillStore opened = make_spill_store(options);
  EXPECT_TRUE(opened.description.starts_with("posix, ")) << opened.description;
  GoldenPart golden;
  mask_io(golden);
  golden.add(opened.description);
  EXPECT_EQ(opened.store->report().capacity, 8_MiB);
  EXPECT_EQ(opened.store->queue_depth(), 16U);
}

TEST(MakeSpillStore, RefusesOptionsThatContradictEachOther) {
  GoldenPart golden;
  golden.add(error_text<ConfigError>([] { make_spill_store({}); }));
  SpillStoreOptions ram;
  ram.kind = StoreKind::kRam;
  golden.add(error_text<ConfigError>([&] { make_spill_store(ram); }));
  ram.ram_capacity = 8_MiB;
  EXPECT_EQ(make_spill_store(ram).store->report().capacity, 8_MiB);
  ram.directories = {{"/scratch", Bytes()}};
  golden.add(error_text<ConfigError>([&] { make_spill_store(ram); }));
  SpillStoreOptions deep = on({{"/scratch", Bytes()}});
  deep.queue_depth = 0;
  golden.add(error_text<ConfigError>([&] { make_spill_store(deep); }));
}

TEST(MakeSpillStore, LeavesABadDirectoryOutWithAWarning) {
  const TemporaryDirectory good;
  const std::string missing = good.path() + "/missing";
  const std::string file = good.path() + "/file";
  std::ofstream(file) << "no directory";
  const OpenedSpillStore opened =
      make_spill_store(on({{missing, Bytes()}, {good.path(), 8_MiB}, {file, Bytes()}}));
  GoldenPart golden;
  for (const std::string& bad : {missing, file}) golden.add(warnings_of(opened, bad));
  EXPECT_EQ(opened.store->report().capacity, 8_MiB);
  std::filesystem::remove(file);
}

TEST(MakeSpillStore, NamesEveryReasonWhenNoDirectoryIsLeft) {
  GoldenPart golden;
  golden.mask(std::regex("/proc: .*"), "/proc: REASON");  // Another one for another user.
  golden.add(error_text<IoError>([] {
    make_spill_store(on({{"/nowhere", Bytes()}, {"/proc", Bytes()}}));
  }));
}

TEST(MakeSpillStore, WarnsWhenDirectoriesShareAFileSystem) {
  const TemporaryDirectory first, second;
  EXPECT_THAT(warnings_of(make_spill_store(on({{first.path(), 8_MiB}, {second.path(), 8_MiB}})),
                          second.path()),
              ElementsAre(message("{} and {} are on one file system: no faster than one of them",
                                  first.path(), second.path())));
}

TEST(MakeSpillStore, NamesTheFileSystem) {
  const SmallFileSystem memory(SmallKind::kTmpfs, 64_MiB);
  if (!memory.trouble().empty()) GTEST_SKIP() << memory.trouble();
  GoldenPart golden;
  golden.mask(std::regex("^\\w+, \\w+ I/O, "), "STORE, KIND I/O, ");
  golden.add(make_spill_store(on({{memory.path(), 8_MiB}})).description);
}

TEST(MakeSpillStore, HasNothingToSayAboutAGoodDirectory) {
  const SmallFileSystem disk(SmallKind::kExt4, 64_MiB);
  if (!disk.trouble().empty()) GTEST_SKIP() << disk.trouble();
  if (!why_no_io_uring().empty()) GTEST_SKIP() << why_no_io_uring();
  const OpenedSpillStore opened = make_spill_store(on({{disk.path(), 8_MiB}}));
  EXPECT_THAT(opened.warnings, IsEmpty());
  EXPECT_EQ(opened.description, "io_uring, direct I/O, " + disk.path() + " (ext4)");
}

TEST(MakeSpillStore, VerifiesWhenAsked) {
  GoldenPart golden;
  const TemporaryDirectory directory;
  SpillStoreOptions options = on({{directory.path(), 8_MiB}});
  options.verify = true;
  const auto store = make_spill_store(options).store;
  const auto extent = store->reserve_extent();
  const PatternPages pages(1);
  const TransferResult never_written =
      carry_out(*store, {Direction::kRead, *extent, pages[0], kExtentBytes, 0});
  EXPECT_EQ(never_written.error, EINVAL);
  golden.add(never_written.detail);
  EXPECT_EQ(store->report().wrong, 1U) << "a wrong length is none of the right bytes";
}

bool has_warning(const OpenedSpillStore& opened, const std::string& part) {
  for (const std::string& warning : opened.warnings)
    if (warning.find(part) != std::string::npos) return true;
  return false;
}

bool carries_a_page(SpillStore& store) {
  PatternPages pages(2);
  pages.fill(0, 9);
  const auto extent = store.reserve_extent();
  return extent &&
         carry_out(store, {Direction::kWrite, *extent, pages[0], kExtentBytes, 0}).error == 0 &&
         carry_out(store, {Direction::kRead, *extent, pages[1], kExtentBytes, 0}).error == 0 &&
         pages.holds(1, 9);
}

/// A system on which some calls fail. Bodies run in a child process and answer whether all is well.
class LimitedSystem : public testing::Test {
 protected:
  void expect(const FailingCall& call, const std::function<bool()>& body) {
    const ChildOutcome outcome = run_with_failing_calls({call}, body);
    if (outcome == ChildOutcome::kCannotFilter)
      GTEST_SKIP() << "filters of system calls cannot be installed";
    EXPECT_EQ(outcome, ChildOutcome::kTrue);
  }

  TemporaryDirectory directory_;
  SpillStoreOptions options_ = on({{directory_.path(), 8_MiB}});
};

TEST_F(LimitedSystem, FallsBackToThreadsWhereIoUringIsForbidden) {
  if (!why_no_io_uring().empty()) GTEST_SKIP() << why_no_io_uring();
  expect({SYS_io_uring_setup, EPERM}, [&] {
    const OpenedSpillStore opened = make_spill_store(options_);
    options_.kind = StoreKind::kIoUring;
    const std::string refusal = error_text<UnsupportedError>([&] { make_spill_store(options_); });
    return opened.description.starts_with("posix") && has_warning(opened, "io_uring is ") &&
           carries_a_page(*opened.store) && refusal.starts_with("io_uring is ");
  });
}

TEST_F(LimitedSystem, GoesThroughThePageCacheWhereDirectIoIsRefused) {
  expect({SYS_fcntl, EINVAL, 2, O_DIRECT}, [&] {
    const OpenedSpillStore opened = make_spill_store(options_);
    return has_warning(opened, "page cache") && has_warning(opened, "refuses direct I/O") &&
           opened.description.find("buffered I/O") != std::string::npos &&
           carries_a_page(*opened.store);
  });
}

TEST_F(LimitedSystem, NamesItsFileForAMomentWhereItMust) {
  expect({SYS_openat, EOPNOTSUPP, 2, O_TMPFILE}, [&] {
    const OpenedSpillStore opened = make_spill_store(options_);
    const auto files = nameless_files_below(directory_.path());
    struct stat status {};
    return directory_.entries().empty() && files.size() == 1 &&
           ::stat(files.front().c_str(), &status) == 0 && (status.st_mode & 07777) == 0600 &&
           status.st_nlink == 0 && carries_a_page(*opened.store);
  });
}

TEST_F(LimitedSystem, OpensANamedFileOnlyWhereNothingLies) {
  constexpr std::uint32_t kSafely = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const ChildOutcome outcome = run_with_failing_calls(
      {{SYS_openat, EOPNOTSUPP, 2, O_TMPFILE}, {SYS_openat, EROFS, 2, kSafely}}, [&] {
        const std::string refusal = error_text<IoError>([&] { make_spill_store(options_); });
        return refusal.find("Read-only file system") != std::string::npos &&
               directory_.entries().empty();
      });
  if (outcome == ChildOutcome::kCannotFilter)
    GTEST_SKIP() << "filters of system calls cannot be installed";
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

TEST_F(LimitedSystem, SaysThatSpaceCannotBeReserved) {
  expect({SYS_fallocate, EOPNOTSUPP}, [&] {
    const OpenedSpillStore opened = make_spill_store(options_);
    return has_warning(opened, "cannot reserve space") && carries_a_page(*opened.store) &&
           opened.store->report().capacity == 8_MiB;
  });
}

TEST_F(LimitedSystem, TakesSpaceByWritingWhereAFilterForbidsToReserveIt) {
  expect({SYS_fallocate, EPERM}, [&] {
    const OpenedSpillStore opened = make_spill_store(options_);
    return has_warning(opened, "fallocate is refused: Operation not permitted") &&
           carries_a_page(*opened.store) && opened.store->report().capacity == 8_MiB;
  });
}

TEST_F(LimitedSystem, StopsAtADiskQuota) {
  expect({SYS_fallocate, EDQUOT}, [&] {
    const std::string refusal = error_text<IoError>([&] { make_spill_store(options_); });
    return refusal.find("No space left in " + directory_.path() + " (disk quota exceeded") !=
           std::string::npos;
  });
}

}  // namespace
}  // namespace spillway::swap
