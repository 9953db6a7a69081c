#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "spillway/swap/storage_range.h"

namespace spillway::swap {

class SwapEngine;

/// How the host is to use pages of a device's storage.
struct HostUse {
  RangeUse use;
  bool fills = false;  ///< Writes each byte of these pages, and reads none.
};

/// Pages that the host works on in place of their device, where they lie while they are out. Given
/// back by `HostWork::let_go_on_host`, or when it dies. One thread.
class HostHold {
 public:
  HostHold() = default;
  HostHold(const HostHold&) = delete;
  HostHold& operator=(const HostHold&) = delete;
  ~HostHold();

  /// Where the pages of that use lie, one after the other, each in one piece of its own.
  std::span<std::byte* const> pages(std::size_t use) const { return memory_[use]; }

 private:
  friend class SwapEngine;
  SwapEngine* engine_ = nullptr;
  std::vector<HostUse> uses_;
  std::vector<std::vector<std::byte*>> memory_;  ///< By use.
};

/// Storages of a device as memory that the host computes in.
class HostWork {
 public:
  virtual ~HostWork() = default;

  /// Sees to it that these pages are out and in the host memory of the store, from disks too, and
  /// holds them there: whoever needs one on the device waits until the hold ends, and then gets the
  /// bytes that the host has left. Of each storage one use at most. Waits for what the device is
  /// given until then, and for transfers. False, and nothing is held: the store has no host memory,
  /// or too little; somebody holds a page on the device until it is freed; or nothing has moved for
  /// the patience of the engine. Throws UnreadableError and RecomputeError as `pin`.
  virtual bool hold_on_host(HostHold& hold, std::span<const HostUse> uses) = 0;
  virtual void let_go_on_host(HostHold& hold) = 0;
};

}  // namespace spillway::swap
