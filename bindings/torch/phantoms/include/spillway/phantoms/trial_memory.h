#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace spillway::phantoms {

/// Whether this thread runs a kernel only to see what it does. What it allocates then holds none of
/// the program's tensors: an allocator that limits or watches these takes it from `TrialMemory`.
bool is_on_trial() noexcept;

/// What kernels allocate while they run to be seen: none of the trainer's, and in no budget. Any
/// thread. Blocks are mapped, so nothing of them stays in the heap. While the course of the kernel
/// does not hang on values, those of 16 MiB or more lose their bytes every 10 ms: a convolution
/// whose result and scratch take 3 GiB takes some 100 MiB of memory on trial.
class TrialMemory {
 public:
  /// Of the process; never destroyed, since kernels may free late.
  static TrialMemory& instance();

  /// Throws std::bad_alloc.
  void* allocate(std::size_t size);
  /// Kernels free some blocks by the allocator's own deleter, so theirs is no other. False: it is
  /// none of these.
  bool free(void* memory);
  /// A kernel has run. What is left of its blocks keeps its bytes: it may be kept for later calls.
  void end_trial();

 private:
  struct Block {
    std::size_t size = 0;
    bool loses_bytes = false;
  };
  void discard();

  std::mutex mutex_;
  std::condition_variable grown_;
  std::unordered_map<void*, Block> blocks_;
  std::atomic<std::size_t> count_{0};
  std::size_t losing_ = 0;  ///< Blocks that lose their bytes.
  bool is_discarding_ = false;
};

}  // namespace spillway::phantoms
