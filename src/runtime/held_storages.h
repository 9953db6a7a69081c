#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

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
    const swap::RangeUse whole = engine_.find(engine_.address_of(storage));
    engine_.pin(*set, {&whole, 1});
    const std::lock_guard lock(mutex_);
    held_.emplace(storage, std::move(set));
  }

  /// Whether it was held.
  bool let_go(StorageId storage) {
    const std::lock_guard lock(mutex_);
    return held_.erase(storage) > 0;
  }

 private:
  swap::SwapEngine& engine_;
  std::mutex mutex_;
  std::unordered_map<StorageId, std::unique_ptr<swap::PinSet>> held_;
};

}  // namespace spillway::runtime
