#pragma once

#include <ATen/core/ivalue.h>

#include "device_ops.h"
#include "operator_facts.h"
#include "parameter_storages.h"
#include "spillway/runtime/recording/op_uses.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Where the tensors of an operator lie. One per thread, for one operator after the other.
struct FoundUses {
  runtime::OpUses uses;         ///< Of the host.
  runtime::OpUses shared;       ///< Of pages that small storages share.
  DeviceOps devices;            ///< Of devices beside the host.
  bool wrote_leaf = false;      ///< The operator writes what a leaf's storage holds.
  bool needs_gradient = false;  ///< Some tensor does.
};

/// Finds the pages of an operator's tensors. `parameters`: notes leaves that require a gradient;
/// null where the tensors only stand for the program's.
void find_uses(runtime::Runtime& runtime, const OperatorFacts& facts,
               c10::ArrayRef<c10::IValue> arguments, ParameterStorages* parameters,
               FoundUses& found);

}  // namespace spillway::torch_binding
