// Pages that the kernel keeps in memory: locked by the program, in use by a device, or shared with
// a forked child where a filter refuses the way to copy them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "mapper_cases.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/swap_engine.h"
#include "spillway/swap/swap_errors.h"
#include "store/ram/factory.h"
#include "support/failing_calls.h"
#include "support/fault_store.h"
#include "support/lock_in_memory.h"
#include "support/residency_orders.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kBudgetPages = 4;

std::uint64_t& word(std::byte* memory, std::size_t page) {
  return *reinterpret_cast<std::uint64_t*>(memory + page * kPageBytes);
}

void unlock(const SwapEngine::Allocation& made, std::size_t pages) {
  ASSERT_EQ(::syscall(SYS_munlock, made.address, pages * kPageBytes), 0);
}

class SwapEnginePinnedByKernelTest : public MapperTest {
 protected:
  /// On a store in memory whose writes fail after so many transfers.
  std::unique_ptr<SwapEngine> engine(std::size_t transfers_until_death = 1'000'000) const {
    auto notifier = std::make_shared<Notifier>();
    FaultOptions faults;
    faults.transfers_until_death = transfers_until_death;
    SwapEngineOptions options;
    options.budget = kPageSize * kBudgetPages;
    options.arena_size = 8_GiB;
    options.patience = std::chrono::milliseconds(200);
    return std::make_unique<SwapEngine>(
        options, memory::make_host_pages(GetParam()),
        std::make_unique<FaultStore>(make_ram_store(Bytes(64 * kExtentBytes), 4, notifier),
                                     notifier, faults),
        clock_);
  }

  static SwapEngine::Allocation filled(SwapEngine& swap, std::size_t pages) {
    const auto made = swap.allocate(kPageSize * pages, nullptr);
    for (std::size_t page = 0; page < pages; ++page) word(made.address, page) = 10 + page;
    return made;
  }

  /// Whether locked pages stay: other mappers move them.
  static bool keeps_what_is_locked() {
    return GetParam() == memory::MapperKind::kUserfaultfd ||
           GetParam() == memory::MapperKind::kUserfaultfdUser;
  }

  SteadyClock clock_;
};

TEST_P(SwapEnginePinnedByKernelTest, AreNamedWhereNothingElseMayLeave) {
  if (!keeps_what_is_locked()) GTEST_SKIP() << "this mapper moves what is locked";
  const auto swap = engine();
  const auto locked = filled(*swap, 3);
  if (!lock_in_memory(locked.address, 3)) GTEST_SKIP() << "mlock is limited here";
  try {
    swap->allocate(kPageSize * 2, nullptr);
    FAIL() << "there is room for one page only";
  } catch (const PinnedByKernelError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("no room for 4.00 MiB under a budget of 8.00 MiB: the kernel "
                                     "keeps 6.00 MiB of tensors in memory, which the program has "
                                     "locked (mlock, mlockall) or a device uses"));
  }
  EXPECT_THROW(swap->allocate(kPageSize * 5, nullptr), NoRoomError) << "would never fit";
  unlock(locked, 3);
  EXPECT_NO_THROW(swap->allocate(kPageSize * 2, nullptr));
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(locked.address, page), 10 + page);
}

TEST_P(SwapEnginePinnedByKernelTest, LeaveAsSoonAsTheyMay) {
  const auto swap = engine();
  const auto locked = filled(*swap, 3);
  if (!lock_in_memory(locked.address, 3)) GTEST_SKIP() << "mlock is limited here";
  std::atomic<bool> has_ended = false;
  std::thread device([&] {
    while (swap->statistics().room_wait == Duration::zero() && !has_ended)
      std::this_thread::yield();
    unlock(locked, 3);
  });
  EXPECT_NO_THROW(swap->allocate(kPageSize * 2, nullptr));
  has_ended = true;
  device.join();
}

TEST_P(SwapEnginePinnedByKernelTest, LeaveForWhoTouchesWhatIsOut) {
  const auto swap = engine();
  const auto out = filled(*swap, 2);
  const auto locked = filled(*swap, kBudgetPages);
  if (!lock_in_memory(locked.address, kBudgetPages)) GTEST_SKIP() << "mlock is limited here";
  const std::uint64_t faults = swap->statistics().faults;
  std::thread reader([&] { EXPECT_EQ(word(out.address, 1), 11u); });
  while (swap->statistics().faults == faults) std::this_thread::yield();
  unlock(locked, kBudgetPages);
  reader.join();
}

TEST_P(SwapEnginePinnedByKernelTest, DoNotHideThatTheStoreTakesNoMore) {
  constexpr std::size_t kOutAndBack = 2;
  const auto swap = engine(kOutAndBack);
  const auto clean = filled(*swap, 1);
  write_out(*swap, clean.storage, 1);
  while (swap->statistics().spilled < kPageSize) std::this_thread::yield();
  EXPECT_EQ(word(clean.address, 0), 10u);
  const auto dirty = filled(*swap, kBudgetPages - 1);
  PinSet pins;
  const RangeUse use{clean.storage, 1, false};
  swap->pin(pins, {&use, 1});
  EXPECT_THROW(swap->allocate(kPageSize, &pins), StoreError);
  if (!lock_in_memory(clean.address, 1)) GTEST_SKIP() << "mlock is limited here";
  swap->unpin(pins);
  if (keeps_what_is_locked()) {
    EXPECT_THROW(swap->allocate(kPageSize, nullptr), StoreError);
  }
  for (std::size_t page = 0; page + 1 < kBudgetPages; ++page)
    EXPECT_EQ(word(dirty.address, page), 10 + page);
}

/// Whether a range leaves while a forked child shares its pages.
bool leaves_beside_a_child(SwapEngine& swap, const SwapEngine::Allocation& shared) {
  std::array<int, 2> go{};
  if (::pipe(go.data()) != 0) return false;
  swap.before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    swap.after_fork_in_child();
    char letter = 0;
    const bool is_told = ::read(go[0], &letter, 1) == 1;
    ::_exit(is_told && word(shared.address, 0) == 10 ? 7 : 8);
  }
  swap.after_fork_in_parent();
  bool has_left = true;
  try {
    swap.allocate(kPageSize * kBudgetPages, nullptr);
  } catch (const PinnedByKernelError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    has_left = false;
  }
  int status = 0;
  return ::write(go[1], "x", 1) == 1 && ::waitpid(child, &status, 0) == child &&
         WIFEXITED(status) && WEXITSTATUS(status) == 7 && has_left;
}

TEST_P(SwapEnginePinnedByKernelTest, AreNotThoseThatAChildSharesEvenWhereACallIsRefused) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not support a fork of a process with threads";
#endif
  for (const bool is_refused : {false, true}) {
    std::vector<FailingCall> calls;
    if (is_refused) calls.push_back({SYS_process_vm_readv, EPERM});
    const ChildOutcome outcome = run_with_failing_calls(calls, [&] {
      const auto swap = engine();
      const auto shared = filled(*swap, 3);
      return leaves_beside_a_child(*swap, shared) && word(shared.address, 2) == 12;
    });
    if (outcome == ChildOutcome::kCannotFilter) GTEST_SKIP() << "no filter of system calls here";
    EXPECT_EQ(outcome, ChildOutcome::kTrue) << (is_refused ? "process_vm_readv is refused" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(Mappers, SwapEnginePinnedByKernelTest, all_mappers(), mapper_case);

}  // namespace
}  // namespace spillway::swap
