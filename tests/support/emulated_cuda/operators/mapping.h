#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "random.h"

namespace spillway::emulated {

/// The arguments of a call by the names of the schema, as tensors of the CPU.
class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& values)
      : schema_(schema), values_(values) {}

  const c10::IValue& value(std::string_view name) const;
  at::Tensor tensor(std::string_view name) const { return value(name).toTensor(); }
  /// An undefined tensor counts as none.
  std::optional<at::Tensor> optional_tensor(std::string_view name) const;
  std::vector<at::Tensor> tensors(std::string_view name) const {
    return value(name).toTensorVector();
  }
  std::int64_t integer(std::string_view name) const { return value(name).toInt(); }
  std::vector<std::int64_t> integers(std::string_view name) const {
    return value(name).toIntVector();
  }
  bool flag(std::string_view name) const { return value(name).toBool(); }
  bool flag(std::string_view name, std::size_t index) const;
  double number(std::string_view name) const { return value(name).toDouble(); }
  std::optional<double> optional_number(std::string_view name) const;

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& values_;
};

/// Computes on the CPU what an operator of CUDA gives for which the CPU has no kernel, or one that
/// rounds otherwise. Returns its results in the order of the schema. Runs on any thread, below
/// autograd.
using Mapping = torch::jit::Stack (*)(const Arguments&, const Draws&);

/// Null: the operator of that name (as in aten::add.Tensor) has none.
Mapping mapping_of(std::string_view name);

}  // namespace spillway::emulated
