#include <gmock/gmock.h>

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
  constexpr std::uint64_t kRounds = 400;
  std::atomic<std::size_t> running = kThreads;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      const std::size_t start = random() % kPages;
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < kPages; ++i) {
          auto counter = cell(owner->page((start + i) % kPages), thread);
          // Reading first makes some pages arrive closed, and the write a second fault.
          counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
      }
      --running;
    });
  }
  std::mt19937 random(99);
  while (running > 0) {
    const std::size_t index = random() % kPages;
    owner->close_page(index);
    ASSERT_EQ(owner->move_out(index), MoveResult::kMoved);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(owner->take_faults().empty());
  for (std::size_t i = 0; i < kPages; ++i) {
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      ASSERT_EQ(cell(owner->page(i), thread).load(), kRounds) << "page " << i;
    }
  }
}

TEST_P(FrameMapperConformance, AllThreadsThatWaitForOnePageWake) {
  auto owner = make_owner(1);
  std::atomic<std::size_t> started = 0;
  owner->before_serving = [&](Fault) {
    // The first fault is answered when all threads have come, so that most sleep on the page.
    while (started < kThreads) std::this_thread::yield();
    return true;
  };
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
  auto owner = make_owner(1);
  owner->bring_in(0, Access::kWrite);
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  bool waiting = false;
  owner->before_serving = [&](Fault) {
    std::unique_lock lock(mutex);
    waiting = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !held; });
    return true;
  };
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) cell(owner->page(0), 0).fetch_add(1, std::memory_order_relaxed);
  });
  for (int round = 0; round < 100; ++round) {
    {
      const std::lock_guard lock(mutex);
      held = true;
      waiting = false;
    }
    owner->close_page(0);
    const std::uint64_t before = cell(owner->page(0), 0).load(std::memory_order_relaxed);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return waiting; });
    EXPECT_EQ(cell(owner->page(0), 0).load(std::memory_order_relaxed), before);
    held = false;
    changed.notify_all();
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace spillway::memory
