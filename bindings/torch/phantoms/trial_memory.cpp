#include "spillway/phantoms/trial_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "spillway/base/signals_blocked.h"

namespace spillway::phantoms {
namespace {

constexpr std::size_t kMapped = std::size_t{1} << 20;
constexpr std::size_t kLoses = std::size_t{16} << 20;
constexpr std::chrono::milliseconds kPeriod(10);

thread_local bool on_trial = false;
thread_local std::vector<std::size_t> losing_sizes;

bool may_lose(std::size_t size) {
  return size >= kLoses && on_trial &&
         std::find(losing_sizes.begin(), losing_sizes.end(), size) != losing_sizes.end();
}

}  // namespace

bool is_on_trial() noexcept { return on_trial; }

TrialMemory& TrialMemory::instance() {
  static auto& memory = *new TrialMemory;
  return memory;
}

void TrialMemory::begin_trial(std::vector<std::size_t> sizes) {
  losing_sizes = std::move(sizes);
  on_trial = true;
}

void TrialMemory::end_trial() {
  on_trial = false;
  losing_sizes.clear();
  const std::lock_guard lock(mutex_);
  if (losing_ == 0) return;
  for (auto& [memory, block] : blocks_) block.loses_bytes = false;
  losing_ = 0;
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
  const Block block{size, may_lose(size)};
  const std::lock_guard lock(mutex_);
  blocks_.emplace(memory, block);
  count_.store(blocks_.size(), std::memory_order_relaxed);
  if (block.loses_bytes) {
    ++losing_;
    start_discarding();
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

void TrialMemory::discard() { discard(std::unique_lock(mutex_)); }

void TrialMemory::discard(const std::unique_lock<std::mutex>& /*locked*/) {
  for (const auto& [memory, block] : blocks_)
    if (block.loses_bytes) ::madvise(memory, block.size, MADV_DONTNEED);
}

void TrialMemory::start_discarding() {
  grown_.notify_one();
  if (is_discarding_) return;
  const SignalsBlocked blocked;  // Handlers of the program may free tensors.
  try {
    std::thread([this] {
      for (std::unique_lock lock(mutex_);;) {
        grown_.wait(lock, [this] { return losing_ > 0; });
        discard(lock);
        lock.unlock();
        std::this_thread::sleep_for(kPeriod);
        lock.lock();
      }
    }).detach();
    is_discarding_ = true;
  } catch (const std::system_error&) {
    // Without the thread they keep their bytes: right, and larger.
  }
}

}  // namespace spillway::phantoms
