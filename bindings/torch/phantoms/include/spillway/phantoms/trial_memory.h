#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace spillway::phantoms {

/// Whether this thread runs a kernel only to see what it does. What it allocates then holds none of
/// the program's tensors: an allocator that limits or watches these takes it from `TrialMemory`.
bool is_on_trial() noexcept;

/// What kernels allocate while they run to be seen: none of the trainer's, and in no budget. Blocks
/// of 1 MiB or more are mapped, so nothing of them stays in the heap. Large results lose their
/// bytes while the kernel runs. Any thread.
class TrialMemory {
 public:
  /// Of the process; never destroyed, since kernels may free late.
  static TrialMemory& instance();

  /// This thread runs a kernel until `end_trial`. Blocks that it allocates of one of these sizes
  /// lose their bytes from time to time, if they have 16 MiB or more: it only writes them, or adds
  /// up in them. Others may hold addresses and barriers, as the scratch memory of oneDNN does.
  void begin_trial(std::vector<std::size_t> losing_sizes);
  /// No block that there is now, of any thread, loses what is written from then on.
  void end_trial();

  /// Throws std::bad_alloc.
  void* allocate(std::size_t size);
  /// Kernels free some blocks by the allocator's own deleter, so theirs is no other. False: it is
  /// none of these.
  bool free(void* memory);

  /// Takes the bytes of blocks that lose them. A thread does so every 10 ms while there are any.
  void discard();

 private:
  struct Block {
    std::size_t size = 0;
    bool loses_bytes = false;
  };
  void start_discarding();
  void discard(const std::unique_lock<std::mutex>& locked);

  std::mutex mutex_;
  std::condition_variable grown_;
  std::unordered_map<void*, Block> blocks_;
  std::atomic<std::size_t> count_{0};
  std::size_t losing_ = 0;  ///< Blocks that lose their bytes.
  bool is_discarding_ = false;
};

}  // namespace spillway::phantoms
