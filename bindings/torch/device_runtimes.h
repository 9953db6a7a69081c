#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Whether what the calling thread gives the device now becomes a graph, to run again unseen.
using IsCapturing = bool (*)(c10::DeviceIndex device);

struct DeviceRuntime {
  std::atomic<runtime::Runtime*> runtime{nullptr};
  IsCapturing is_capturing = nullptr;
};

/// The runtimes of devices beside the host, in the one place where operators are seen. The library
/// that serves tensors there adds them, and they stay as long as the process. Any thread, no lock.
class DeviceRuntimes {
 public:
  static void add(c10::DeviceIndex device, runtime::Runtime& runtime, IsCapturing is_capturing) {
    DeviceRuntime& entry = entries_.at(static_cast<std::size_t>(device));
    entry.is_capturing = is_capturing;
    entry.runtime.store(&runtime, std::memory_order_release);
    are_some_.store(true, std::memory_order_relaxed);
  }

  /// Null: tensors there are LibTorch's own.
  static runtime::Runtime* of(c10::Device device) noexcept {
    const auto index = static_cast<std::size_t>(device.index());
    if (!device.is_cuda() || index >= entries_.size()) return nullptr;
    return entries_[index].runtime.load(std::memory_order_acquire);
  }

  static bool is_capturing(c10::DeviceIndex device) {
    return entries_.at(static_cast<std::size_t>(device)).is_capturing(device);
  }

  template <class Action>
  static void for_each(const Action& action) {
    if (!are_some_.load(std::memory_order_relaxed)) return;
    for (DeviceRuntime& entry : entries_)
      if (auto* const runtime = entry.runtime.load(std::memory_order_acquire)) action(*runtime);
  }

 private:
  inline static std::array<DeviceRuntime, runtime::Runtime::kMostRuntimes - 1> entries_;
  inline static std::atomic<bool> are_some_{false};
};

}  // namespace spillway::torch_binding
