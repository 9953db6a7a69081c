#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>

#include "spillway/split/split_program.h"

namespace spillway::split {

/// A storage of LibTorch's allocator for that device.
c10::Storage made_storage(std::size_t bytes, c10::Device device);

/// Bytes of storages of a GPU, for who has memory of the host alone. All on the default stream, as
/// everything that a split program computes there; what it was given before has run then. Any
/// thread.
class DeviceBytes {
 public:
  /// `hidden`: keys that do not see the copies. `beside`: runs them where the GPU has a runtime.
  DeviceBytes(c10::DispatchKeySet hidden, RunBeside beside);

  /// As long as it lives, operators of this thread are nobody's but the device's.
  [[nodiscard]] c10::impl::ExcludeDispatchKeyGuard below_interception() const {
    return c10::impl::ExcludeDispatchKeyGuard(keys_above_);
  }

  /// `size` bytes of the storage, from `begin` on. It has them, or the host, when this returns.
  void copy_to_host(void* host, const c10::Storage& storage, std::size_t begin,
                    std::size_t size) const;
  void copy_from_host(const c10::Storage& storage, std::size_t begin, const void* host,
                      std::size_t size) const;
  /// Between storages of one device, `size` bytes.
  void copy_part(const c10::Storage& to, std::size_t to_begin, const c10::Storage& from,
                 std::size_t from_begin, std::size_t size) const;
  /// A part of a storage in a new one, on the same device.
  c10::Storage copy_of(const c10::Storage& storage, std::size_t begin, std::size_t size) const;
  c10::Storage copy_of(const c10::Storage& storage) const {
    return copy_of(storage, 0, storage.nbytes());
  }
  /// Until what operators have given the GPU so far has run.
  static void wait_for(c10::Device device);
  /// The most that tensors have taken there at once; 0 where LibTorch does not count.
  static std::size_t peak_of(c10::Device device);

 private:
  void copy(const at::Tensor& to, const at::Tensor& from) const;

  const c10::DispatchKeySet keys_above_;
  const RunBeside beside_;
};

}  // namespace spillway::split
