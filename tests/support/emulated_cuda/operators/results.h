#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "cpu_call.h"

namespace spillway::emulated {

/// What one tensor of the results is, told by the arguments.
struct ResultTensor {
  enum class Kind : std::uint8_t { kUndefined, kArgument, kView, kFresh };
  Kind kind = Kind::kUndefined;
  std::size_t twin = 0;  ///< Which argument it is, or is a view of.
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::ScalarType::Undefined;
  bool is_conj = false;
  bool is_neg = false;
};

struct Result {
  bool is_list = false;
  std::vector<ResultTensor> tensors;
  std::optional<c10::IValue> value;  ///< Of a result that is no tensor.
};

/// The results of every call of one kind.
using ResultPlan = std::vector<Result>;

/// After the run on the CPU.
ResultPlan plan_of(const CpuCall& call);

/// Makes the results on the device; fresh ones come from its allocator, on the current stream,
/// without bytes yet.
torch::jit::Stack make_results(const CpuCall& call, const ResultPlan& plan);

/// Memory that fresh results are copied to, in their order.
struct Target {
  void* begin;
  std::size_t bytes;
};
std::vector<Target> targets_of(const torch::jit::Stack& results, const ResultPlan& plan);

/// Copies the results of the CPU in `call`. Ends the process where one is not as planned, or where
/// a target is no mapped memory of the device.
void fill_targets(const CpuCall& call, const ResultPlan& plan, const std::vector<Target>& targets);

}  // namespace spillway::emulated
