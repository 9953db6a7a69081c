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

}  // namespace

std::vector<recompute::ListMembers> parts_on_device(const c10::OperatorHandle& op,
                                                    c10::ArrayRef<c10::IValue> arguments) {
  if (!recompute::is_by_element(op, arguments)) return {};
  const c10::ArrayRef<c10::IValue> first = arguments[0].toListRef();
  if (first.size() < 2 || !first[0].toTensor().defined()) return {};
  const c10::Device device = first[0].toTensor().device();
  const runtime::Runtime* const runtime = DeviceRuntimes::of(device);
  if (runtime == nullptr || DeviceRuntimes::is_capturing(device.index())) return {};
  const Bytes most = runtime->budget() / kPartsOfBudget;
  const std::vector<Bytes> bytes =
      bytes_of_members(device, first.size(), arguments, !op.schema().returns().empty());
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
