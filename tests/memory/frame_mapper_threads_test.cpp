#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <random>
#include <thread>
#include <vector>

#include "frame_mapper_conformance.h"

namespace spillway::memory {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kPages = 10;

std::atomic_ref<std::uint64_t> cell(std::byte* page, std::size_t thread) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(page + 8192 + thread * 64));
}

// Every thread counts in its own place of every page while the pages are closed and taken away
// under it. A lost page, a lost write or a lost wake-up shows as a wrong count or as a hang.
TEST_P(FrameMapperConformance, ManyThreadsFaultWhilePagesLeave) {
  auto owner = make_owner(kPages, 2);
  constexpr int kEvictions = 300;
  std::atomic<bool> stop = false;
  std::array<std::uint64_t, kThreads> rounds{};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::uint64_t round = 0;
      while (!stop) {
        ++round;
        for (std::size_t i = 0; i < kPages; ++i) {
          auto counter = cell(owner->page((thread + i) % kPages), thread);
          // Reading first makes some pages arrive closed, and the write a second fault.
          counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
      }
      rounds[thread] = round;
    });
  }
  std::mt19937 random(99);
  for (int left = 0; left < kEvictions;) {
    const std::size_t index = random() % kPages;
    if (!owner->is_in(index)) {
      std::this_thread::yield();
      continue;
    }
    owner->close_page(index);
    ASSERT_EQ(owner->move_out(index), MoveResult::kMoved);
    ++left;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(owner->take_faults().size(), std::size_t{kEvictions - kPages});
  for (std::size_t i = 0; i < kPages; ++i) {
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      ASSERT_EQ(cell(owner->page(i), thread).load(), rounds[thread]) << "page " << i;
    }
  }
}

TEST_P(FrameMapperConformance, AllThreadsThatWaitForOnePageWake) {
  std::atomic<std::size_t> started = 0;
  auto owner = make_owner(1);
  owner->ask_before_serving([&](Fault) {
    // The first fault is answered when all threads have come, so that most sleep on the page.
    while (started < kThreads) std::this_thread::yield();
    return true;
  });
  std::vector<std::thread> threads;
  std::atomic<unsigned> sum = 0;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ++started;
      if (thread % 2 == 0) {
        cell(owner->page(0), thread).store(1, std::memory_order_relaxed);
      }
      sum += read_byte(owner->page(0) + 1) + 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, kThreads);
}

TEST_P(FrameMapperConformance, AClosedPageDoesNotChangeUntilTheWriteIsServed) {
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  int released = 0;
  auto owner = make_owner(1);
  owner->bring_in(0, Access::kWrite);
  owner->ask_before_serving([&](Fault) {
    if (owner->is_open(0)) return true;  // A write that was reported before.
    std::unique_lock lock(mutex);
    const int turn = ++arrived;
    changed.notify_all();
    changed.wait(lock, [&] { return released >= turn; });
    return true;
  });
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) cell(owner->page(0), 0).fetch_add(1, std::memory_order_relaxed);
  });
  for (int round = 1; round <= 100; ++round) {
    owner->close_page(0);
    const std::uint64_t before = cell(owner->page(0), 0).load(std::memory_order_relaxed);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return arrived == round; });
    EXPECT_EQ(cell(owner->page(0), 0).load(std::memory_order_relaxed), before);
    released = round;
    changed.notify_all();
    lock.unlock();
    // The next round begins when this fault has been served.
    while (!owner->is_open(0)) std::this_thread::yield();
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace spillway::memory
