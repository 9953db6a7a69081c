// What posix and io_uring share, on real files, from the outside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "spillway/swap/spill_store_factory.h"
#include "support/golden_part.h"
#include "support/page_patterns.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

class DiskStore : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (GetParam() == StoreKind::kIoUring && !why_no_io_uring().empty())
      GTEST_SKIP() << why_no_io_uring();
  }

  std::unique_ptr<SpillStore> open(bool verify) {
    SpillStoreOptions options;
    options.directories = {{directory_.path(), 64_MiB}};
    options.kind = GetParam();
    options.verify = verify;
    return make_spill_store(options).store;
  }

  /// The spill file, opened a second time as somebody else might.
  int open_behind_its_back() {
    const auto files = nameless_files_below(directory_.path());
    return files.size() == 1 ? ::open(files.front().c_str(), O_RDWR | O_CLOEXEC) : -1;
  }

  TemporaryDirectory directory_;
  PatternPages pages_{2};
};

TEST_P(DiskStore, FindsAFlippedByte) {
  auto store = open(/*verify=*/true);
  static_cast<void>(store->reserve_extent());
  const auto extent = store->reserve_extent();
  pages_.fill(0, 1);
  ASSERT_EQ(carry_out(*store, {Direction::kWrite, *extent, pages_[0], kExtentBytes, 0}).error, 0);
  const int fd = open_behind_its_back();
  ASSERT_GE(fd, 0);
  const off_t place = static_cast<off_t>(extent->value() * kExtentBytes + 12345);
  char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, place), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(::pwrite(fd, &byte, 1, place), 1);
  ASSERT_EQ(::fsync(fd), 0);

  const TransferResult result =
      carry_out(*store, {Direction::kRead, *extent, pages_[1], kExtentBytes, 0});
  EXPECT_EQ(result.error, EBADMSG);
  GoldenPart golden;
  golden.add(result.detail);
  EXPECT_FALSE(store->reserve_extent()) << "a disk with wrong bytes must take no more";
  golden.add(store->report().refusal);
  const std::uint64_t attempts = store->report().checked;
  EXPECT_GT(attempts, 1U);
  EXPECT_EQ(store->report().wrong, 1U) << "it is one page, however often it was read";
  EXPECT_EQ(store->report().recovered, 0U);

  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(::pwrite(fd, &byte, 1, place), 1);
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
  EXPECT_EQ(carry_out(*store, {Direction::kRead, *extent, pages_[1], kExtentBytes, 0}).error, 0);
  EXPECT_TRUE(pages_.holds(1, 1));
  EXPECT_EQ(store->report().checked, attempts + 1);
  EXPECT_EQ(store->report().wrong, 0U);
  EXPECT_EQ(store->report().recovered, 1U);
}

TEST_P(DiskStore, NamesAnExtentThatTheFileHasLost) {
  auto store = open(/*verify=*/false);
  const auto extent = store->reserve_extent();
  pages_.fill(0, 1);
  ASSERT_EQ(carry_out(*store, {Direction::kWrite, *extent, pages_[0], kExtentBytes, 0}).error, 0);
  const int fd = open_behind_its_back();
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, kExtentBytes / 2), 0);
  ::close(fd);
  const TransferResult result =
      carry_out(*store, {Direction::kRead, *extent, pages_[1], kExtentBytes, 7});
  EXPECT_EQ(result.error, ENODATA);  // after the half that is left came as a short transfer
  EXPECT_EQ(result.transfer.tag, 7U);
  GoldenPart().add(result.detail);
  EXPECT_TRUE(pages_.holds(1, 1, kExtentBytes / 2));
}

TEST_P(DiskStore, LeavesNothingWhenItsProcessIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = open(/*verify=*/false);
    const auto extent = store->reserve_extent();
    const auto result = carry_out(*store, {Direction::kWrite, *extent, pages_[0], kExtentBytes, 0});
    const char outcome = result.error == 0 ? 'y' : 'n';
    if (::write(ready[1], &outcome, 1) == 1) ::pause();
    ::_exit(1);
  }
  char outcome = 'n';
  ASSERT_EQ(::read(ready[0], &outcome, 1), 1);
  EXPECT_EQ(outcome, 'y');
  EXPECT_TRUE(directory_.entries().empty()) << "the file has a name while it is used";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(directory_.entries().empty());
  ::close(ready[0]);
  ::close(ready[1]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DiskStore, testing::Values(StoreKind::kPosix, StoreKind::kIoUring),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace spillway::swap
