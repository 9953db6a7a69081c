#include "tensor_facts.h"

#include <algorithm>

namespace spillway::recompute {
namespace {

constexpr c10::DispatchKeySet kPlain({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                      c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA,
                                      c10::DispatchKey::ADInplaceOrView,
                                      c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA,
                                      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

}  // namespace

const char* objection_to(const c10::TensorImpl& tensor, c10::Device device) {
  if (tensor.device() != device)
    return device.is_cpu() ? "is not on the CPU" : "lies on another device";
  if (tensor.is_python_dispatch() || tensor.has_symbolic_sizes_strides())
    return "has a type or sizes of its own";
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return "is not strided";
  // Quantized, nested, named, batched and the like.
  if ((tensor.key_set() - kPlain).highestFunctionalityKey() != c10::DispatchKey::Undefined)
    return "is of a special kind";
  return nullptr;
}

void ByteRange::include(ByteRange other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  begin = std::min(begin, other.begin);
  end = std::max(end, other.end);
}

ByteRange shown_range(const c10::TensorImpl& tensor) {
  if (tensor.numel() == 0) return {};
  std::size_t elements = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    elements += static_cast<std::size_t>((tensor.size(d) - 1) * tensor.stride(d));
  const std::size_t begin = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  return {begin, begin + elements * tensor.itemsize()};
}

const std::byte* storage_address(const c10::TensorImpl& tensor) {
  return static_cast<const std::byte*>(tensor.unsafe_storage().unsafeGetStorageImpl()->data());
}

bool is_allocated(const c10::StorageImpl& storage, c10::DeleterFnPtr deleter) {
  const c10::DataPtr& memory = storage.data_ptr();
  if (memory.get() != memory.get_context()) return false;
  return memory.get_deleter() == deleter;
}

}  // namespace spillway::recompute
