#include "device_bytes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>

#include "spillway/phantoms/plain_tensor.h"
#include "spillway/split/device_turn.h"

namespace spillway::split {
namespace {

at::Tensor bytes_of(const c10::Storage& storage, std::size_t begin, std::size_t size) {
  return phantoms::PlainTensor::bytes(begin, size).over(storage);
}

at::Tensor bytes_at(void* host, std::size_t size) {
  return bytes_of(c10::Storage(c10::Storage::use_byte_size_t(), size,
                               c10::DataPtr(host, c10::Device(c10::DeviceType::CPU))),
                  0, size);
}

}  // namespace

c10::Storage made_storage(std::size_t bytes, c10::Device device) {
  c10::Allocator* const allocator = c10::GetAllocator(device.type());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            bytes, allocator->allocate(bytes),
                                                            allocator, /*resizable=*/true));
}

DeviceBytes::DeviceBytes(c10::DispatchKeySet hidden, RunBeside beside)
    : keys_above_(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                  c10::autocast_dispatch_keyset | hidden),
      beside_(beside) {}

void DeviceBytes::copy(const at::Tensor& to, const at::Tensor& from) const {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  const std::array<c10::IValue, 2> tensors{to, from};
  beside_(operation, tensors, tensors, [&] {
    const auto below = below_interception();
    to.copy_(from);
  });
}

void DeviceBytes::copy_to_host(void* host, const c10::Storage& storage, std::size_t begin,
                               std::size_t size) const {
  if (size == 0) return;
  copy(bytes_at(host, size), bytes_of(storage, begin, size));
}

void DeviceBytes::copy_from_host(const c10::Storage& storage, std::size_t begin, const void* host,
                                 std::size_t size) const {
  if (size == 0) return;
  copy(bytes_of(storage, begin, size), bytes_at(const_cast<void*>(host), size));
}

void DeviceBytes::copy_part(const c10::Storage& to, std::size_t to_begin, const c10::Storage& from,
                            std::size_t from_begin, std::size_t size) const {
  if (size == 0) return;
  copy(bytes_of(to, to_begin, size), bytes_of(from, from_begin, size));
}

c10::Storage DeviceBytes::copy_of(const c10::Storage& storage, std::size_t begin,
                                  std::size_t size) const {
  constexpr std::size_t kStep = std::size_t{32} << 20;  // Both need not have room in whole.
  const DeviceTurn turn;  // The new one stays in memory until it is used.
  c10::Storage made = made_storage(size, storage.device());
  for (std::size_t at = 0; at < size; at += kStep)
    copy_part(made, at, storage, begin + at, std::min(kStep, size - at));
  return made;
}

void DeviceBytes::wait_for(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

std::size_t DeviceBytes::peak_of(c10::Device device) {
  auto* const counts = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (counts == nullptr) return 0;
  constexpr auto kOfAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::size_t>(
      counts->getDeviceStats(device.index()).allocated_bytes[kOfAll].peak);
}

}  // namespace spillway::split
