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
#include <vector>

#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// Storages of a device whose uses nobody announces, held in its memory until they are freed: what
/// kernels allocate for themselves, and what an operator has made and neither freed nor handed out,
/// as workspaces are. Any thread.
class HeldStorages {
 public:
  using PinSets = std::vector<std::unique_ptr<swap::PinSet>>;

  explicit HeldStorages(swap::SwapEngine& engine) : engine_(engine) {}

  /// Pages that are there, because the storage was just made or somebody else holds them.
  void hold(const swap::RangeUse& part) { add(part, /*until_used=*/false); }

  /// A whole one that is there, until an operator uses it, which shows that it is a tensor's:
  /// loaders and samplers of shards make storages first, and tensors of them later.
  void hold_until_used(StorageId storage) {
    add(engine_.find(engine_.address_of(storage)), /*until_used=*/true);
  }

  /// An operator holds these now, beside what stays.
  void let_go_of_used(std::span<const swap::RangeUse> uses) {
    if (until_used_.load(std::memory_order_relaxed) == 0) return;
    for (const swap::RangeUse& use : uses) {
      PinSets sets;
      {
        const std::lock_guard lock(mutex_);
        const auto found = held_.find(use.storage);
        if (found != held_.end() && found->second.until_used) sets = remove_locked(found);
      }
    }
    const std::lock_guard lock(mutex_);
    most_pages_ = std::max(most_pages_.load(), pages_);
  }

  /// What holds it; empty: nothing. To be kept until the storage is released: let go earlier, it
  /// might be moved while the device still uses it.
  PinSets take(StorageId storage) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(storage);
    return found == held_.end() ? PinSets() : remove_locked(found);
  }

  /// That are held now beside an operator, and that ever were at once.
  std::uint64_t pages() const {
    const std::lock_guard lock(mutex_);
    return pages_;
  }
  std::uint64_t most_pages() const { return most_pages_.load(std::memory_order_relaxed); }

 private:
  struct Held {
    PinSets sets;
    std::vector<bool> pages;  ///< Which of them are held.
    bool until_used = false;
  };
  using All = std::unordered_map<StorageId, Held>;

  void add(const swap::RangeUse& part, bool until_used) {
    const std::vector<swap::RangeUse> missing = missing_of(part, until_used);
    if (missing.empty()) return;
    auto set = std::make_unique<swap::PinSet>(swap::Hold::kUntilFreed);
    engine_.pin(*set, missing);
    const std::lock_guard lock(mutex_);
    Held& held = held_.try_emplace(part.storage).first->second;
    if (held.sets.empty() && until_used) {
      held.until_used = true;
      until_used_.fetch_add(1);
    }
    held.sets.push_back(std::move(set));
    held.pages.resize(part.pages);
    for (const swap::RangeUse& run : missing) {
      const auto first = held.pages.begin() + run.first;
      const auto end = first + run.touched();
      pages_ += static_cast<std::uint64_t>(std::count(first, end, false));
      std::fill(first, end, true);
    }
    if (!until_used) most_pages_ = std::max(most_pages_.load(), pages_);
  }

  /// What of the part is not held yet. What is, stays for good from now on, unless `until_used`.
  std::vector<swap::RangeUse> missing_of(const swap::RangeUse& part, bool until_used) {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(part.storage);
    if (found != held_.end() && !until_used && std::exchange(found->second.until_used, false))
      until_used_.fetch_sub(1);
    std::vector<swap::RangeUse> missing;
    const std::uint32_t end = part.first + part.touched();
    for (std::uint32_t page = part.first; page < end; ++page) {
      if (found != held_.end() && found->second.pages[page]) continue;
      if (!missing.empty() && missing.back().first + missing.back().count == page)
        ++missing.back().count;
      else  // Written: so it may be, and a copy of its bytes that has begun has to end first.
        missing.push_back({part.storage, part.pages, /*writes=*/true, page, 1});
    }
    return missing;
  }

  PinSets remove_locked(All::iterator at) {
    if (at->second.until_used) until_used_.fetch_sub(1);
    pages_ -= static_cast<std::uint64_t>(
        std::count(at->second.pages.begin(), at->second.pages.end(), true));
    PinSets sets = std::move(at->second.sets);
    held_.erase(at);
    return sets;
  }

  swap::SwapEngine& engine_;
  mutable std::mutex mutex_;
  All held_;
  std::atomic<std::size_t> until_used_{0};  ///< So many of them.
  std::uint64_t pages_ = 0;
  std::atomic<std::uint64_t> most_pages_{0};
};

}  // namespace spillway::runtime
