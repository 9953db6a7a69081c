#include "results.h"

#include <ATen/cuda/EmptyTensor.h>
#include <ATen/ops/as_strided_native.h>

#include <cstring>

#include "ending.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

using Kind = ResultTensor::Kind;

ResultTensor described(const CpuCall& call, const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  ResultTensor result{.kind = Kind::kFresh,
                      .twin = 0,
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec(),
                      .offset = tensor.storage_offset(),
                      .type = tensor.scalar_type(),
                      .is_conj = tensor.is_conj(),
                      .is_neg = tensor.is_neg()};
  const auto& twins = call.twins();
  for (std::size_t i = 0; i < twins.size(); ++i) {
    const bool is_argument = tensor.unsafeGetTensorImpl() == twins[i].alias.unsafeGetTensorImpl();
    const bool is_view = tensor.numel() > 0 && tensor.storage().unsafeGetStorageImpl() ==
                                                   twins[i].alias.storage().unsafeGetStorageImpl();
    if (is_argument || (is_view && result.kind == Kind::kFresh)) {
      result.kind = is_argument ? Kind::kArgument : Kind::kView;
      result.twin = i;
    }
    if (is_argument) break;
  }
  return result;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorVector();
  return {value.toTensor()};
}

at::Tensor made(const CpuCall& call, const ResultTensor& result) {
  switch (result.kind) {
    case Kind::kUndefined: return {};
    case Kind::kArgument: return call.twins()[result.twin].real;
    case Kind::kView:
      return at::native::as_strided_tensorimpl(call.twins()[result.twin].real, result.sizes,
                                               result.strides, result.offset);
    case Kind::kFresh: break;
  }
  at::Tensor tensor(at::detail::empty_strided_cuda(result.sizes, result.strides, result.type,
                                                   c10::Device(at::kCUDA, call.device())));
  if (result.is_conj) tensor._set_conj(true);
  if (result.is_neg) tensor._set_neg(true);
  return tensor;
}

void fill(const CpuCall& call, const at::Tensor& tensor, const ResultTensor& result,
          const Target& target) {
  const char* name = call.facts().name.c_str();
  if (tensor.sizes() != result.sizes || tensor.strides() != result.strides ||
      tensor.scalar_type() != result.type)
    end_process(call.facts().name +
                " gave a result of other sizes, strides or type than at its first call " +
                "with such arguments; its sizes depend on data, which " +
                "operators/operator_facts.cpp must say");
  if (target.bytes == 0) return;
  emu_cuda_check(target.begin, target.bytes, name);
  std::memcpy(target.begin, address(tensor), target.bytes);
}

}  // namespace

ResultPlan plan_of(const CpuCall& call) {
  ResultPlan plan;
  for (const c10::IValue& value : call.values()) {
    Result& result = plan.emplace_back();
    if (!value.isTensor() && !value.isTensorList()) {
      result.value = value;
      continue;
    }
    result.is_list = value.isTensorList();
    for (const at::Tensor& tensor : tensors_of(value))
      result.tensors.push_back(described(call, tensor));
  }
  return plan;
}

torch::jit::Stack make_results(const CpuCall& call, const ResultPlan& plan) {
  torch::jit::Stack results;
  for (const Result& result : plan) {
    if (result.value) {
      results.push_back(*result.value);
      continue;
    }
    c10::List<at::Tensor> list;
    for (const ResultTensor& tensor : result.tensors) list.push_back(made(call, tensor));
    if (result.is_list)
      results.emplace_back(std::move(list));
    else
      results.emplace_back(list.get(0));
  }
  return results;
}

std::vector<Target> targets_of(const torch::jit::Stack& results, const ResultPlan& plan) {
  std::vector<Target> targets;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].value) continue;
    const std::vector<at::Tensor> tensors = tensors_of(results[i]);
    for (std::size_t k = 0; k < tensors.size(); ++k)
      if (plan[i].tensors[k].kind == Kind::kFresh)
        targets.push_back({address(tensors[k]), extent(tensors[k])});
  }
  return targets;
}

void fill_targets(const CpuCall& call, const ResultPlan& plan, const std::vector<Target>& targets) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].value) continue;
    const std::vector<at::Tensor> tensors = tensors_of(call.values()[i]);
    for (std::size_t k = 0; k < tensors.size(); ++k)
      if (plan[i].tensors[k].kind == Kind::kFresh)
        fill(call, tensors[k], plan[i].tensors[k], targets[next++]);
  }
}

}  // namespace spillway::emulated
