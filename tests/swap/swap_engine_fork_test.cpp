// What forked children read of storages that were spilled, and what the parent keeps for them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "spillway/memory/host_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "support/sanitized.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kBudgetPages = 4;
constexpr std::size_t kRanges = 5;
constexpr std::size_t kRangePages = 2;
constexpr std::size_t kRangeWords = kRangePages * kPageBytes / sizeof(std::uint64_t);

std::uint64_t* words(std::byte* memory) { return reinterpret_cast<std::uint64_t*>(memory); }

void fill(std::byte* memory, std::uint64_t seed) {
  for (std::size_t i = 0; i < kRangeWords; ++i) words(memory)[i] = seed * 0x9E3779B97F4A7C15 + i;
}

bool holds(std::byte* memory, std::uint64_t seed) {
  for (std::size_t i = 0; i < kRangeWords; ++i) {
    if (words(memory)[i] != seed * 0x9E3779B97F4A7C15 + i) return false;
  }
  return true;
}

/// fork(2) between the calls that a process with a running engine makes around it.
pid_t fork_with(SwapEngine& swap) {
  swap.before_fork();
  const pid_t process = ::fork();
  process == 0 ? swap.after_fork_in_child() : swap.after_fork_in_parent();
  return process;
}

/// A child that waits for `finish`, then runs `work` and ends with the code that this returns.
class Child {
 public:
  Child(SwapEngine& swap, const std::function<int()>& work) {
    if (::pipe2(go_.data(), O_CLOEXEC) != 0) std::abort();
    process_ = fork_with(swap);
    if (process_ != 0) return;
    await_go();
    ::_exit(work());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) finish();
    ::close(go_[0]);
    ::close(go_[1]);
  }

  /// The wait status.
  int finish() {
    if (::write(go_[1], "x", 1) != 1) std::abort();
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

 private:
  void await_go() const {
    char byte = 0;
    if (::read(go_[0], &byte, 1) != 1) ::_exit(100);
  }

  std::array<int, 2> go_{};
  pid_t process_ = 0;
};

bool ended_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

struct StoreVariety {
  const char* name;
  StoreKind kind;
  bool verify;
  bool is_striped;
  Bytes host_tier = {};
};

using Parameters = std::tuple<memory::MapperKind, StoreVariety>;

class SwapEngineForkTest : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer does not support a fork of a process with threads";
#endif
    for (const memory::MapperProbe& probe : memory::probe_mappers()) {
      if (probe.kind == std::get<0>(GetParam()) && !probe.is_viable) GTEST_SKIP() << probe.reason;
    }
    if (variety().kind == StoreKind::kIoUring && !why_no_io_uring().empty())
      GTEST_SKIP() << why_no_io_uring();
    SwapEngineOptions options;
    options.budget = kPageSize * kBudgetPages;
    options.arena_size = 8_GiB;
    swap_ = std::make_unique<SwapEngine>(options, memory::make_host_pages(std::get<0>(GetParam())),
                                         open_store(), clock_);
    for (std::size_t i = 0; i < kRanges; ++i) allocate(i);
  }

  static StoreVariety variety() { return std::get<1>(GetParam()); }

  std::unique_ptr<SpillStore> open_store() {
    SpillStoreOptions options;
    options.kind = variety().kind;
    options.verify = variety().verify;
    options.host_tier = variety().host_tier;
    if (options.kind == StoreKind::kRam) {
      options.ram_capacity = kPageSize * 512;
    } else {
      options.directories.push_back({first_.path(), {}});
      if (variety().is_striped) options.directories.push_back({second_.path(), {}});
    }
    return make_spill_store(options).store;
  }

  void allocate(std::uint64_t seed) {
    ranges_.push_back(swap_->allocate(kPageSize * kRangePages, nullptr).address);
    fill(ranges_.back(), seed);
  }

  void release(std::byte* memory) { swap_->release(swap_->find(memory).storage); }

  /// The number of the first range that does not hold its number plus `offset`; none: 0.
  int first_wrong_range(std::uint64_t offset = 0) const {
    for (std::size_t i = 0; i < kRanges; ++i) {
      if (!holds(ranges_[i], offset + i)) return static_cast<int>(i) + 1;
    }
    return 0;
  }

  void overwrite(std::uint64_t offset) {
    for (std::size_t i = 0; i < kRanges; ++i) fill(ranges_[i], offset + i);
  }

  Bytes extents_in_use() const { return swap_->statistics().store.extents_in_use; }

  /// The engine looks for ended children by itself, several times a second.
  void await_release_of_all_extents() const {
    while (extents_in_use() > Bytes()) std::this_thread::yield();
  }

  TemporaryDirectory first_, second_;
  SteadyClock clock_;
  std::unique_ptr<SwapEngine> swap_;
  std::vector<std::byte*> ranges_;
};

TEST_P(SwapEngineForkTest, AChildReadsWhatWasThereWhileTheParentOverwritesAndSpillsOn) {
  Child child(*swap_, [this] { return first_wrong_range(); });
  for (std::uint64_t round = 1; round <= 3; ++round) overwrite(100 * round);
  EXPECT_TRUE(ended_with(child.finish(), 0));
  EXPECT_EQ(first_wrong_range(300), 0);
  EXPECT_LE(swap_->statistics().counted_peak, kPageSize * kBudgetPages);
}

TEST_P(SwapEngineForkTest, AChildReadsWhatTheParentReleasesAndAllocatesAnew) {
  Child child(*swap_, [this] { return first_wrong_range(); });
  const std::vector<std::byte*> old = ranges_;
  for (std::byte* memory : old) release(memory);
  for (std::uint64_t i = 0; i < 2 * kRanges; ++i) allocate(500 + i);
  EXPECT_TRUE(ended_with(child.finish(), 0));
  for (std::uint64_t i = 0; i < 2 * kRanges; ++i) EXPECT_TRUE(holds(ranges_[kRanges + i], 500 + i));
}

TEST_P(SwapEngineForkTest, AChildReadsWhatOperatorsOfTheParentFetchAndWrite) {
  Child child(*swap_, [this] { return first_wrong_range(); });
  for (int round = 0; round < 2; ++round) {
    for (std::byte* memory : ranges_) {
      PinSet pins;
      RangeUse use = swap_->find(memory);
      use.writes = true;
      swap_->pin(pins, {&use, 1});
      fill(memory, 77);
      swap_->unpin(pins);
    }
  }
  EXPECT_TRUE(ended_with(child.finish(), 0));
}

TEST_P(SwapEngineForkTest, WritesStayPrivateToTheProcess) {
  Child child(*swap_, [this] {
    for (std::size_t i = 0; i < kRanges; i += 2) fill(ranges_[i], 900 + i);
    for (std::size_t i = 0; i < kRanges; ++i) {
      if (!holds(ranges_[i], i % 2 == 0 ? 900 + i : i)) return static_cast<int>(i) + 1;
    }
    return 0;
  });
  EXPECT_TRUE(ended_with(child.finish(), 0));
  EXPECT_EQ(first_wrong_range(), 0);
}

TEST_P(SwapEngineForkTest, SeveralChildrenEachReadTheMomentOfTheirFork) {
  Child first(*swap_, [this] { return first_wrong_range(); });
  overwrite(100);
  Child second(*swap_, [this] { return first_wrong_range(100); });
  overwrite(200);
  Child third(*swap_, [this] { return first_wrong_range(200); });
  overwrite(300);
  EXPECT_TRUE(ended_with(second.finish(), 0));
  overwrite(400);
  EXPECT_TRUE(ended_with(first.finish(), 0));
  overwrite(500);
  EXPECT_TRUE(ended_with(third.finish(), 0));
  EXPECT_EQ(first_wrong_range(500), 0);
}

TEST_P(SwapEngineForkTest, AChildOfAChildReadsOnAfterItsParentHasGone) {
  std::array<int, 2> answer{};
  std::array<int, 2> go{};
  ASSERT_EQ(::pipe2(answer.data(), 0) + ::pipe2(go.data(), 0), 0);
  Child child(*swap_, [&] {
    fill(ranges_[0], 42);  // The grandchild sees this, and what the child has not touched.
    if (fork_with(*swap_) != 0) return 5;
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    const bool first_is_right = holds(ranges_[0], 42);
    fill(ranges_[0], 0);
    byte = first_is_right && first_wrong_range() == 0 ? 'y' : 'n';
    ::_exit(::write(answer[1], &byte, 1) == 1 ? 0 : 1);
  });
  EXPECT_TRUE(ended_with(child.finish(), 5));
  overwrite(100);
  overwrite(200);
  for (std::byte* memory : ranges_) release(memory);
  EXPECT_GT(extents_in_use(), Bytes());
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  ::close(answer[1]);
  char byte = 0;
  EXPECT_EQ(::read(answer[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  await_release_of_all_extents();
  for (const int end : {answer[0], go[0], go[1]}) ::close(end);
}

TEST_P(SwapEngineForkTest, ExtentsAreKeptForAChildAndFreedWhenItHasEnded) {
  const Bytes at_fork = extents_in_use();
  Child child(*swap_, [] { return 0; });
  for (std::byte* memory : ranges_) release(memory);
  EXPECT_GT(extents_in_use(), Bytes());
  EXPECT_LE(extents_in_use(), at_fork);
  ranges_.clear();
  for (std::uint64_t i = 0; i < kRanges; ++i) allocate(i);
  for (std::uint64_t round = 1; round <= 4; ++round) overwrite(100 * round);
  // What came after the fork is none of the child's business, however long it lives.
  EXPECT_LE(extents_in_use(), at_fork + kPageSize * (kRanges * kRangePages));
  EXPECT_TRUE(ended_with(child.finish(), 0));
  for (std::byte* memory : ranges_) release(memory);
  await_release_of_all_extents();
}

TEST_P(SwapEngineForkTest, NothingIsKeptForAProgramThatWasStarted) {
  const pid_t process = fork_with(*swap_);
  if (process == 0) {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(1);
  }
  for (std::byte* memory : ranges_) release(memory);
  await_release_of_all_extents();
  ::kill(process, SIGKILL);
  int status = 0;
  ::waitpid(process, &status, 0);
}

TEST_P(SwapEngineForkTest, AChildThatClosesAllDescriptorsReadsOnOrIsToldWhy) {
  Child child(*swap_, [this] {
    ::close_range(3, ~0U, 0);
    return first_wrong_range();
  });
  overwrite(100);
  overwrite(200);
  for (std::byte* memory : ranges_) release(memory);
  EXPECT_GT(extents_in_use(), Bytes());
  const int status = child.finish();
  const bool needs_descriptor = variety().verify && variety().kind != StoreKind::kRam;
  if (needs_descriptor) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
  } else {
    EXPECT_TRUE(ended_with(status, 0)) << status;
  }
}

TEST_P(SwapEngineForkTest, SystemCallsOfAChildReadSpilledPagesOfFiles) {
  if (variety().verify || variety().kind == StoreKind::kRam || variety().host_tier > Bytes())
    GTEST_SKIP() << "these pages wait for a touch of the program";
  Child child(*swap_, [this] {
    const std::string path = first_.path() + "/copy";
    const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    constexpr std::size_t kSize = kRangePages * kPageBytes;
    std::vector<std::byte> copy(kSize);
    for (std::size_t i = 0; i < kRanges; ++i) {
      if (::pwrite(file, ranges_[i], kSize, 0) != static_cast<ssize_t>(kSize)) return 101;
      if (::pread(file, copy.data(), kSize, 0) != static_cast<ssize_t>(kSize)) return 102;
      if (!holds(copy.data(), i)) return static_cast<int>(i) + 1;
      if (::pread(file, ranges_[kRanges - 1 - i], 4096, 0) != 4096) return 103;
      if (words(ranges_[kRanges - 1 - i])[1] != words(copy.data())[1]) return 104;
      fill(ranges_[kRanges - 1 - i], kRanges - 1 - i);
    }
    return 0;
  });
  overwrite(100);
  const int status = child.finish();
  EXPECT_TRUE(ended_with(status, 0)) << status;
}

TEST_P(SwapEngineForkTest, ThreadsOfAChildSeeWholePages) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer allows no threads in a forked child";
#endif
  Child child(*swap_, [this] {
    std::array<int, 4> wrong{};
    std::vector<std::thread> threads;
    for (int& result : wrong) threads.emplace_back([&] { result = first_wrong_range(); });
    for (std::thread& thread : threads) thread.join();
    for (const int result : wrong) {
      if (result != 0) return result;
    }
    return 0;
  });
  overwrite(100);
  EXPECT_TRUE(ended_with(child.finish(), 0));
}

constexpr int kCameToTheEarlierHandler = 77;

TEST_P(SwapEngineForkTest, FaultsOfAChildOutsideOfStoragesGoToTheEarlierHandler) {
  struct sigaction earlier {};
  struct sigaction before {};
  earlier.sa_handler = [](int) { ::_exit(kCameToTheEarlierHandler); };
  ::sigaction(SIGSEGV, &earlier, &before);
  {
    Child child(*swap_, [this] {
      if (first_wrong_range() != 0) return 1;  // Its own faults are served meanwhile.
      void* const forbidden = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      return *static_cast<volatile char*>(forbidden) == 0 ? 2 : 3;
    });
    EXPECT_TRUE(ended_with(child.finish(), kCameToTheEarlierHandler));
  }
  swap_.reset();  // It may have put its own handler in front.
  ::sigaction(SIGSEGV, &before, nullptr);
}

TEST_P(SwapEngineForkTest, AChildThatNothingCanBeKeptForIsToldWhy) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe2(told.data(), O_CLOEXEC), 0);
  pid_t process = 0;
  {
    const rlimit none{3, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    swap_->before_fork();
    // Before the fork: the sanitizer looks at objects through a pipe, in the child too.
    ::setrlimit(RLIMIT_NOFILE, &before);
    process = ::fork();
    process == 0 ? swap_->after_fork_in_child() : swap_->after_fork_in_parent();
  }
  if (process == 0) {
    ::dup2(told[1], STDERR_FILENO);
    ::_exit(first_wrong_range() == 0 ? 0 : 1);
  }
  ::close(told[1]);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  std::array<char, 512> text{};
  EXPECT_GT(::read(told[0], text.data(), text.size() - 1), 0);
  EXPECT_NE(std::strstr(text.data(), "raise ulimit -n"), nullptr) << text.data();
  ::close(told[0]);
}

constexpr StoreVariety kVarieties[] = {{"tiered", StoreKind::kPosix, false, false, 16_MiB},
                                       {"ram", StoreKind::kRam, false, false},
                                       {"posix", StoreKind::kPosix, false, false},
                                       {"io_uring", StoreKind::kIoUring, false, true},
                                       {"verified", StoreKind::kPosix, true, true}};

/// Sanitizers look at code, and the others share the code of these: the mapper without privilege
/// differs in a flag, POSIX files are read by the child as those of io_uring.
std::vector<memory::MapperKind> mappers() {
  using memory::MapperKind;
  if (kIsSanitized) return {MapperKind::kUserfaultfd, MapperKind::kSignal, MapperKind::kCopy};
  return {MapperKind::kUserfaultfd, MapperKind::kUserfaultfdUser, MapperKind::kSignal,
          MapperKind::kCopy};
}

std::vector<StoreVariety> varieties() {
  std::vector<StoreVariety> all(std::begin(kVarieties), std::end(kVarieties));
  if (kIsSanitized)
    std::erase_if(all,
                  [](const StoreVariety& each) { return each.name == std::string_view("posix"); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, SwapEngineForkTest,
                         testing::Combine(testing::ValuesIn(mappers()),
                                          testing::ValuesIn(varieties())),
                         [](const testing::TestParamInfo<Parameters>& made) {
                           std::string name(memory::name_of(std::get<0>(made.param)));
                           name += std::string("_") + std::get<1>(made.param).name;
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

}  // namespace
}  // namespace spillway::swap
