#include "cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Type.h>

#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "interceptor.h"
#include "out_of_memory.h"
#include "spillway/base/log.h"
#include "spillway/phantoms/trial_memory.h"
#include "spillway/split/split_program.h"

namespace spillway::torch_binding {
namespace {

// Deleters get no user pointer beside the memory itself, so this one is process-wide.
std::atomic<runtime::Runtime*> current{nullptr};
std::atomic<bool> detached{false};

/// Programs make a few smaller ones before the start, which is not worth a word.
const Bytes kWorthTelling = runtime::RuntimeOptions().min_storage;
std::atomic<bool> older_was_told{false};

// What LibTorch was given at the start; a program may replace it.
std::atomic<c10::Allocator*> installed{nullptr};
std::atomic<bool> other_was_told{false};

// What a forked child has of its own, which nobody pages; a few batches are usual.
std::atomic<std::uint64_t> child_bytes{0};
std::atomic<std::uint64_t> told_from_bytes{0};
std::atomic<bool> child_was_told{false};

// Written without the log, whose lock another thread of the parent may have held at the fork.
void tell_of_child(std::uint64_t bytes) {
  if (child_was_told.exchange(true) || !log_enabled(LogLevel::kWarning)) return;
  char line[512];
  const int length = std::snprintf(
      line, sizeof line,
      "[spillway] warning: process %d was made by fork(2) and holds %llu MiB in tensors of its "
      "own, which no budget limits: forked children are not under Spillway (train in a process "
      "that is started anew: by exec, by `spillway run` in the child, or by multiprocessing's "
      "\"spawn\")\n",
      static_cast<int>(::getpid()), static_cast<unsigned long long>(bytes >> 20));
  const ssize_t written = ::write(STDERR_FILENO, line, static_cast<std::size_t>(length));
  static_cast<void>(written);
}

void* block_of_heap(std::size_t size) {
  void* block = nullptr;
  if (::posix_memalign(&block, 64, size) != 0) throw std::bad_alloc();
  return block;
}

// In a forked child blocks of the parent come back too, and are kept: it may not move its parent's
// pages. Its own blocks have a deleter of their own.
void* allocate_detached(std::size_t size) {
  void* const block = block_of_heap(size);
  const std::size_t usable = ::malloc_usable_size(block);
  const std::uint64_t bytes = child_bytes.fetch_add(usable, std::memory_order_relaxed) + usable;
  if (bytes > told_from_bytes.load(std::memory_order_relaxed)) tell_of_child(bytes);
  return block;
}

void release_detached(void* memory) {
  child_bytes.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

bool is_on_trial() { return split::SplitProgram::running() != nullptr && phantoms::is_on_trial(); }

void release(void* memory) {
  if (detached.load(std::memory_order_relaxed)) return;
  if (phantoms::TrialMemory::instance().free(memory)) return;
  split::SplitProgram::ended(memory);
  if (Interceptor::before_free(memory)) return;  // It comes back later, past this.
  current.load(std::memory_order_relaxed)->deallocate(memory);
}

class PagedCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const bool is_child = detached.load(std::memory_order_relaxed);
    void* memory = is_child ? allocate_detached(size) : with_torch_errors([&] {
      if (is_on_trial()) return phantoms::TrialMemory::instance().allocate(size);
      Interceptor::before_allocation();
      return current.load(std::memory_order_relaxed)->allocate(size);
    });
    // oneDNN asserts that the context is the data pointer itself.
    return {memory, memory, is_child ? &release_detached : &release,
            c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

}  // namespace

c10::DeleterFnPtr cpu_allocator_deleter() { return &release; }

void install_cpu_allocator(runtime::Runtime& runtime) {
  current.store(&runtime);
  constexpr std::uint64_t kPartOfBudget = 4;
  told_from_bytes.store(runtime.budget().count() / kPartOfBudget);
  static auto* allocator = new PagedCpuAllocator;  // Storages outlive static destructors.
  constexpr std::uint8_t kHighestPriority = 255;
  c10::SetAllocator(c10::DeviceType::CPU, allocator, kHighestPriority);
  installed.store(allocator);
}

void tell_of_other_allocator() {
  const c10::Allocator* const ours = installed.load(std::memory_order_relaxed);
  if (ours == nullptr || other_was_told.load(std::memory_order_relaxed)) return;
  const c10::Allocator* const now = c10::GetAllocator(c10::DeviceType::CPU);
  if (now == nullptr || now == ours || other_was_told.exchange(true)) return;
  log_warning("the program has replaced Spillway's allocator by one of its own ({}): no budget "
              "limits the tensors that it makes (let the program set none for the CPU under "
              "Spillway, or one of lower priority than 255)",
              c10::demangle(typeid(*now).name()));
}

void tell_of_older_storage(const c10::StorageImpl& storage) {
  if (Bytes(storage.nbytes()) < kWorthTelling) return;
  tell_of_other_allocator();
  if (older_was_told.load(std::memory_order_relaxed)) return;
  if (storage.device_type() != c10::DeviceType::CPU ||
      storage.data_ptr().get_deleter() != c10::GetDefaultCPUAllocator()->raw_deleter())
    return;
  if (older_was_told.exchange(true)) return;
  log_warning(
      "a tensor of {} was made before Spillway started: such tensors stay in memory, beside "
      "the budget (call spillway::start() first in main)",
      Bytes(storage.nbytes()));
}

void detach_cpu_allocator() noexcept { detached.store(true); }

}  // namespace spillway::torch_binding
