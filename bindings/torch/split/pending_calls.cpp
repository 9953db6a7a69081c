#include "pending_calls.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "call_arguments.h"
#include "record_memory.h"
#include "spillway/recompute/generators.h"

namespace spillway::split {
namespace {

using pipeline::OperatorUse;
using pipeline::StorageOrdinal;

std::vector<StorageOrdinal> ordinals_of(const CallUses& uses) {
  std::vector<StorageOrdinal> used;
  for (const OperatorUse& use : uses.all()) used.push_back(use.storage);
  return used;
}

/// Where a call gives a storage the very bytes of a record: it needs the file alone.
FileRange bytes_that_are_copied(const CalledOperator& called, const RunningCall& running) {
  const c10::ArrayRef<c10::IValue> arguments = called.arguments;
  const std::string& name = called.op.operator_name().name;
  if (!running.is_on_host) return {};
  const bool fills = name == "aten::copy_" && running.begins_anew;
  if (!fills && name != "aten::clone" && name != "aten::_to_copy") return {};
  const at::Tensor& source = arguments[fills ? 1 : 0].toTensor();
  const RecordMemory* const record =
      source.has_storage() ? RecordMemory::of(storage_of(source)) : nullptr;
  if (record == nullptr || !source.is_non_overlapping_and_dense() || source.is_conj() ||
      source.is_neg())
    return {};
  const auto is_same = [&](c10::ScalarType dtype, c10::IntArrayRef sizes,
                           c10::IntArrayRef strides) {
    return dtype == source.scalar_type() && sizes == source.sizes() && strides == source.strides();
  };
  if (fills) {
    const at::Tensor& filled = arguments[0].toTensor();
    if (!is_same(filled.scalar_type(), filled.sizes(), filled.strides()) || filled.is_conj() ||
        filled.is_neg())
      return {};
  } else {
    const phantoms::CallOutputs& outputs = *running.outputs;
    const phantoms::TensorMade& made = outputs.tensors.front();
    if (outputs.tensors.size() != 1 || !is_same(made.dtype, made.sizes, made.strides) ||
        outputs.storages.size() != 1 || outputs.storages.front() != source.nbytes())
      return {};
  }
  FileRange bytes = record->range();
  bytes.from += static_cast<std::uint64_t>(source.storage_offset()) * source.element_size();
  bytes.size = source.nbytes();
  return bytes;
}

}  // namespace

bool PendingCalls::may_wait(const CalledOperator& called, const RunningCall& running) const {
  const c10::OperatorHandle& op = called.op;
  if (called.below.has(c10::DispatchKey::Python)) return false;  // The program's own code sees it.
  if (!may_copy(called.arguments)) return false;
  if (!running.draws()) return true;
  return (running.takes_generator || DeferRule::of(op).with_generator) &&
         recompute::can_copy(generator_of(op, called.arguments));
}

bool PendingCalls::may_defer(const CalledOperator& called, RunningCall& running) const {
  const pipeline::Decision& decision = *running.decision;
  if (!decision.owners.is_all() || decision.stage || !decision.moves.empty() ||
      running.phase == OpPhase::kBackward || running.kind() != pipeline::OperatorKind::kComputes)
    return false;
  const DeferRule& rule = DeferRule::of(called.op);
  if (!rule.may_wait) return false;
  running.begins_anew = rule.overwrites && begins_anew(called, running);
  const auto is_large = [](std::size_t size) { return size >= kSmall; };
  const std::vector<std::size_t>& made = running.outputs->storages;
  bool makes_large = std::any_of(made.begin(), made.end(), is_large);
  for (std::size_t i = 0; i < running.uses.size(); ++i) {
    const OperatorUse& use = running.uses[i];
    makes_large |= use.writes && is_large(use.size.count());
    if (!(i == 0 && running.begins_anew) && !may_use_later(use)) return false;
  }
  for_each_tensor(called.arguments, [&](const at::Tensor& tensor, std::size_t) {
    makes_large &= storages_.at(storage_of(tensor).data()) || storage_of(tensor).nbytes() <= kSmall;
  });
  return makes_large && (rule.of_any_type || makes_no_integers(called, running)) &&
         may_wait(called, running) && deferred_.has_room(ordinals_of(running.uses));
}

/// Whether the first argument's storage is written as a whole, and used by nothing else: by no
/// other argument, and by nobody before who may have its address.
bool PendingCalls::begins_anew(const CalledOperator& called, const RunningCall& running) const {
  const CallUses& uses = running.uses;
  const at::Tensor& filled = called.arguments[0].toTensor();
  if (uses.size() == 0 || &uses.storage(0) != &storage_of(filled)) return false;
  const StorageOrdinal first = uses[0].storage;
  const bool is_new = first.value() >= running.first_new;
  if (!is_new && !is_phantom(uses.storage(0))) return false;
  const std::span<const OperatorUse> others = uses.all().subspan(1);
  return shows_all(filled) && !data_.is_the_programs(first) &&
         std::none_of(others.begin(), others.end(),
                      [&](const OperatorUse& use) { return use.storage == first; });
}

/// Whether the bytes of a use will be there when a rank needs what comes of them: they come then,
/// too, or are the executor's, or few.
bool PendingCalls::may_use_later(const OperatorUse& use) const {
  if (!data_.is_the_programs(use.storage) && memory_.is_with_executor(use.storage)) return true;
  return !use.writes && use.size <= Bytes(kSmall);
}

/// Integers divided by zero, or raised to negative powers, throw. Real results of them do not.
bool PendingCalls::makes_no_integers(const CalledOperator& called, RunningCall& running) const {
  const auto is_integer = [](c10::ScalarType type) {
    return c10::isIntegralType(type, /*includeBool=*/false);
  };
  const std::vector<phantoms::TensorMade>& made = running.outputs->tensors;
  bool are_none = std::none_of(made.begin(), made.end(), [&](const phantoms::TensorMade& one) {
    return is_integer(one.dtype);
  });
  for_each_tensor(called.arguments, [&](const at::Tensor& tensor, std::size_t) {
    const auto ordinal = storages_.at(storage_of(tensor).data());
    if (is_integer(tensor.scalar_type()) && ordinal && running.uses.is_written(*ordinal))
      are_none = false;
  });
  return are_none;
}

/// Whether what the program may change past the operators is small.
bool PendingCalls::may_copy(c10::ArrayRef<c10::IValue> arguments) const {
  constexpr std::size_t kMost = std::size_t{256} << 20;
  bool may = true;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    const c10::StorageImpl& storage = storage_of(tensor);
    may &= storage.nbytes() <= kMost || !data_.is_the_programs(storages_.at(storage.data()));
  });
  return may;
}

PendingCall PendingCalls::record(const CalledOperator& called, RunningCall& running,
                                 bool is_deferred) const {
  PendingCall call{.op = called.op, .below = called.below, .traits = called.traits};
  call.unit = running.decision->unit;
  call.action = running.action;
  running.reads.clear();
  running.writes.clear();
  record_arguments(called, running, call);
  if (is_deferred) call.bytes = bytes_that_are_copied(called, running);
  if (running.draws())
    draw_from(recompute::copy_of(generator_of(called.op, called.arguments)), call);
  return call;
}

void PendingCalls::record_arguments(const CalledOperator& called, RunningCall& running,
                                    PendingCall& call) const {
  const auto one = [&](const at::Tensor& tensor, std::size_t argument, std::int32_t element) {
    if (!tensor.defined()) return;
    ArgumentTensor noted;
    noted.argument = static_cast<std::uint32_t>(argument);
    noted.element = element;
    noted.tensor = phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl());
    noted.device = tensor.device();
    record_storage(called, running, storage_of(tensor), noted);
    call.tensors.push_back(std::move(noted));
  };
  const c10::ArrayRef<c10::IValue> arguments = called.arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      one(value.toTensor(), i, -1);
      call.arguments.emplace_back(at::Tensor());
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList()) {
      c10::List<c10::IValue> list = value.toList().copy();
      for (std::size_t k = 0; k < list.size(); ++k) {
        const c10::IValue element = list.get(k);
        if (!element.isTensor()) continue;
        one(element.toTensor(), i, static_cast<std::int32_t>(k));
        list.set(k, at::Tensor());
      }
      call.arguments.emplace_back(std::move(list));
    } else {
      call.arguments.push_back(value);
    }
  }
}

void PendingCalls::record_storage(const CalledOperator& called, RunningCall& running,
                                  c10::StorageImpl& storage, ArgumentTensor& noted) const {
  const auto ordinal = storage.data() == nullptr ? std::nullopt : memory_.number_of(storage);
  CallUses& uses = running.uses;
  const bool is_the_programs = data_.is_the_programs(ordinal);
  const std::size_t number = is_the_programs ? 0 : uses.number_of(*ordinal);
  // Nobody else needs what is small, as a number among tensors.
  if (is_the_programs ||
      (!uses[number].writes && storage.nbytes() <= kSmall && noted.device.is_cpu() &&
       !is_phantom(storage) && !memory_.is_with_executor(*ordinal))) {
    noted.copy = data_.copy_for(called.op, ordinal, storage, noted.tensor);
    return;
  }
  memory_.share(uses.storage(number), *ordinal);
  noted.storage = *ordinal;
  running.reads.push_back(*ordinal);
  if (uses.is_written(*ordinal)) running.writes.push_back(*ordinal);
}

void PendingCalls::defer(PendingCall call, const CalledOperator& called,
                         const RunningCall& running) const {
  std::vector<DeferredCalls::Written> written;
  for (std::size_t i = 0; i < running.uses.size(); ++i) {
    const OperatorUse& use = running.uses[i];
    if (use.writes)
      written.push_back({use.storage, &running.uses.storage(i), use.requires_gradient,
                         i == 0 && running.begins_anew});
  }
  const std::vector<pipeline::MadeStorage>& made = running.made;
  for_each_tensor(called.results(), [&](const at::Tensor& tensor, std::size_t) {
    const auto ordinal = storages_.at(storage_of(tensor).data());
    if (ordinal && std::any_of(made.begin(), made.end(),
                               [&](const auto& one) { return one.storage == *ordinal; }))
      written.push_back({*ordinal, &storage_of(tensor), false, false});
  });
  std::span<const StorageOrdinal> reads = running.reads;
  if (call.bytes.file != nullptr) {
    reads = {};
    call.tensors.clear();
  }
  deferred_.add(std::move(call), reads, written);
}

}  // namespace spillway::split
