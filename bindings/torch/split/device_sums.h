#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "device_bytes.h"
#include "spillway/allreduce/sum.h"
#include "spillway/allreduce/sum_memory.h"

namespace spillway::split {

/// Sums of what lies on a GPU, by LibTorch's operators on the default stream, with the bits of
/// those of the host. What it has begun counts as done: whatever uses it comes behind it there, and
/// so do the messages of DeviceMessages.
class DeviceSums final : public allreduce::SumMemory {
 public:
  DeviceSums(c10::Device gpu, const DeviceBytes& devices) : gpu_(gpu), devices_(devices) {}

  /// It has pages, which move, and lies among the parts: copied by operators of the GPU's runtime.
  void add_paged(const c10::Storage& storage) { paged_.push_back(storage); }

  device::DeviceId device() const override;
  bool carries_parts() const override { return paged_.empty(); }
  std::shared_ptr<std::byte> allocate(Bytes size) override;
  device::Event copy(std::byte* to, const std::byte* from, Bytes size) override;
  device::Event add_up(allreduce::Element element, std::span<const std::byte* const> sources,
                       std::byte* target, Bytes size, double factor) override;

 private:
  std::pair<c10::Storage, std::size_t> storage_at(const std::byte* bytes, Bytes size) const;

  const c10::Device gpu_;
  const DeviceBytes& devices_;
  std::vector<c10::Storage> paged_;
};

}  // namespace spillway::split
