#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

class CallRecorder;

/// What is asked of the stream that the calling thread gives work of a device to.
struct StreamFacts {
  /// Whether what it is given now becomes a graph, to run again unseen.
  bool (*is_capturing)(c10::DeviceIndex device) = nullptr;
  /// Why what it is given now cannot run again, as a sentence; null: it can.
  const char* (*objection)(c10::DeviceIndex device) = nullptr;
};

struct DeviceRuntime {
  std::atomic<runtime::Runtime*> runtime{nullptr};
  StreamFacts streams;
  CallRecorder* records = nullptr;  ///< None where nothing is to run again.
};

/// The runtimes of devices beside the host, in the one place where operators are seen. The library
/// that serves tensors there adds them, and they stay as long as the process. Any thread, no lock.
class DeviceRuntimes {
 public:
  /// Numbered from 0 on.
  static constexpr std::size_t kMostGpus = runtime::Runtime::kMostRuntimes - 1;

  static void add(c10::DeviceIndex device, runtime::Runtime& runtime, const StreamFacts& streams,
                  CallRecorder* records) {
    DeviceRuntime& entry = entries_.at(static_cast<std::size_t>(device));
    entry.streams = streams;
    entry.records = records;
    entry.runtime.store(&runtime, std::memory_order_release);
    are_some_.store(true, std::memory_order_relaxed);
  }

  /// Null: tensors there are LibTorch's own.
  static runtime::Runtime* of(c10::Device device) noexcept {
    const auto index = static_cast<std::size_t>(device.index());
    if (!device.is_cuda() || index >= entries_.size()) return nullptr;
    return entries_[index].runtime.load(std::memory_order_acquire);
  }

  static bool are_some() noexcept { return are_some_.load(std::memory_order_relaxed); }

  /// Null where no runtime rules, or nothing is to run again.
  static CallRecorder* records_of(c10::Device device) noexcept {
    if (of(device) == nullptr) return nullptr;
    return entries_[static_cast<std::size_t>(device.index())].records;
  }

  static bool is_capturing(c10::DeviceIndex device) {
    return entries_.at(static_cast<std::size_t>(device)).streams.is_capturing(device);
  }

  template <class Action>
  static void for_each_record(const Action& action) {
    for (const DeviceRuntime& entry : entries_)
      if (entry.runtime.load(std::memory_order_acquire) != nullptr && entry.records != nullptr)
        action(*entry.records);
  }

  template <class Action>
  static void for_each(const Action& action) {
    if (!are_some_.load(std::memory_order_relaxed)) return;
    for (DeviceRuntime& entry : entries_)
      if (auto* const runtime = entry.runtime.load(std::memory_order_acquire)) action(*runtime);
  }

 private:
  inline static std::array<DeviceRuntime, kMostGpus> entries_;
  inline static std::atomic<bool> are_some_{false};
};

}  // namespace spillway::torch_binding
