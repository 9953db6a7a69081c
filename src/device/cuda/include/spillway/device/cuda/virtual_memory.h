#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/strong_id.h"
#include "spillway/device/device.h"

namespace spillway::device {

class CudaContext;

/// Physical memory of a GPU in chunks, and addresses that they are laid beneath. Nothing here waits
/// for work of the device, nor asks whether there is some: what it still uses must not be unmapped.
/// Addresses and sizes are multiples of the granularity. On a device that is lost (see
/// `Queue::record`) mapping does nothing, since nobody can use its memory. Any thread.
class CudaVirtualMemory {
 public:
  /// A piece of physical memory.
  using Chunk = StrongId<struct CudaChunkTag, std::uint64_t>;

  /// Throws Error for a device that is not CUDA's; UnsupportedError, with the way to mend it, for
  /// one that has no virtual memory.
  explicit CudaVirtualMemory(const Device& device);
  ~CudaVirtualMemory();

  DeviceId device() const;
  Bytes granularity() const { return granularity_; }

  /// Addresses with nothing beneath them. `alignment`: a power of two. Throws UnsupportedError
  /// where the driver has none of that size.
  std::byte* reserve(Bytes size, Bytes alignment);
  /// Gives addresses back, beneath which nothing lies.
  void give_back(std::byte* address, Bytes size) noexcept;

  /// Takes memory of the device. Throws Error with what is free.
  Chunk make_chunk(Bytes size);
  /// Gives its memory back, once no addresses lie above it.
  void drop_chunk(Chunk chunk) noexcept;

  /// Lays a whole chunk beneath `address`, where the device may then read and write it. It may lie
  /// beneath several addresses; what work writes at one of them is seen at the others by work that
  /// starts after it has ended. Throws Error where the driver refuses.
  void map(std::byte* address, Chunk chunk, Bytes size);
  void unmap(std::byte* address, Bytes size);

  /// Lets another device, which has to be able to, read and write what is mapped from now on.
  void admit(DeviceId peer);
  /// Gives those that were admitted since what lies beneath `address`. Throws Error where the
  /// driver refuses.
  void renew_access(std::byte* address, Bytes size);

 private:
  std::vector<DeviceId> admitted() const;

  const std::shared_ptr<CudaContext> context_;
  const bool serves_others_;  ///< Chunks can be made for drives and network adapters, too.
  const Bytes granularity_;
  mutable std::mutex mutex_;
  std::vector<DeviceId> admitted_;  ///< The device itself first.
};

}  // namespace spillway::device
