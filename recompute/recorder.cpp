#include "recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "device_rules.h"
#include "spillway/base/error.h"
#include "spillway/recompute/generators.h"

namespace spillway::recompute {
namespace {

// Parts of storages begin at a multiple of this, so that every type is aligned in them.
constexpr std::size_t kPartAlignment = 64;

/// A mode may count calls, or give other results than the operator's.
bool is_seen_by_python() {
  constexpr c10::DispatchKeySet kModes({c10::DispatchKey::Python,
                                        c10::DispatchKey::PythonTLSSnapshot,
                                        c10::DispatchKey::PythonDispatcher});
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return (keys.included_ - keys.excluded_).has_any(kModes);
}

}  // namespace

Recorder::Recorder(TorchCall& call, const OperatorRules& rules,
                   const ReplayEngine::FindStorage& find, const ReplayEngineOptions& options,
                   KeptStorages& kept, const DrawTurns& turns)
    : call_(call), rules_(rules), find_(find), options_(options), kept_(kept), turns_(turns) {}

std::string Recorder::take(c10::ArrayRef<c10::IValue> arguments) {
  if (c10::InferenceMode::is_enabled()) return "it runs in inference mode";
  if (at::in_parallel_region()) return "it runs in a parallel region";
  if (is_seen_by_python()) return "a Python dispatch mode sees it, and would see its second run";
  if (!options_.device.is_cpu()) {
    if (const char* objection = objection_on_device(call_.op, rules_, arguments)) return objection;
  }
  if (rules_.accumulate_argument >= 0 && !at::globalContext().deterministicAlgorithms()) {
    const c10::IValue& sums = arguments[static_cast<std::size_t>(rules_.accumulate_argument)];
    if (sums.isBool() && sums.toBool()) return "it adds up in an order that differs each time";
  }
  call_.arguments.reserve(arguments.size());
  for (std::uint32_t i = 0; i < arguments.size(); ++i) {
    const char* objection = take_argument(i, arguments[i]);
    if (objection != nullptr)
      return message("its argument '{}' {}", call_.op.schema().arguments()[i].name(), objection);
  }
  if (rules_.draws_random_numbers) {
    const char* refusal = take_generator();
    if (refusal != nullptr) return refusal;
  }
  std::string objection = keep_storages();
  if (!objection.empty()) return objection;
  call_.surroundings = Surroundings::of_this_thread();
  return {};
}

const char* Recorder::take_argument(std::uint32_t position, const c10::IValue& value) {
  if (value.isTensor()) {
    call_.arguments.emplace_back(at::Tensor());
    if (!value.toTensor().defined()) return nullptr;
    return take_tensor({.argument = position}, value.toTensor());
  }
  if (value.isList()) return take_list(position, value);
  if (value.isDevice() && value.toDevice() != options_.device &&
      !(options_.device.is_cpu() && value.toDevice().is_cpu()))
    return "names another device";
  if (value.isGenerator() || value.isNone() || value.isInt() || value.isDouble() ||
      value.isBool() || value.isString() || value.isComplexDouble() || value.isDevice()) {
    // Of a generator the state is kept.
    call_.arguments.push_back(value.isGenerator() ? c10::IValue() : value);
    if (value.isGenerator()) call_.generator = value.toGenerator();
    return nullptr;
  }
  return "cannot be kept";
}

const char* Recorder::take_list(std::uint32_t position, const c10::IValue& list) {
  // The caller's list may change after the call.
  c10::impl::GenericList own = list.toList().copy();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const c10::IValue element = own.get(i);
    if (element.isInt() || element.isDouble() || element.isBool() || element.isNone()) continue;
    if (!element.isTensor()) return "is a list that cannot be kept";
    if (rules_.takes_no_masks && (element.toTensor().scalar_type() == at::kBool ||
                                  element.toTensor().scalar_type() == at::kByte))
      return "holds a mask, by which the size of the result follows from values";
    if (!element.toTensor().defined()) continue;
    const char* objection = take_tensor(
        {.argument = position, .element = static_cast<std::int32_t>(i)}, element.toTensor());
    if (objection != nullptr) return objection;
    own.set(i, c10::IValue(at::Tensor()));
  }
  call_.arguments.emplace_back(std::move(own));
  return nullptr;
}

const char* Recorder::take_tensor(TensorSlot slot, const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // Numbers that kernels of devices take from the host.
  const bool is_beside = !options_.device.is_cpu() && impl.device().is_cpu();
  const char* objection = objection_to(impl, is_beside ? c10::kCPU : options_.device);
  if (objection != nullptr) return objection;
  const auto number = tensor_numbers_.of(&impl);
  slot.tensor = number.value;
  call_.slots.push_back(slot);
  if (number.is_new) {
    call_.tensors.emplace_back();
  }
  describe(call_.tensors[number.value], impl, rules_.uses[slot.argument]);
  return nullptr;
}

void Recorder::describe(TensorArgument& argument, const c10::TensorImpl& tensor, ArgumentUse use) {
  const c10::Storage& storage = tensor.unsafe_storage();
  const auto number = storage_numbers_.of(storage.unsafeGetStorageImpl());
  if (number.is_new) {
    call_.storages.emplace_back();
    sources_.push_back({storage, {}});
  }
  StorageArgument& whole = call_.storages[number.value];
  whole.written |= use == ArgumentUse::kReadWrite || use == ArgumentUse::kOverwrite;
  whole.scratch |= use == ArgumentUse::kUndeclaredWrite;
  sources_[number.value].shown.include(shown_range(tensor));

  argument.storage = number.value;
  argument.dtype = c10::typeMetaToScalarType(tensor.dtype());
  argument.conjugated = tensor.is_conj();
  argument.negated = tensor.is_neg();
  argument.requires_grad = tensor.requires_grad();
  argument.wrapped_number = tensor.is_wrapped_number();
  argument.offset = tensor.storage_offset();
  argument.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  argument.strides.assign(tensor.strides().begin(), tensor.strides().end());
}

const char* Recorder::take_generator() {
  if (!options_.device.is_cpu()) return take_counted_draws();
  if (rules_.dropout_argument >= 0) {
    const c10::IValue& share = call_.arguments[static_cast<std::size_t>(rules_.dropout_argument)];
    if (share.isDouble() && share.toDouble() == 0.0) return nullptr;
  }
  const at::Generator& shared = at::detail::getDefaultCPUGenerator();
  if (!call_.generator.defined() || call_.generator == shared)
    return "it draws from the default generator, as other threads may meanwhile";
  if (!can_restore(call_.generator)) return "its generator of random numbers is of another kind";
  call_.generator = copy_of(call_.generator);
  return nullptr;
}

/// They are known by their seed and how far they have come, so the default generator will do.
const char* Recorder::take_counted_draws() {
  if (rules_.dropout_argument >= 0) {
    const c10::IValue& share = call_.arguments[static_cast<std::size_t>(rules_.dropout_argument)];
    if (share.isDouble() && share.toDouble() == 0.0) return nullptr;
  }
  if (!call_.generator.defined())
    call_.generator = at::globalContext().defaultGenerator(options_.device);
  if (call_.generator.device() != options_.device)
    return "its generator of random numbers is of another device";
  call_.draws.emplace(call_.generator, turns_);
  call_.generator = copy_of(call_.generator);
  return nullptr;
}

std::string Recorder::keep_storages() {
  for (std::size_t i = 0; i < call_.storages.size(); ++i) {
    ByteRange& shown = sources_[i].shown;
    shown.begin -= shown.begin % kPartAlignment;
    if (shown.empty()) continue;
    std::string objection = keep(call_.storages[i], sources_[i]);
    if (!objection.empty()) return objection;
  }
  for (TensorArgument& tensor : call_.tensors) {
    const ByteRange& shown = sources_[tensor.storage].shown;
    const std::size_t begin = shown.empty() ? 0 : shown.begin;
    tensor.offset -= static_cast<std::int64_t>(begin / c10::elementSize(tensor.dtype));
    if (shown.empty()) tensor.offset = 0;
  }
  return {};
}

std::string Recorder::keep(StorageArgument& argument, const Source& source) {
  const c10::StorageImpl& storage = *source.storage.unsafeGetStorageImpl();
  argument.address = static_cast<const std::byte*>(storage.data()) + source.shown.begin;
  argument.bytes = source.shown.end - source.shown.begin;
  argument.device = storage.device();
  if (argument.device != options_.device) return keep_of_host(argument, storage);
  const PagedStorage paged = find_(argument.address);
  if (paged.id.is_some()) {
    if (argument.scratch) return "it writes a paged argument without saying so";
    argument.id = paged.id;
    argument.offset =
        static_cast<std::size_t>(argument.address - static_cast<const std::byte*>(paged.address));
    return {};
  }
  argument.scratch |= argument.written;
  if (argument.bytes <= options_.copied_up_to.count()) {
    argument.kept = kept_.copy(argument.address, argument.bytes, argument.device);
    return {};
  }
  if (!is_allocated(storage, options_.deleter))
    return message("{} of its arguments lie in memory that is not LibTorch's",
                   Bytes(argument.bytes));
  if (storage.nbytes() > options_.referred_up_to.count())
    return message("{} of its arguments are not paged", Bytes(argument.bytes));
  argument.kept = kept_.refer(storage.data(), storage.nbytes());
  argument.offset = source.shown.begin;
  return {};
}

/// What the host may not have got yet lies in other memory, pinned for the device.
std::string Recorder::keep_of_host(StorageArgument& argument, const c10::StorageImpl& storage) {
  constexpr std::size_t kMost = 4096;
  if (argument.bytes > kMost || !is_allocated(storage, c10::GetCPUAllocator()->raw_deleter()))
    return message("{} of its arguments lie on the host", Bytes(argument.bytes));
  argument.scratch |= argument.written;
  argument.kept = kept_.copy(argument.address, argument.bytes, argument.device);
  return {};
}

std::vector<StorageUse> Recorder::inputs() const {
  std::vector<StorageUse> inputs;
  FirstNumbers<StorageId> numbers;
  for (const StorageArgument& storage : call_.storages) {
    if (!storage.id.is_some()) continue;
    // Several storages may lie in one paged piece of memory.
    const auto number = numbers.of(storage.id);
    if (number.is_new) inputs.push_back({.id = storage.id});
    inputs[number.value].written |= storage.written;
  }
  return inputs;
}

}  // namespace spillway::recompute
