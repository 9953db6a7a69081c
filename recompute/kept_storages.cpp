#include "kept_storages.h"

#include <utility>
#include <vector>

namespace spillway::recompute {

KeptStorage::KeptStorage(std::shared_ptr<KeptStorages> owner, ByteCopy copy)
    : owner_(std::move(owner)), size_(copy.size()), copy_(std::move(copy)) {
  owner_->copied_bytes_.fetch_add(size_, std::memory_order_relaxed);
}

KeptStorage::KeptStorage(std::shared_ptr<KeptStorages> owner, c10::Storage storage)
    : owner_(std::move(owner)), size_(storage.nbytes()), storage_(std::move(storage)) {}

KeptStorage::~KeptStorage() {
  if (copy_) {
    owner_->copied_bytes_.fetch_sub(size_, std::memory_order_relaxed);
  } else {
    owner_->forget(storage_.unsafeGetStorageImpl());
  }
}

bool KeptStorage::is_referred() const {
  const std::shared_lock lock(mutex_);
  return !copy_.has_value();
}

void KeptStorage::turn_into_copy() {
  c10::Storage given_up;  // Freed after the lock is: that may enter the trainer's allocator.
  const std::unique_lock lock(mutex_);
  if (copy_) return;
  copy_.emplace(storage_.data(), size_);
  owner_->copied_bytes_.fetch_add(size_, std::memory_order_relaxed);
  given_up = std::exchange(storage_, c10::Storage());
}

KeptStorage::Lease::Lease(const KeptStorage& kept)
    : lock_(kept.mutex_),
      data_(kept.copy_ ? kept.copy_->data() : static_cast<const std::byte*>(kept.storage_.data())) {
}

std::shared_ptr<KeptStorage> KeptStorages::copy(const void* data, std::size_t size) {
  return std::make_shared<KeptStorage>(shared_from_this(), ByteCopy(data, size));
}

std::shared_ptr<KeptStorage> KeptStorages::refer(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  auto& entry = referred_[storage.unsafeGetStorageImpl()];
  if (auto known = entry.lock()) return known;
  auto kept = std::make_shared<KeptStorage>(shared_from_this(), storage);
  entry = kept;
  referred_count_.store(referred_.size(), std::memory_order_relaxed);
  return kept;
}

void KeptStorages::copy_before_write(const c10::StorageImpl& storage) {
  std::shared_ptr<KeptStorage> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto found = referred_.find(&storage);
    if (found == referred_.end()) return;
    kept = found->second.lock();
    referred_.erase(found);
    referred_count_.store(referred_.size(), std::memory_order_relaxed);
  }
  if (kept != nullptr) kept->turn_into_copy();
}

void KeptStorages::forget(const c10::StorageImpl* storage) {
  const std::lock_guard lock(mutex_);
  const auto found = referred_.find(storage);
  // A later one may have taken the entry meanwhile.
  if (found == referred_.end() || !found->second.expired()) return;
  referred_.erase(found);
  referred_count_.store(referred_.size(), std::memory_order_relaxed);
}

Bytes KeptStorages::bytes_held() const {
  std::vector<std::shared_ptr<KeptStorage>> all;  // Released after the lock is.
  std::uint64_t bytes = copied_bytes_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (const auto& [storage, weak] : referred_) {
    // Alive: it goes after its entry does.
    if (c10::raw::intrusive_ptr::use_count(const_cast<c10::StorageImpl*>(storage)) != 1) continue;
    auto kept = weak.lock();
    if (kept == nullptr) continue;
    bytes += kept->size();
    all.push_back(std::move(kept));
  }
  return Bytes(bytes);
}

}  // namespace spillway::recompute
