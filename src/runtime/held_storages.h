#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// Storages of a device whose uses nobody announces, held in its memory until they are freed: what
/// is allocated outside of operators, and what one has made and neither freed nor handed out, as
/// workspaces are. Any thread.
class HeldStorages {
 public:
  explicit HeldStorages(swap::SwapEngine& engine) : engine_(engine) {}

  /// One that is there, because it was just made or somebody else holds it.
  void hold(StorageId storage) {
    auto set = std::make_unique<swap::PinSet>(swap::Hold::kUntilFreed);
    swap::RangeUse whole = engine_.find(engine_.address_of(storage));
    whole.writes = true;  // So it is: a copy of its bytes that has begun has to end first.
    engine_.pin(*set, {&whole, 1});
    const std::lock_guard lock(mutex_);
    if (!held_.emplace(storage, Held{std::move(set), whole.pages}).second) return;
    pages_ += whole.pages;
    most_pages_ = std::max(most_pages_.load(), pages_);
  }

  /// What holds it, or null. To be kept until the storage is released: let go earlier, it might be
  /// moved while the device still uses it.
  std::unique_ptr<swap::PinSet> take(StorageId storage) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(storage);
    if (found == held_.end()) return nullptr;
    pages_ -= found->second.pages;
    std::unique_ptr<swap::PinSet> set = std::move(found->second.set);
    held_.erase(found);
    return set;
  }

  /// That were ever held at once.
  std::uint64_t most_pages() const { return most_pages_.load(std::memory_order_relaxed); }

 private:
  struct Held {
    std::unique_ptr<swap::PinSet> set;
    std::uint64_t pages;
  };

  swap::SwapEngine& engine_;
  std::mutex mutex_;
  std::unordered_map<StorageId, Held> held_;
  std::uint64_t pages_ = 0;
  std::atomic<std::uint64_t> most_pages_{0};
};

}  // namespace spillway::runtime
