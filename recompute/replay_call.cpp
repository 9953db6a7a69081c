#include "replay_call.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "generators.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"
#include "surroundings.h"
#include "tensor_facts.h"

namespace spillway::recompute {
namespace {

c10::DataPtr borrowed(void* address) { return {address, c10::Device(c10::DeviceType::CPU)}; }

c10::Storage borrowed_storage(void* address, std::size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            bytes, borrowed(address), nullptr,
                                                            /*resizable=*/false));
}

}  // namespace

ReplayCall::ReplayCall(const RecordedCall& call, std::vector<void*> places, ClaimOrders& orders)
    : call_(call),
      places_(std::move(places)),
      orders_(orders),
      order_(orders.of(call, places_)),
      storages_(call.storages.size()) {
  SPILLWAY_ASSERT(places_.size() == call_.outputs().size());
  leases_.reserve(storages_.size());
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const StorageArgument& storage = call_.storages[i];
    if (storage.kept != nullptr) {
      bind_kept(i, *storage.kept);
    } else if (storage.key == kNotPaged) {
      bind(i, nullptr);
    }
  }
}

void ReplayCall::bind(std::size_t storage, void* address) {
  storages_[storage] = borrowed_storage(address, call_.storages[storage].bytes);
}

void ReplayCall::bind_kept(std::size_t storage, const KeptStorage& kept) {
  const StorageArgument& argument = call_.storages[storage];
  KeptStorage::Lease lease(kept);
  const std::byte* data = lease.data() + argument.offset;
  if (argument.scratch) {
    scratch_.emplace_back(data, argument.bytes);
    bind(storage, scratch_.back().data());
    return;
  }
  // The operator only reads it.
  bind(storage, const_cast<std::byte*>(data));
  leases_.push_back(std::move(lease));
}

at::Tensor ReplayCall::tensor(const TensorArgument& argument) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storages_[argument.storage]),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
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

void ReplayCall::run(c10::DispatchKeySet hidden) {
  torch::jit::Stack stack = arguments();
  const SurroundingsGuard surroundings(*call_.surroundings, hidden);
  std::optional<DefaultGeneratorState> generator;
  if (call_.generator.defined()) {
    const int position = rules_of(call_.op()).generator_argument;
    if (position >= 0) {
      stack[static_cast<std::size_t>(position)] = copy_of(call_.generator);
    } else {
      generator.emplace(call_.generator);
    }
  }
  scope_.emplace(claimable());
  call_.op().callBoxed(&stack);
  scope_->stop_claims();
  results_ = std::move(stack);
  settle();
}

bool ReplayCall::is_place(const void* address) const {
  return std::find(places_.begin(), places_.end(), address) != places_.end();
}

std::vector<c10::Storage> ReplayCall::output_storages() const {
  std::vector<const at::Tensor*> tensors;
  for (const c10::IValue& result : results_)
    for_each_tensor(result, [&](const at::Tensor& tensor) { tensors.push_back(&tensor); });
  std::vector<c10::Storage> storages;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t number = call_.output_tensors[i];
    const Bytes expected = call_.outputs()[i].bytes;
    if (number >= tensors.size() || !tensors[number]->has_storage() ||
        tensors[number]->storage().nbytes() != expected.count())
      throw Error("{} gave other results when it ran again: {} results, not one of {} at number {}",
                  call_.op().schema().name(), tensors.size(), expected, number);
    storages.push_back(tensors[number]->storage());
  }
  return storages;
}

/// In the order of the outputs that have a place.
std::vector<PlacementScope::Place> ReplayCall::claimable() const {
  std::vector<PlacementScope::Place> claims;
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i] != nullptr)
      claims.push_back(
          {.address = places_[i], .bytes = call_.outputs()[i].bytes.count(), .after = order_[i]});
  return claims;
}

void ReplayCall::learn(const std::vector<c10::Storage>& outputs) {
  std::vector<ClaimOrders::Seen> seen;
  std::size_t own = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] == nullptr) continue;
    const PlacementScope::Place& place = scope_->places()[own++];
    ClaimOrders::Seen& one = seen.emplace_back();
    one.output = static_cast<std::uint32_t>(i);
    one.blocks = place.blocks;
    for (const PlacementScope::Place& other : scope_->places())
      if (other.claimed && other.address == outputs[i].data()) one.right = other.claimed_as;
  }
  has_learned_ = orders_.learn(call_, order_, seen);
}

void ReplayCall::settle() {
  const std::vector<c10::Storage> outputs = output_storages();
  struct Move {
    std::size_t output;
    const void* from;
    std::optional<ByteCopy> rescued;  ///< From a place that another output comes to.
  };
  std::vector<Move> moves;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const void* from = outputs[i].data();
    const std::size_t bytes = outputs[i].nbytes();
    if (places_[i] == from) continue;
    if (places_[i] == nullptr && !is_place(from)) continue;
    Move& move = moves.emplace_back(Move{i, from, std::nullopt});
    if (is_place(from)) move.from = move.rescued.emplace(from, bytes).data();
  }
  if (!moves.empty()) learn(outputs);
  for (const Move& move : moves) {
    c10::StorageImpl& storage = *outputs[move.output].unsafeGetStorageImpl();
    void* to = places_[move.output];
    if (to == nullptr) {
      storage.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(storage.nbytes()));
      to = storage._mutable_data_ptr_no_checks().get();
    }
    std::memcpy(to, move.from, storage.nbytes());
  }
  copies_ = static_cast<std::uint32_t>(moves.size());
  // What lies in a place belongs to whoever gave the place.
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (places_[i] != nullptr)
      outputs[i].unsafeGetStorageImpl()->set_data_ptr_noswap(borrowed(places_[i]));
}

std::vector<ReplayedOutput> ReplayCall::take_outputs() {
  std::vector<ReplayedOutput> taken;
  const std::vector<c10::Storage> outputs = output_storages();
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (places_[i] == nullptr) taken.push_back({call_.outputs()[i].key, outputs[i]});
  results_.clear();
  if (scope_->has_claims())
    throw Error("{} keeps memory beyond its call, so its results cannot be put in place",
                call_.op().schema().name());
  return taken;
}

}  // namespace spillway::recompute
