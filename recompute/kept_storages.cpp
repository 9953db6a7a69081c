#include "kept_storages.h"

#include <exception>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::recompute {

KeptStorage::KeptStorage(std::shared_ptr<KeptStorages> owner, ByteCopy copy)
    : owner_(std::move(owner)), size_(copy.size()), address_(nullptr), copy_(std::move(copy)) {
  owner_->count_copy(size_);
}

KeptStorage::KeptStorage(std::shared_ptr<KeptStorages> owner, const void* block, std::size_t size)
    : owner_(std::move(owner)), size_(size), address_(static_cast<const std::byte*>(block)) {}

KeptStorage::~KeptStorage() {
  if (copy_) owner_->copied_bytes_.fetch_sub(size_, std::memory_order_relaxed);
  if (address_ != nullptr) owner_->forget(address_);
  if (!is_owned_) return;
  // Last, as the address may come back at once.
  owner_->owned_bytes_.fetch_sub(size_, std::memory_order_relaxed);
  owner_->give_back_(const_cast<std::byte*>(address_));
}

bool KeptStorage::is_referred() const {
  const std::shared_lock lock(mutex_);
  return !copy_.has_value();
}

/// The trainer goes on in any case: what cannot be copied is missed when it is asked for.
void KeptStorage::turn_into_copy() noexcept {
  if (!is_referred()) return;
  // Without the lock: memory of a device may have to wait for room, which a replay holds that waits
  // for the lock.
  std::optional<ByteCopy> made;
  try {
    made.emplace(address_, size_, owner_->device_);
  } catch (const std::exception&) {
  }
  const std::unique_lock lock(mutex_);
  if (copy_ || is_lost_) return;
  is_lost_ = !made.has_value();
  copy_ = std::move(made);
  if (copy_) owner_->count_copy(size_);
}

/// False: it needs the block no more. Replays that read the bytes go on: these stay where they are.
bool KeptStorage::take_over() noexcept {
  const std::shared_lock lock(mutex_);
  if (copy_ || is_lost_) return false;
  is_owned_ = true;
  owner_->owned_bytes_.fetch_add(size_, std::memory_order_relaxed);
  return true;
}

const std::byte* KeptStorage::bytes_locked() const {
  if (is_lost_)
    throw Error("a tensor of {} has changed since an operator has read it, and there was no memory "
                "for a copy of it: leave the process more memory, or run with --recompute off",
                Bytes(size_));
  return copy_ ? copy_->data() : address_;
}

KeptStorage::Lease::Lease(const KeptStorage& kept)
    : lock_(kept.mutex_), data_(kept.bytes_locked()) {}

std::shared_ptr<KeptStorage> KeptStorages::copy(const void* data, std::size_t size,
                                                c10::Device device) {
  return std::make_shared<KeptStorage>(shared_from_this(), ByteCopy(data, size, device));
}

std::shared_ptr<KeptStorage> KeptStorages::refer(const void* block, std::size_t size) {
  const auto* const begin = static_cast<const std::byte*>(block);
  std::vector<std::shared_ptr<KeptStorage>> others;
  std::shared_ptr<KeptStorage> kept;
  {
    const std::lock_guard lock(mutex_);
    // Nothing has been written there since, whichever storage has the memory now.
    const auto found = referred_.find(begin);
    if (found != referred_.end() && found->second.size >= size) kept = found->second.kept.lock();
    if (kept != nullptr) return kept;
    others = take_locked(begin, begin + size);
    kept = std::make_shared<KeptStorage>(shared_from_this(), block, size);
    referred_.insert_or_assign(begin, Referred{size, kept});
    referred_count_.store(referred_.size(), std::memory_order_relaxed);
  }
  for (const auto& other : others) other->turn_into_copy();
  return kept;
}

/// Takes those out that lie in a part of memory.
std::vector<std::shared_ptr<KeptStorage>> KeptStorages::take_locked(const std::byte* begin,
                                                                    const std::byte* end) {
  std::vector<std::shared_ptr<KeptStorage>> taken;
  for (auto next = referred_.lower_bound(end); next != referred_.begin();) {
    --next;
    if (next->first + next->second.size <= begin) break;
    if (auto kept = next->second.kept.lock()) taken.push_back(std::move(kept));
    next = referred_.erase(next);
  }
  referred_count_.store(referred_.size(), std::memory_order_relaxed);
  return taken;
}

void KeptStorages::copy_before_write(const std::byte* begin, std::size_t size) {
  std::vector<std::shared_ptr<KeptStorage>> written;  // Released after the lock is.
  {
    const std::lock_guard lock(mutex_);
    written = take_locked(begin, begin + size);
  }
  for (const auto& kept : written) kept->turn_into_copy();
}

bool KeptStorages::keep_freed(const std::byte* memory) noexcept {
  std::shared_ptr<KeptStorage> kept;  // Released after the lock is: that may give the block back.
  {
    const std::lock_guard lock(mutex_);
    const auto found = referred_.find(memory);
    if (found == referred_.end()) return false;
    kept = found->second.kept.lock();
    if (give_back_ == nullptr) {
      referred_.erase(found);
      referred_count_.store(referred_.size(), std::memory_order_relaxed);
    }
  }
  if (kept == nullptr) return false;
  if (give_back_ != nullptr) return kept->take_over();
  kept->turn_into_copy();
  return false;
}

void KeptStorages::forget(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto found = referred_.find(address);
  // A later one may have taken the entry meanwhile.
  if (found == referred_.end() || !found->second.kept.expired()) return;
  referred_.erase(found);
  referred_count_.store(referred_.size(), std::memory_order_relaxed);
}

void KeptStorages::count_copy(std::size_t size) {
  const std::uint64_t now = copied_bytes_.fetch_add(size, std::memory_order_relaxed) + size;
  std::uint64_t most = most_copied_.load(std::memory_order_relaxed);
  while (most < now && !most_copied_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

Bytes KeptStorages::bytes_held() const {
  return Bytes(copied_bytes_.load(std::memory_order_relaxed) +
               owned_bytes_.load(std::memory_order_relaxed));
}

}  // namespace spillway::recompute
