#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "byte_copy.h"
#include "spillway/base/bytes.h"

namespace spillway::recompute {

class KeptStorages;

/// Bytes as they were when they were kept: a copy, or the trainer's own storage until somebody is
/// about to write it.
class KeptStorage {
 public:
  KeptStorage(std::shared_ptr<KeptStorages> owner, ByteCopy copy);
  KeptStorage(std::shared_ptr<KeptStorages> owner, c10::Storage storage);
  ~KeptStorage();
  KeptStorage(const KeptStorage&) = delete;
  KeptStorage& operator=(const KeptStorage&) = delete;

  /// Keeps the bytes where they are; a write to them waits meanwhile.
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
  void turn_into_copy();

  const std::shared_ptr<KeptStorages> owner_;
  const std::size_t size_;
  mutable std::shared_mutex mutex_;
  std::optional<ByteCopy> copy_;
  c10::Storage storage_;  ///< Without a copy.
};

/// What records keep of storages that are not paged. Any thread.
class KeptStorages : public std::enable_shared_from_this<KeptStorages> {
 public:
  std::shared_ptr<KeptStorage> copy(const void* data, std::size_t size);

  /// Records share what they keep of a storage until it is written.
  std::shared_ptr<KeptStorage> refer(const c10::Storage& storage);

  bool refers_to_some() const { return referred_count_.load(std::memory_order_relaxed) > 0; }

  void before_write(const c10::StorageImpl& storage) {
    if (refers_to_some()) copy_before_write(storage);
  }

  /// Copies, and storages that nobody else has any more.
  Bytes bytes_held() const;

 private:
  friend class KeptStorage;
  void copy_before_write(const c10::StorageImpl& storage);
  void forget(const c10::StorageImpl* storage);

  mutable std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, std::weak_ptr<KeptStorage>> referred_;
  std::atomic<std::size_t> referred_count_{0};
  std::atomic<std::uint64_t> copied_bytes_{0};
};

}  // namespace spillway::recompute
