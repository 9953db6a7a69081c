#include "spillway/phantoms/phantom_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace spillway::phantoms {
namespace {

/// Kernels may rely on the alignment of LibTorch's own memory.
constexpr std::size_t kSmallest = 64;
/// Of addresses that are reserved at once; one mapping of the kernel's serves many blocks.
constexpr std::size_t kChunk = std::size_t{1} << 30;

struct Block {
  std::byte* address = nullptr;
  std::size_t size_class = 0;
  Block* next = nullptr;
};

struct Range {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
};

/// Ranges that were reserved, for who may take no lock.
class Ranges {
 public:
  void add(const std::byte* begin, std::size_t size) {
    const std::size_t number = count_.load(std::memory_order_relaxed);
    if (number == all_.size()) return;  // 4 TiB.
    all_[number] = {begin, size};
    count_.store(number + 1, std::memory_order_release);
  }

  bool contain(const void* address) const noexcept {
    const std::size_t count = count_.load(std::memory_order_acquire);
    return std::any_of(all_.begin(), all_.begin() + count, [&](const Range& range) {
      return address >= range.begin && address < range.begin + range.size;
    });
  }

 private:
  std::array<Range, 4096> all_{};
  std::atomic<std::size_t> count_{0};
};

constinit Ranges ranges{};

/// Blocks of sizes that are powers of 2, which cost nothing: no memory is behind them.
class Blocks {
 public:
  Block* take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, kSmallest));
    const auto size_class = static_cast<std::size_t>(std::countr_zero(size));
    const std::lock_guard lock(mutex_);
    Block*& free = free_[size_class];
    if (free == nullptr) return new Block{carve_locked(size), size_class, nullptr};
    Block* const taken = free;
    free = taken->next;
    return taken;
  }

  void give_back(Block* block) noexcept {
    const std::lock_guard lock(mutex_);
    Block*& free = free_[block->size_class];
    block->next = free;
    free = block;
  }

 private:
  std::byte* carve_locked(std::size_t size) {
    if (left_ < size) {
      const std::size_t reserved = std::max(size, kChunk);
      void* const made =
          ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (made == MAP_FAILED) throw std::bad_alloc();
      next_ = static_cast<std::byte*>(made);
      ranges.add(next_, reserved);
      left_ = reserved;
    }
    left_ -= size;
    return std::exchange(next_, next_ + size);
  }

  std::mutex mutex_;
  std::array<Block*, 64> free_{};  ///< By the logarithm of their size.
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

Blocks& blocks() {
  static auto* made = new Blocks;
  return *made;
}

std::atomic<PhantomMemory::EndObserver> end_observer{nullptr};

void release(void* context) {
  if (context == nullptr) return;
  auto* const block = static_cast<Block*>(context);
  const auto observer = end_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer(block->address);
  blocks().give_back(block);
}

}  // namespace

PhantomMemory& PhantomMemory::instance() {
  static auto* made = new PhantomMemory;
  return *made;
}

c10::DataPtr PhantomMemory::allocate(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &release, cpu};
  if (bytes > std::size_t{1} << 47) throw std::bad_alloc();
  Block* const block = blocks().take(bytes);
  return {block->address, block, &release, cpu};
}

bool PhantomMemory::contains(const void* address) noexcept { return ranges.contain(address); }

c10::DeleterFnPtr PhantomMemory::deleter() { return &release; }

void PhantomMemory::observe_ends(EndObserver observer) { end_observer.store(observer); }

void PhantomMemory::copy_data(void*, const void*, std::size_t) const {
  TORCH_CHECK(false, "phantoms have no bytes to copy");
}

}  // namespace spillway::phantoms
