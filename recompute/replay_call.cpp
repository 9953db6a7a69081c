#include "replay_call.h"

#include <memory>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/surroundings.h"
#include "tensor_facts.h"

namespace spillway::recompute {
namespace {

c10::DispatchKeySet keys_of(c10::Device device) {
  return c10::DispatchKeySet(device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA);
}

}  // namespace

ReplayCall::ReplayCall(const TorchCall& call) : call_(call), storages_(call.storages.size()) {
  leases_.reserve(storages_.size());
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const StorageArgument& storage = call_.storages[i];
    if (storage.kept != nullptr) {
      bind_kept(i, *storage.kept);
    } else if (!storage.id.is_some()) {
      bind(i, nullptr);
    }
  }
}

void ReplayCall::bind(std::size_t storage, void* address) {
  const StorageArgument& argument = call_.storages[storage];
  storages_[storage] = borrowed_storage(address, argument.bytes, argument.device);
}

void ReplayCall::bind_kept(std::size_t storage, const KeptStorage& kept) {
  const StorageArgument& argument = call_.storages[storage];
  KeptStorage::Lease lease(kept);
  const std::byte* data = lease.data() + argument.offset;
  if (argument.scratch) {
    scratch_.emplace_back(data, argument.bytes, argument.device);
    bind(storage, scratch_.back().data());
    return;
  }
  // The operator only reads it.
  bind(storage, const_cast<std::byte*>(data));
  leases_.push_back(std::move(lease));
}

at::Tensor ReplayCall::tensor(const TensorArgument& argument) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storages_[argument.storage]), keys_of(call_.storages[argument.storage].device),
      c10::scalarTypeToTypeMeta(argument.dtype));
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(argument.sizes, argument.strides, argument.offset);
  if (argument.conjugated) impl._set_conj(true);
  if (argument.negated) impl._set_neg(true);
  if (argument.wrapped_number) impl.set_wrapped_number(true);
  if (argument.requires_grad) impl.set_requires_grad(true);
  return tensor;
}

torch::jit::Stack ReplayCall::arguments() const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(call_.tensors.size());
  for (const TensorArgument& argument : call_.tensors) tensors.push_back(tensor(argument));
  torch::jit::Stack stack = call_.arguments;
  for (c10::IValue& value : stack)
    if (value.isList()) value = value.toList().copy();
  for (const TensorSlot& slot : call_.slots) {
    c10::IValue& value = stack[slot.argument];
    if (slot.element < 0) {
      value = tensors[slot.tensor];
    } else {
      value.toList().set(static_cast<std::size_t>(slot.element), tensors[slot.tensor]);
    }
  }
  return stack;
}

void ReplayCall::run() {
  torch::jit::Stack stack = arguments();
  const SurroundingsGuard surroundings(*call_.surroundings, call_.hidden_keys);
  const int position = rules_of(call_.op).generator_argument;
  at::Generator generator;
  if (call_.generator.defined()) generator = copy_of(call_.generator);
  if (generator.defined() && position >= 0) stack[static_cast<std::size_t>(position)] = generator;
  if (call_.draws) {
    call_.draws->run_from(generator, position < 0, call_.op.schema().name(),
                          [&] { call_.op.callBoxed(&stack); });
  } else {
    call_.op.callBoxed(&stack);
  }
  results_ = std::move(stack);
}

std::vector<OutputMemory> ReplayCall::take_outputs(const std::vector<StorageMade>& outputs) {
  std::vector<const at::Tensor*> tensors;
  for (const c10::IValue& result : results_)
    for_each_tensor(result, [&](const at::Tensor& tensor) { tensors.push_back(&tensor); });
  std::vector<OutputMemory> taken;
  for (const StorageMade& expected : outputs) {
    if (expected.result >= tensors.size() || !tensors[expected.result]->has_storage() ||
        tensors[expected.result]->storage().nbytes() != expected.bytes.count())
      throw Error("{} gave other results when it ran again: {} results, not one of {} at number {}",
                  call_.op.schema().name(), tensors.size(), expected.bytes, expected.result);
    auto storage = std::make_shared<c10::Storage>(tensors[expected.result]->storage());
    void* const address = storage->mutable_data();
    taken.push_back({expected.id, address, expected.bytes, std::move(storage)});
  }
  results_.clear();
  return taken;
}

}  // namespace spillway::recompute
