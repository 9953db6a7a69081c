#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "device_bytes.h"
#include "spillway/device/device_span.h"
#include "spillway/runtime/runtime.h"
#include "spillway/swap/swap_errors.h"

namespace spillway::split {

/// Memory of a message, beside the budget.
class StagedBytes {
 public:
  StagedBytes() = default;
  /// Throws std::bad_alloc.
  explicit StagedBytes(Bytes size)
      : memory_(static_cast<std::byte*>(std::malloc(size.count()))), size_(size) {
    if (memory_ == nullptr && size > Bytes()) throw std::bad_alloc();
  }

  device::DeviceSpan span() const { return device::host_span(memory_.get(), size_); }

  /// Copies from or to a part of a storage, which may be paged, or lie on a GPU. Not inside of an
  /// operator.
  void fill_from(runtime::Runtime& runtime, const DeviceBytes& devices, const c10::Storage& storage,
                 std::size_t begin = 0) {
    if (storage.device().is_cpu())
      return fill_from(runtime, static_cast<const std::byte*>(storage.data()) + begin);
    devices.copy_to_host(memory_.get(), storage, begin, size_.count());
  }
  void copy_to(runtime::Runtime& runtime, const DeviceBytes& devices, c10::Storage& storage,
               std::size_t begin = 0) const {
    if (storage.device().is_cpu())
      return copy_to(runtime, static_cast<std::byte*>(storage.mutable_data()) + begin);
    devices.copy_from_host(storage, begin, memory_.get(), size_.count());
  }
  /// The same of memory of the program.
  void fill_from(runtime::Runtime& runtime, const void* memory) {
    const BroughtIn pages(runtime, memory, size_, false);
    std::memcpy(memory_.get(), memory, size_.count());
  }
  void copy_to(runtime::Runtime& runtime, void* memory) const {
    const BroughtIn pages(runtime, memory, size_, true);
    std::memcpy(memory, memory_.get(), size_.count());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  /// At once, where there is room; else they come when they are touched.
  class BroughtIn {
   public:
    BroughtIn(runtime::Runtime& runtime, const void* memory, Bytes size, bool writes) {
      runtime::RangeUse use = runtime.find(memory, size);
      if (!use.storage.is_some()) return;
      use.writes = writes;
      try {
        if (writes) runtime.before_write(use);
        runtime.engine().pin(pins_, {&use, 1});
      } catch (const swap::NoRoomError&) {
      }
    }

   private:
    swap::PinSet pins_;
  };

  std::unique_ptr<std::byte, Free> memory_;
  Bytes size_;
};

}  // namespace spillway::split
