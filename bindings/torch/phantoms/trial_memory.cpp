#include "spillway/phantoms/trial_memory.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>

#include "trial_run.h"

namespace spillway::phantoms {
namespace {

constexpr std::size_t kMapped = std::size_t{1} << 20;
constexpr std::size_t kLoses = std::size_t{16} << 20;
constexpr std::chrono::milliseconds kPeriod(10);

}  // namespace

TrialMemory& TrialMemory::instance() {
  static auto& memory = *new TrialMemory;
  return memory;
}

void* TrialMemory::allocate(std::size_t size) {
  void* memory = nullptr;
  if (size >= kMapped) {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  } else if (::posix_memalign(&memory, 64, size) != 0) {
    throw std::bad_alloc();
  }
  const Block block{size, size >= kLoses && trial_ignores_values()};
  const std::lock_guard lock(mutex_);
  blocks_.emplace(memory, block);
  count_.store(blocks_.size(), std::memory_order_relaxed);
  if (!block.loses_bytes) return memory;
  ++losing_;
  grown_.notify_one();
  if (is_discarding_) return memory;
  try {
    std::thread([this] { discard(); }).detach();
    is_discarding_ = true;
  } catch (const std::system_error&) {
    // Without the thread they keep their bytes: right, and larger.
  }
  return memory;
}

bool TrialMemory::free(void* memory) {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return false;
    block = found->second;
    blocks_.erase(found);
    count_.store(blocks_.size(), std::memory_order_relaxed);
    if (block.loses_bytes) --losing_;
  }
  if (block.size >= kMapped) {
    ::munmap(memory, block.size);
  } else {
    std::free(memory);
  }
  return true;
}

void TrialMemory::end_trial() {
  const std::lock_guard lock(mutex_);
  if (losing_ == 0) return;
  for (auto& [memory, block] : blocks_) block.loses_bytes = false;
  losing_ = 0;
}

void TrialMemory::discard() {
  std::unique_lock lock(mutex_);
  while (true) {
    grown_.wait(lock, [this] { return losing_ > 0; });
    for (const auto& [memory, block] : blocks_)
      if (block.loses_bytes) ::madvise(memory, block.size, MADV_DONTNEED);
    lock.unlock();
    std::this_thread::sleep_for(kPeriod);
    lock.lock();
  }
}

}  // namespace spillway::phantoms
