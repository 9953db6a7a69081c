#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// Storages of a device whose uses nobody announces, held in its memory until they are freed: what
/// kernels allocate for themselves, and what an operator has made and neither freed nor handed out,
/// as workspaces are. Any thread.
class HeldStorages {
 public:
  explicit HeldStorages(swap::SwapEngine& engine) : engine_(engine) {}

  /// One that is there, because it was just made or somebody else holds it.
  void hold(StorageId storage) { add(storage, /*until_used=*/false); }

  /// The same until an operator uses it, which shows that it is a tensor's: loaders and samplers of
  /// shards make storages first, and tensors of them later.
  void hold_until_used(StorageId storage) { add(storage, /*until_used=*/true); }

  /// An operator holds these now, beside what stays.
  void let_go_of_used(std::span<const swap::RangeUse> uses) {
    if (until_used_.load(std::memory_order_relaxed) == 0) return;
    for (const swap::RangeUse& use : uses) {
      std::unique_ptr<swap::PinSet> set;
      {
        const std::lock_guard lock(mutex_);
        const auto found = held_.find(use.storage);
        if (found != held_.end() && found->second.until_used) set = remove_locked(found);
      }
      if (set != nullptr) engine_.unpin(*set);
    }
    const std::lock_guard lock(mutex_);
    most_pages_ = std::max(most_pages_.load(), pages_);
  }

  /// What holds it, or null. To be kept until the storage is released: let go earlier, it might be
  /// moved while the device still uses it.
  std::unique_ptr<swap::PinSet> take(StorageId storage) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(storage);
    return found == held_.end() ? nullptr : remove_locked(found);
  }

  /// That are held now beside an operator, and that ever were at once.
  std::uint64_t pages() const {
    const std::lock_guard lock(mutex_);
    return pages_;
  }
  std::uint64_t most_pages() const { return most_pages_.load(std::memory_order_relaxed); }

 private:
  struct Held {
    std::unique_ptr<swap::PinSet> set;
    std::uint64_t pages;
    bool until_used;
  };
  using All = std::unordered_map<StorageId, Held>;

  void add(StorageId storage, bool until_used) {
    if (!until_used && keep_for_good(storage)) return;
    auto set = std::make_unique<swap::PinSet>(swap::Hold::kUntilFreed);
    swap::RangeUse whole = engine_.find(engine_.address_of(storage));
    whole.writes = true;  // So it is: a copy of its bytes that has begun has to end first.
    engine_.pin(*set, {&whole, 1});
    const std::lock_guard lock(mutex_);
    if (!held_.emplace(storage, Held{std::move(set), whole.pages, until_used}).second) return;
    pages_ += whole.pages;
    if (until_used)
      until_used_.fetch_add(1);
    else
      most_pages_ = std::max(most_pages_.load(), pages_);
  }

  /// Whether it was held already.
  bool keep_for_good(StorageId storage) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(storage);
    if (found == held_.end()) return false;
    if (std::exchange(found->second.until_used, false)) until_used_.fetch_sub(1);
    return true;
  }

  std::unique_ptr<swap::PinSet> remove_locked(All::iterator at) {
    if (at->second.until_used) until_used_.fetch_sub(1);
    pages_ -= at->second.pages;
    std::unique_ptr<swap::PinSet> set = std::move(at->second.set);
    held_.erase(at);
    return set;
  }

  swap::SwapEngine& engine_;
  mutable std::mutex mutex_;
  All held_;
  std::atomic<std::size_t> until_used_{0};  ///< So many of them.
  std::uint64_t pages_ = 0;
  std::atomic<std::uint64_t> most_pages_{0};
};

}  // namespace spillway::runtime
