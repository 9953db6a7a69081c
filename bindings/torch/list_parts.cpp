#include "list_parts.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>

#include "device_runtimes.h"
#include "spillway/base/bytes.h"

namespace spillway::torch_binding {
namespace {

constexpr std::uint64_t kPartsOfBudget = 8;

/// Of the tensor itself: parameters may be views of one flat storage.
Bytes bytes_on(c10::Device device, const at::Tensor& tensor) {
  return tensor.defined() && tensor.device() == device ? Bytes(tensor.nbytes()) : Bytes();
}

/// What each tensor of the lists takes, with its fellows of the other lists.
std::vector<Bytes> bytes_of_members(c10::Device device, std::size_t size,
                                    c10::ArrayRef<c10::IValue> arguments, bool makes_new) {
  std::vector<Bytes> bytes(size);
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList() || argument.toListRef().size() != size) continue;
    const c10::ArrayRef<c10::IValue> list = argument.toListRef();
    for (std::size_t i = 0; i < size; ++i) bytes[i] += bytes_on(device, list[i].toTensor());
  }
  const c10::ArrayRef<c10::IValue> first = arguments[0].toListRef();
  for (std::size_t i = 0; makes_new && i < size; ++i)
    bytes[i] += bytes_on(device, first[i].toTensor());
  return bytes;
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.dtype() == b.dtype() && a.device() == b.device() &&
         a.layout() == at::kStrided && a.is_non_overlapping_and_dense();
}

/// LibTorch has one kernel for lists that are all alike, and goes tensor by tensor through others:
/// of these a part might go another way than the whole.
bool has_one_kernel(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.operator_name().name.rfind("aten::_foreach_", 0) != 0) return true;
  const c10::ArrayRef<c10::IValue> first = arguments[0].toListRef();
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList() || argument.toListRef().size() != first.size()) continue;
    const c10::ArrayRef<c10::IValue> list = argument.toListRef();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& tensor = list[i].toTensor();
      const at::Tensor& fellow = first[i].toTensor();
      if (!are_alike(tensor, list[0].toTensor()) || tensor.sizes() != fellow.sizes() ||
          tensor.strides() != fellow.strides())
        return false;
    }
  }
  return true;
}

}  // namespace

std::vector<recompute::ListMembers> parts_on_device(const c10::OperatorHandle& op,
                                                    c10::ArrayRef<c10::IValue> arguments) {
  if (!DeviceRuntimes::are_some() || !recompute::is_by_element(op, arguments)) return {};
  const c10::ArrayRef<c10::IValue> first = arguments[0].toListRef();
  if (first.size() < 2 || !first[0].toTensor().defined()) return {};
  const c10::Device device = first[0].toTensor().device();
  const runtime::Runtime* const runtime = DeviceRuntimes::of(device);
  if (runtime == nullptr || DeviceRuntimes::is_capturing(device.index())) return {};
  if (!has_one_kernel(op, arguments)) return {};
  const Bytes most = runtime->budget() / kPartsOfBudget;
  const std::vector<Bytes> bytes =
      bytes_of_members(device, first.size(), arguments, !op.schema().returns().empty());
  // Refused as a whole, before anything has been written.
  if (*std::max_element(bytes.begin(), bytes.end()) > runtime->budget()) return {};
  std::vector<recompute::ListMembers> parts(1);
  Bytes in_part;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!parts.back().empty() && in_part + bytes[i] > most) {
      parts.emplace_back();
      in_part = {};
    }
    parts.back().push_back(i);
    in_part += bytes[i];
  }
  if (parts.size() == 1) parts.clear();
  return parts;
}

}  // namespace spillway::torch_binding
