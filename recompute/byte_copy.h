#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>

namespace spillway::recompute {

/// Bytes of its own that lie as their original did with respect to a cache line, on a device to a
/// block of its allocator: kernels may sum in another order where the alignment differs.
class ByteCopy {
 public:
  /// On a device it is made in the current stream of the thread, of the bytes that are there when
  /// the stream comes to it; nobody waits for that. Throws what its allocator throws.
  ByteCopy(const void* original, std::size_t size, c10::Device device);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  c10::DataPtr device_memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Bytes of a device as the host reads them, after the work of the current stream so far; the host
/// waits for that. Bytes of the host are read where they are.
class BytesOnHost {
 public:
  BytesOnHost(const std::byte* original, std::size_t size, c10::Device device);

  const std::byte* data() const { return data_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  const std::byte* data_;
};

/// A storage over memory that it does not own.
c10::Storage borrowed_storage(void* address, std::size_t bytes, c10::Device device);

}  // namespace spillway::recompute
