#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spillway::phantoms {

/// Keys of a tensor over memory of that device, which is the host or a GPU.
inline c10::DispatchKeySet keys_on(c10::DeviceType device) {
  return c10::DispatchKeySet(device == c10::DeviceType::CUDA ? c10::DispatchKey::CUDA
                                                             : c10::DispatchKey::CPU);
}

/// Whether a tensor is no more than a part of a storage with sizes, strides and a type.
inline bool is_plain(const c10::TensorImpl& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kPlain({DispatchKey::CPU, DispatchKey::AutogradCPU,
                                        DispatchKey::ADInplaceOrView, DispatchKey::AutocastCPU,
                                        DispatchKey::AutocastCUDA, DispatchKey::Conjugate,
                                        DispatchKey::Negative});
  // Sparse, quantized, nested and the like have keys of their own.
  return (tensor.key_set() - kPlain).highestFunctionalityKey() == DispatchKey::Undefined &&
         (tensor.is_cpu() || tensor.is_cuda()) && !tensor.has_symbolic_sizes_strides() &&
         tensor.has_storage();
}

/// What a kernel can see of a plain tensor beside sizes, strides and type.
struct TensorFlags {
  bool conjugated = false;
  bool negated = false;
  bool wrapped_number = false;
  bool requires_grad = false;  ///< Kernels of convolutions choose by it.

  static TensorFlags of(const c10::TensorImpl& tensor) {
    return {tensor.is_conj(), tensor.is_neg(), tensor.is_wrapped_number(), tensor.requires_grad()};
  }
  void give_to(c10::TensorImpl& tensor) const {
    if (conjugated) tensor._set_conj(true);
    if (negated) tensor._set_neg(true);
    if (wrapped_number) tensor.set_wrapped_number(true);
    if (requires_grad) tensor.set_requires_grad(true);
  }
  unsigned bits() const {
    return unsigned{conjugated} + 2 * unsigned{negated} + 4 * unsigned{wrapped_number} +
           8 * unsigned{requires_grad};
  }
};

/// A plain tensor without its storage.
struct PlainTensor {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  TensorFlags flags;
  std::int64_t offset = 0;  ///< In elements.
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;

  static PlainTensor of(const c10::TensorImpl& tensor) {
    PlainTensor plain{c10::typeMetaToScalarType(tensor.dtype()),
                      TensorFlags::of(tensor),
                      tensor.storage_offset(),
                      {},
                      {}};
    plain.sizes = tensor.sizes();
    plain.strides = tensor.strides();
    return plain;
  }

  /// Bytes of a storage, as numbers.
  static PlainTensor bytes(std::size_t begin, std::size_t size) {
    PlainTensor plain;
    plain.dtype = c10::ScalarType::Byte;
    plain.offset = static_cast<std::int64_t>(begin);
    plain.sizes = {static_cast<std::int64_t>(size)};
    plain.strides = {1};
    return plain;
  }

  /// Below autograd.
  at::Tensor over(c10::Storage storage) const {
    const c10::DispatchKeySet keys = keys_on(storage.device_type());
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys,
                                                           c10::scalarTypeToTypeMeta(dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    flags.give_to(*tensor.unsafeGetTensorImpl());
    return tensor;
  }
};

}  // namespace spillway::phantoms
