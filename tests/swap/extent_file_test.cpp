#include "store/extent_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <string>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/failing_calls.h"
#include "support/golden_part.h"
#include "support/small_file_system.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

std::string refusal_of(const ExtentFile& file) {
  StoreReport report;
  file.add_to(report);
  return report.refusal;
}

std::size_t reserve_all(ExtentFile& file) {
  std::size_t count = 0;
  while (file.reserve()) ++count;
  return count;
}

TEST(ExtentFile, GivesOutTheLastReleasedExtentFirst) {
  const TemporaryDirectory directory;
  ExtentFile file({directory.path(), Bytes()}, 8_MiB);
  const auto first = file.reserve();
  const auto second = file.reserve();
  const auto third = file.reserve();
  ASSERT_TRUE(first && second && third);
  file.release(*first);
  file.release(*third);
  EXPECT_EQ(file.reserve(), third);
  EXPECT_EQ(file.reserve(), first);
  EXPECT_EQ(file.offset_of(ExtentId(3)), 3 * kExtentBytes);
}

TEST(ExtentFile, GrowsOnWhereTheProgramForbidsItselfToReserveSpace) {
  const TemporaryDirectory directory;
  const ChildOutcome outcome = run_with_failing_calls({}, [&] {
    ExtentFile file({directory.path(), 8_MiB}, 2_MiB);
    return file.reserves_space() && fail_calls_from_now_on({{SYS_fallocate, EPERM}}) &&
           reserve_all(file) == 4 && !file.reserves_space() &&
           file.why_unreserved().find("fallocate is refused") == 0;
  });
  if (outcome == ChildOutcome::kCannotFilter)
    GTEST_SKIP() << "filters of system calls cannot be installed";
  EXPECT_EQ(outcome, ChildOutcome::kTrue);
}

TEST(ExtentFile, IsNamelessAndReadableByItsOwnerOnly) {
  const TemporaryDirectory directory;
  const ExtentFile file({directory.path(), Bytes()});
  EXPECT_TRUE(directory.entries().empty());
  struct stat status {};
  int flags = 0;
  file.descriptors()->run([&] {
    ASSERT_EQ(::fstat(file.fd(), &status), 0);
    flags = ::fcntl(file.fd(), F_GETFD);
  });
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(flags & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(ExtentFile, CannotBeGivenANameLater) {
  const TemporaryDirectory directory;
  const ExtentFile file({directory.path(), Bytes()});
  const std::string descriptor = "/proc/thread-self/fd/" + std::to_string(file.fd());
  const std::string name = directory.path() + "/named";
  file.descriptors()->run([&] {
    ASSERT_TRUE(file.is_open());
    EXPECT_EQ(::linkat(AT_FDCWD, descriptor.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW),
              -1);
  });
  EXPECT_TRUE(directory.entries().empty());
}

TEST(ExtentFile, StopsAtItsLimit) {
  const TemporaryDirectory directory;
  ExtentFile file({directory.path(), 10_MiB}, 4_MiB);
  EXPECT_EQ(reserve_all(file), 5U);
  EXPECT_EQ(refusal_of(file),
            "No space left in " + directory.path() + " (the limit of 10.0 MiB is used up)");
  StoreReport report;
  file.add_to(report);
  EXPECT_EQ(report.capacity, 10_MiB);
  EXPECT_EQ(report.extents_in_use, 10_MiB);
}

TEST(ExtentFile, NeedsALimitOfAtLeastOneExtent) {
  const TemporaryDirectory directory;
  EXPECT_THROW(ExtentFile({directory.path(), 1_MiB}), IoError);
}

TEST(ExtentFile, NamesADirectoryThatIsMissing) {
  GoldenPart().add(error_text<IoError>([] { ExtentFile({"/nowhere/at/all", Bytes()}); }));
}

// Beyond `ulimit -f` the kernel sends SIGXFSZ, whose default is the end of the process.
TEST(ExtentFile, StopsBelowTheFileSizeLimitOfTheProcess) {
  const TemporaryDirectory directory;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{9 << 20, 9 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ExtentFile file({directory.path(), Bytes()}, 64_MiB);
    const bool is_right = reserve_all(file) == 4 &&
                          refusal_of(file).find("ulimit -f") != std::string::npos &&
                          refusal_of(file).starts_with("No space left in " + directory.path());
    ::_exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class FullDisk : public testing::TestWithParam<SmallKind> {};

TEST_P(FullDisk, IsNoticedAtReservationAndGivesAllBack) {
  const SmallFileSystem disk(GetParam(), 64_MiB);
  if (!disk.trouble().empty()) GTEST_SKIP() << disk.trouble();
  const Bytes free_before = disk.free();
  {
    ExtentFile file({disk.path(), Bytes()});  // a first step of 1 GiB does not fit: it is halved
    const std::size_t count = reserve_all(file);
    EXPECT_EQ(refusal_of(file), message("No space left in {} (disk full: {} spilled here, {} free)",
                                        disk.path(), Bytes(count * kExtentBytes), disk.free()));
    EXPECT_LT((disk.free()).count(), 2 * kExtentBytes) << "space was left unused";
    EXPECT_GE(count, free_before.count() / kExtentBytes * 9 / 10);
    // What was reserved can be written to the last byte.
    alignas(kTransferAlignment) static char block[kTransferAlignment];
    for (std::uint64_t i = 0; i < count * kExtentBytes; i += sizeof block)
      file.descriptors()->run([&] {
        ASSERT_EQ(::pwrite(file.fd(), block, sizeof block, static_cast<off_t>(i)),
                  static_cast<ssize_t>(sizeof block));
      });
    file.release(ExtentId(0));
    EXPECT_EQ(file.reserve(), ExtentId(0));
    EXPECT_EQ(refusal_of(file), "");
  }
  EXPECT_GE(disk.free() + 1_MiB, free_before);
}

TEST_P(FullDisk, IsAnErrorWhenNotEvenOneExtentFits) {
  const SmallFileSystem disk(GetParam(), 64_MiB);
  if (!disk.trouble().empty()) GTEST_SKIP() << disk.trouble();
  ExtentFile greedy({disk.path(), Bytes()});
  reserve_all(greedy);
  EXPECT_EQ(error_text<IoError>([&] {
              ExtentFile({disk.path(), Bytes()});
            }),
            "No space left in " + disk.path() + " (No space left on device)");
}

TEST_P(FullDisk, GetsItsSpaceBackFromAKilledProcess) {
  const SmallFileSystem disk(GetParam(), 64_MiB);
  if (!disk.trouble().empty()) GTEST_SKIP() << disk.trouble();
  const Bytes free_before = disk.free();
  int filled[2];
  ASSERT_EQ(::pipe(filled), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ExtentFile file({disk.path(), Bytes()});
    const char enough = reserve_all(file) > 10 ? 'y' : 'n';
    if (::write(filled[1], &enough, 1) == 1) ::pause();
    ::_exit(1);
  }
  char enough = 'n';
  ASSERT_EQ(::read(filled[0], &enough, 1), 1);
  EXPECT_EQ(enough, 'y');
  EXPECT_LT(disk.free().count(), 2 * kExtentBytes);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GE(disk.free() + 1_MiB, free_before);
  ::close(filled[0]);
  ::close(filled[1]);
}

INSTANTIATE_TEST_SUITE_P(Small, FullDisk, testing::Values(SmallKind::kTmpfs, SmallKind::kExt4),
                         [](const auto& kind) {
                           return kind.param == SmallKind::kTmpfs ? "Tmpfs" : "Ext4";
                         });

}  // namespace
}  // namespace spillway::swap
