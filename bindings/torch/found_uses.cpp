#include "found_uses.h"

#include <algorithm>
#include <optional>

#include "cpu_allocator.h"
#include "device_library.h"
#include "host_update.h"
#include "spillway/recompute/sparse_parts.h"

namespace spillway::torch_binding {
namespace {

/// The part of its storage that a tensor shows, or nothing where sizes and strides do not tell.
std::optional<runtime::ViewBytes> shown_bytes(const c10::TensorImpl& impl) {
  if (impl.is_quantized() || impl.is_nested() || impl.is_python_dispatch() ||
      impl.has_symbolic_sizes_strides() || impl.storage_offset() < 0)
    return std::nullopt;
  const c10::IntArrayRef sizes = impl.sizes();
  const c10::IntArrayRef strides = impl.strides();
  return runtime::bytes_of_view(static_cast<std::uint64_t>(impl.storage_offset()),
                                {sizes.data(), sizes.size()}, {strides.data(), strides.size()},
                                impl.itemsize());
}

class UseCollector {
 public:
  UseCollector(runtime::Runtime& runtime, const OperatorFacts& facts, ParameterStorages* parameters,
               FoundUses& found)
      : runtime_(runtime), facts_(facts), parameters_(parameters), found_(found) {}

  void add(const at::Tensor& tensor, Access access) {
    if (!tensor.defined()) return;
    const auto* impl = tensor.unsafeGetTensorImpl();
    const bool writes = access == Access::kWrite || access == Access::kResult;
    const bool requires_gradient = impl->requires_grad();
    found_.needs_gradient |= requires_gradient;
    const bool is_parameter = parameters_ != nullptr && requires_gradient && tensor.is_leaf();
    if (is_parameter) note_parameter(tensor);
    if (!impl->has_storage()) {
      found_.wrote_leaf |= writes && is_parameter;
      add_parts(tensor, writes ? access : Access::kRead);
      return;
    }
    if (is_parameter && HostUpdates::are_on())
      parameters_->add_leaf(tensor);
    else if (is_parameter)
      parameters_->add(impl->unsafe_storage());
    found_.wrote_leaf |=
        writes &&
        (is_parameter || (parameters_ != nullptr && parameters_->contains(impl->unsafe_storage())));
    if (access == Access::kView) return;  // Only its sizes and strides are looked at.
    add_storage(*impl, writes, access == Access::kResult && tensor.numel() == 0);
  }

  void add(const c10::IValue& value, Access access) {
    if (value.isTensor()) {
      add(value.toTensor(), access);
    } else if (value.isList()) {
      // Collectives take lists of lists.
      for (const c10::IValue& element : value.toListRef()) add(element, access);
    }
  }

 private:
  /// `grows`: the kernel may touch more of the storage than the tensor shows.
  void add_storage(const c10::TensorImpl& impl, bool writes, bool grows) {
    const c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
    if (storage.device_type() != c10::DeviceType::CPU) {
      if (DeviceOp* const op = found_.devices.at(storage.device()))
        add_found(*op->runtime, op->uses, storage, impl, writes || facts_.fills_in_secret, grows);
      else if (storage.device_type() == c10::DeviceType::CUDA)
        tell_of_unserved_device();
    } else if (!add_found(runtime_, found_.uses, storage, impl, writes, grows)) {
      tell_of_older_storage(storage);
    }
  }

  /// False: the runtime knows nothing of it.
  bool add_found(const runtime::Runtime& runtime, runtime::OpUses& uses,
                 const c10::StorageImpl& storage, const c10::TensorImpl& impl, bool writes,
                 bool grows) {
    // The raw pointer: no copy-on-write copy may be made here.
    const void* data = storage.data();
    runtime::RangeUse use = runtime.find(data);
    if (!use.storage.is_some()) return false;
    if (runtime.is_shared(use.storage)) {
      use.writes = writes;
      found_.shared.add(use);
      return true;
    }
    grows |= facts_.uses_whole_storages;
    const auto shown = grows ? std::nullopt : shown_bytes(impl);
    if (shown) use = runtime.find(static_cast<const std::byte*>(data) + shown->begin, shown->size);
    use.writes = writes;
    uses.add(use);
    return true;
  }

  /// For profile and trace: which storages hold a parameter and its gradient.
  void note_parameter(const at::Tensor& parameter) {
    const c10::Device device = parameter.device();
    runtime::Runtime* const runtime = device.is_cpu() ? &runtime_ : DeviceRuntimes::of(device);
    if (runtime == nullptr || !runtime->names_values()) return;
    note_class(*runtime, parameter, profile::StorageClass::kParameter);
    note_class(*runtime, parameter.grad(), profile::StorageClass::kGradient);
  }

  static void note_class(runtime::Runtime& runtime, const at::Tensor& tensor,
                         profile::StorageClass holds) {
    if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) return;
    const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    const runtime::RangeUse use = runtime.find_unshared(storage.unsafeGetStorageImpl()->data());
    if (use.storage.is_some()) runtime.note_class(use.storage, holds);
  }

  /// A sparse tensor is made of dense ones.
  void add_parts(const at::Tensor& tensor, Access access) {
    recompute::for_each_part(tensor, [&](const at::Tensor& part) { add(part, access); });
  }

  runtime::Runtime& runtime_;
  const OperatorFacts& facts_;
  ParameterStorages* const parameters_;
  FoundUses& found_;
};

}  // namespace

void find_uses(runtime::Runtime& runtime, const OperatorFacts& facts,
               c10::ArrayRef<c10::IValue> arguments, ParameterStorages* parameters,
               FoundUses& found) {
  found.uses.clear();
  found.shared.clear();
  found.devices.clear();
  found.wrote_leaf = found.needs_gradient = false;
  UseCollector collector(runtime, facts, parameters, found);
  const std::size_t count = std::min(facts.accesses.size(), arguments.size());
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor() || argument.isList()) collector.add(argument, facts.accesses[i]);
  }
  if (found.devices.used().empty()) return;
  // It may make its result on another device.
  for (const c10::IValue& argument : arguments)
    if (argument.isDevice()) static_cast<void>(found.devices.at(argument.toDevice()));
}

}  // namespace spillway::torch_binding
