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

/// Calls `visit(tensor, position)` for each tensor among the arguments that has a storage with
/// bytes; those in lists, too.
template <typename Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  const auto one = [&](const at::Tensor& tensor, std::size_t position) {
    if (tensor.defined() && tensor.unsafeGetTensorImpl()->has_storage() &&
        storage_of(tensor).data() != nullptr)
      visit(tensor, position);
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      one(value.toTensor(), i);
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) one(element.toTensor(), i);
    }
  }
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
