#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "byte_copy.h"
#include "spillway/base/bytes.h"

namespace spillway::recompute {

class KeptStorages;

/// Bytes as they were when they were kept: a copy, or the trainer's own memory until somebody is
/// about to write it. A block that its last tensor gives back meanwhile passes to this: nothing
/// here refers to tensors or storages, whose reference counts the program would see.
class KeptStorage {
 public:
  KeptStorage(std::shared_ptr<KeptStorages> owner, ByteCopy copy);
  KeptStorage(std::shared_ptr<KeptStorages> owner, const void* block, std::size_t size);
  ~KeptStorage();
  KeptStorage(const KeptStorage&) = delete;
  KeptStorage& operator=(const KeptStorage&) = delete;

  /// Keeps the bytes where they are; a write to them waits meanwhile. Throws Error when they are
  /// lost, as there was no memory for a copy of them.
  class Lease {
   public:
    explicit Lease(const KeptStorage& kept);
    const std::byte* data() const { return data_; }

   private:
    std::shared_lock<std::shared_mutex> lock_;
    const std::byte* data_;
  };

  bool is_referred() const;
  std::size_t size() const { return size_; }

 private:
  friend class KeptStorages;
  const std::byte* bytes_locked() const;
  void turn_into_copy() noexcept;
  bool take_over() noexcept;

  const std::shared_ptr<KeptStorages> owner_;
  const std::size_t size_;
  /// Of the trainer's block; null: it was copied at once.
  const std::byte* const address_;
  mutable std::shared_mutex mutex_;
  std::optional<ByteCopy> copy_;
  bool is_owned_ = false;  ///< The block is this one's to give back.
  bool is_lost_ = false;
};

/// What records keep of memory that is not paged. It is known by its address, since several
/// storages may lie over it, and may exchange it. Any thread.
class KeptStorages : public std::enable_shared_from_this<KeptStorages> {
 public:
  using GiveBack = std::function<void(void* memory)>;
  /// `device`: of the memory that records refer to. `give_back`: see ReplayEngineOptions.
  KeptStorages(c10::Device device, GiveBack give_back)
      : device_(device), give_back_(std::move(give_back)) {}

  std::shared_ptr<KeptStorage> copy(const void* data, std::size_t size, c10::Device device);

  /// Records share what they keep of a block of the allocator until it is written.
  std::shared_ptr<KeptStorage> refer(const void* block, std::size_t size);

  bool refers_to_some() const { return referred_count_.load(std::memory_order_relaxed) > 0; }

  void before_write(const void* memory, std::size_t size) {
    if (refers_to_some()) copy_before_write(static_cast<const std::byte*>(memory), size);
  }

  /// The block of memory that begins there ends. True: not yet, it is kept.
  bool before_free(const void* memory) noexcept {
    return refers_to_some() && keep_freed(static_cast<const std::byte*>(memory));
  }

  /// Copies, and blocks that nobody else has any more.
  Bytes bytes_held() const;
  /// The most bytes of copies at once so far.
  Bytes most_copied() const { return Bytes(most_copied_.load(std::memory_order_relaxed)); }

 private:
  friend class KeptStorage;
  struct Referred {
    std::size_t size = 0;
    std::weak_ptr<KeptStorage> kept;
  };

  void copy_before_write(const std::byte* begin, std::size_t size);
  bool keep_freed(const std::byte* memory) noexcept;
  std::vector<std::shared_ptr<KeptStorage>> take_locked(const std::byte* begin,
                                                        const std::byte* end);
  void forget(const std::byte* address);
  void count_copy(std::size_t size);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Referred> referred_;  ///< By their begin; they do not overlap.
  std::atomic<std::size_t> referred_count_{0};
  const c10::Device device_;
  const GiveBack give_back_;
  std::atomic<std::uint64_t> copied_bytes_{0};
  std::atomic<std::uint64_t> owned_bytes_{0};
  std::atomic<std::uint64_t> most_copied_{0};
};

}  // namespace spillway::recompute
