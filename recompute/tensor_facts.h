#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>

#include "spillway/recompute/sparse_parts.h"

namespace spillway::recompute {

/// Why a tensor is more than a part of a storage of `device` with sizes, strides and a type, as the
/// end of a sentence; nullptr when it is not.
const char* objection_to(const c10::TensorImpl& tensor, c10::Device device);

/// Bytes of a storage, counted from its first.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool empty() const { return begin >= end; }
  void include(ByteRange other);
};

/// What a tensor without objection shows of its storage.
ByteRange shown_range(const c10::TensorImpl& tensor);

/// First byte of a tensor's storage. Makes no copy of what is shared until it is written.
const std::byte* storage_address(const c10::TensorImpl& tensor);

/// Whether the memory is that of an allocator with this deleter, as a whole: nobody but LibTorch's
/// operators knows it then, and its end comes by there.
bool is_allocated(const c10::StorageImpl& storage, c10::DeleterFnPtr deleter);

/// Calls `visit(const at::Tensor&)` for each defined tensor in a value, also in lists.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

/// Calls `visit(const c10::StorageImpl&)` for each storage behind a tensor.
template <typename Visit>
void for_each_storage(const at::Tensor& tensor, const Visit& visit) {
  const auto visit_one = [&](const at::Tensor& dense) {
    visit(*dense.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  };
  if (tensor.unsafeGetTensorImpl()->has_storage())
    visit_one(tensor);
  else
    for_each_part(tensor, visit_one);
}

}  // namespace spillway::recompute
