#include "list_call.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace spillway::phantoms {
namespace {

bool makes_one_tensor(const CallOutputs& outputs) {
  return outputs.making == Making::kPhantoms && outputs.draws == 0 && !outputs.draws_by_state &&
         outputs.results.size() == 1 && outputs.results[0].kind == ResultMade::Kind::kList &&
         outputs.tensors.size() == 1 && outputs.storages.size() == 1 &&
         outputs.tensors[0].from == TensorMade::From::kNewStorage;
}

void add(CallOutputs& all, const CallOutputs& one) {
  all.results = {{ResultMade::Kind::kList, 0, static_cast<std::uint32_t>(all.tensors.size() + 1)}};
  all.tensors.push_back(one.tensors[0]);
  all.tensors.back().number = static_cast<std::uint32_t>(all.storages.size());
  all.storages.push_back(one.storages[0]);
  all.devices.push_back(one.devices[0]);
}

bool is_same(const TensorMade& a, const TensorMade& b) {
  return a.from == b.from && a.number == b.number && a.dtype == b.dtype && a.offset == b.offset &&
         a.sizes == b.sizes && a.strides == b.strides && a.conjugated == b.conjugated &&
         a.negated == b.negated && a.wrapped_number == b.wrapped_number;
}

bool are_same(const CallOutputs& a, const CallOutputs& b) {
  return a.making == b.making && a.draws == b.draws && a.draws_by_state == b.draws_by_state &&
         a.storages == b.storages && a.devices == b.devices && a.results.size() == 1 &&
         a.results[0].kind == b.results[0].kind && a.results[0].count == b.results[0].count &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    &is_same);
}

/// The two smallest of a list.
recompute::ListMembers small_pair(c10::ArrayRef<c10::IValue> list) {
  recompute::ListMembers members(list.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  const auto bytes = [&](std::size_t member) {
    const at::Tensor& tensor = list[member].toTensor();
    return tensor.defined() ? tensor.nbytes() : 0;
  };
  std::partial_sort(members.begin(), members.begin() + 2, members.end(),
                    [&](std::size_t a, std::size_t b) { return bytes(a) < bytes(b); });
  members.resize(2);
  return members;
}

}  // namespace

std::optional<CallOutputs> outputs_by_members(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
    const std::function<CallOutputs(const recompute::ListMembers&)>& of_members) {
  constexpr std::size_t kPair = 2;
  if (!recompute::is_by_element(op, arguments) || arguments[0].toListRef().size() <= kPair)
    return std::nullopt;
  const recompute::ListMembers pair = small_pair(arguments[0].toListRef());
  CallOutputs all;
  CallOutputs of_pair;
  for (std::size_t i = 0; i < arguments[0].toListRef().size(); ++i) {
    const CallOutputs one = of_members({i});
    if (!makes_one_tensor(one)) return std::nullopt;
    add(all, one);
  }
  for (const std::size_t member : pair) add(of_pair, of_members({member}));
  // Results may lie in one storage for all.
  if (!are_same(of_members(pair), of_pair)) return std::nullopt;
  return all;
}

}  // namespace spillway::phantoms
