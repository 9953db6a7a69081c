#include "byte_copy.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace spillway::recompute {
namespace {

constexpr std::uintptr_t kLine = 64;
constexpr std::uintptr_t kDeviceLine = 512;  // Blocks of the caching allocator begin at these.

/// How far behind `start` something begins that is aligned as `original` is.
std::size_t shift(const void* start, const void* original, std::uintptr_t line) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(original) % line;
  return (line + wanted - reinterpret_cast<std::uintptr_t>(start) % line) % line;
}

at::Tensor bytes_at(void* address, std::size_t size, c10::Device device) {
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(borrowed_storage(address, size, device),
                                                        c10::DispatchKeySet(key),
                                                        c10::scalarTypeToTypeMeta(at::kByte));
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(size)});
  return bytes;
}

/// In the current stream of the device, past whoever sees operators.
void copy_in_stream(at::Tensor to, const at::Tensor& from, bool waits) {
  static const auto copy = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("aten::copy_", "")
                               .typed<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>();
  copy.redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA), to, from, !waits);
}

}  // namespace

c10::Storage borrowed_storage(void* address, std::size_t bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, c10::DataPtr(address, device), nullptr,
      /*resizable=*/false));
}

ByteCopy::ByteCopy(const void* original, std::size_t size, c10::Device device) : size_(size) {
  if (device.is_cpu()) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(size + kLine);
    data_ = memory_.get() + shift(memory_.get(), original, kLine);
    if (size > 0) std::memcpy(data_, original, size);
    return;
  }
  if (size == 0) return;
  const c10::DeviceGuard guard(device);
  device_memory_ = c10::GetAllocator(device.type())->allocate(size + kDeviceLine);
  auto* const begin = static_cast<std::byte*>(device_memory_.get());
  data_ = begin + shift(begin, original, kDeviceLine);
  copy_in_stream(bytes_at(data_, size, device), bytes_at(const_cast<void*>(original), size, device),
                 false);
}

BytesOnHost::BytesOnHost(const std::byte* original, std::size_t size, c10::Device device)
    : data_(original) {
  if (device.is_cpu() || size == 0) return;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(size);
  data_ = memory_.get();
  copy_in_stream(bytes_at(memory_.get(), size, c10::kCPU),
                 bytes_at(const_cast<std::byte*>(original), size, device), true);
}

}  // namespace spillway::recompute
