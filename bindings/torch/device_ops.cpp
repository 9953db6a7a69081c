#include "device_ops.h"

#include <ATen/core/Tensor.h>

#include "spillway/recompute/sparse_parts.h"

namespace spillway::torch_binding {

void DeviceOps::note_results(c10::ArrayRef<c10::IValue> results) {
  if (count_ == 0) return;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) note_result(result.toTensor());
    if (result.isList()) note_results(result.toListRef());
  }
}

void DeviceOps::note_result(const at::Tensor& result) {
  if (!result.defined()) return;
  const auto* const impl = result.unsafeGetTensorImpl();
  if (!impl->has_storage()) {
    recompute::for_each_part(result, [this](const at::Tensor& part) { note_result(part); });
    return;
  }
  const c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  for (DeviceOp& op : used()) {
    if (op.device != storage.device()) continue;
    const runtime::RangeUse use = op.runtime->find(storage.data());
    if (use.storage.is_some()) op.results.push_back(use.storage);
  }
}

}  // namespace spillway::torch_binding
