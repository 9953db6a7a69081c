#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <exception>
#include <string>
#include <string_view>

#include "spillway/pipeline/ownership/control_hash.h"
#include "storage_table.h"

namespace spillway::split {

/// That of a tensor that has one.
inline c10::StorageImpl& storage_of(const at::TensorBase& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

/// Calls `visit(tensor, position)` for each tensor among the arguments, of any kind; those in
/// lists, too.
template <typename Visit>
void for_each_of_any_kind(c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor(), i);
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor(), i);
    }
  }
}

/// The same for those that have a storage with bytes.
template <typename Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  for_each_of_any_kind(arguments, [&](const at::Tensor& tensor, std::size_t position) {
    if (tensor.unsafeGetTensorImpl()->has_storage() && storage_of(tensor).data() != nullptr)
      visit(tensor, position);
  });
}

/// Name and overload of an operator, for as long as the process lives.
std::string_view kept_name_of(const c10::OperatorHandle& op);

/// Why an operator has failed on one rank, and what to do, where the error does not say so.
std::string failure_text(const std::exception& error);

/// Adds a call to the hash of what the program does: tensors by number, type, sizes and strides,
/// other arguments by value.
void add_arguments(pipeline::ControlHash& hash, StorageTable& storages,
                   c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::split
