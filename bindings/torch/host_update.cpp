#include "host_update.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "call_text.h"
#include "device_runtimes.h"
#include "out_of_memory.h"
#include "spillway/base/log.h"
#include "spillway/base/per_thread.h"
#include "spillway/recompute/operator_cache.h"
#include "spillway/runtime/host_workspace.h"

namespace spillway::torch_binding {
namespace {

c10::DispatchKey seen_at = c10::DispatchKey::Undefined;

// So many members beside the one that the host works on are on their way out.
constexpr std::size_t kAhead = 4;

/// Once: an optimizer calls the same at each step.
void tell(const c10::OperatorHandle& op, const std::string& objection) {
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true))
    log_warning("--update host: {} updates a tensor on its GPU, because {} (told once)",
                op.schema().name(), objection);
}

/// Operators that do the same to each element, and that optimizers are made of. What only empties
/// tensors or sums them up stays on the GPU.
bool is_known(std::string_view name) {
  constexpr std::array<std::string_view, 4> kFused{"_fused_adam_", "_fused_adamw_", "_fused_sgd_",
                                                   "_fused_adagrad_"};
  constexpr std::array<std::string_view, 15> kElementwise{
      "add",     "sub", "mul",  "div",  "addcmul",    "addcdiv", "lerp",    "neg",
      "maximum", "abs", "sqrt", "sign", "reciprocal", "copy",    "_to_copy"};
  constexpr std::string_view kNamespace = "aten::";
  constexpr std::string_view kForeach = "_foreach_";
  if (!name.starts_with(kNamespace)) return false;
  name.remove_prefix(kNamespace.size());
  if (std::find(kFused.begin(), kFused.end(), name) != kFused.end()) return true;
  if (name.starts_with(kForeach)) name.remove_prefix(kForeach.size());
  if (name.ends_with('_')) name.remove_suffix(1);
  return std::find(kElementwise.begin(), kElementwise.end(), name) != kElementwise.end();
}

bool is_copy(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  return name == "aten::_to_copy" || name == "aten::copy_" || name == "aten::_foreach_copy_";
}

/// Of `_to_copy`: the type of the copy.
at::ScalarType type_of_copy(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[1].isNone() ? arguments[0].toTensor().scalar_type()
                               : arguments[1].toScalarType();
}

/// Of `_to_copy`: whether the copy differs in nothing but its type, and that is no smaller: masters
/// are wider than what they are made of, and autocast makes weights narrower.
bool only_widens(c10::ArrayRef<c10::IValue> arguments) {
  constexpr std::size_t kLayout = 2, kDevice = 3, kPinned = 4, kMemoryFormat = 6;
  const at::Tensor& from = arguments[0].toTensor();
  const auto is = [&](std::size_t at, const auto& wanted) {
    return arguments[at].isNone() || wanted(arguments[at]);
  };
  const at::ScalarType type = type_of_copy(arguments);
  return at::isFloatingType(type) && c10::elementSize(type) >= from.itemsize() &&
         is(kLayout, [](const c10::IValue& v) { return v.toLayout() == at::kStrided; }) &&
         is(kDevice, [&](const c10::IValue& v) { return v.toDevice() == from.device(); }) &&
         is(kPinned, [](const c10::IValue& v) { return !v.toBool(); }) &&
         is(kMemoryFormat,
            [](const c10::IValue& v) { return v.toMemoryFormat() == at::MemoryFormat::Preserve; });
}

struct UpdateRule {
  explicit UpdateRule(const c10::OperatorHandle& op)
      : may_be_of_update(is_known(op.schema().name()) &&
                         op.operator_name().overload_name.find("out") == std::string::npos) {}
  bool may_be_of_update;
};

bool is_number(const at::Tensor& tensor) { return tensor.defined() && tensor.numel() == 1; }

/// Of its first element, as it is: `data_ptr` counts as use by the program.
std::byte* begin_of(const at::Tensor& tensor) {
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  auto* const data = static_cast<std::byte*>(const_cast<void*>(storage.data()));
  return data + tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Not those that it hands back.
bool makes_results_of_its_own(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() && !writes(returns[0]);
}

}  // namespace

void UpdatedTensors::note_made(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (op.schema().returns()[i].alias_info() != nullptr || !results[i].isTensor()) continue;
    const at::Tensor& tensor = results[i].toTensor();
    if (tensor.defined() && tensor.has_storage() && tensor.is_cuda()) made_.add(tensor.storage());
  }
}

void UpdatedTensors::note_updated(const c10::OperatorHandle& op,
                                  c10::ArrayRef<c10::IValue> arguments,
                                  c10::ArrayRef<c10::IValue> results) {
  const auto note = [this](const c10::IValue& value) {
    if (value.isTensor()) updated_.add(value.toTensor().storage());
    if (!value.isTensorList()) return;
    for (const c10::IValue& each : value.toListRef()) updated_.add(each.toTensor().storage());
  };
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (writes(op.schema().arguments()[i])) note(arguments[i]);
  for (const c10::IValue& result : results) note(result);
}

bool UpdatedTensors::is_gradient(const c10::Storage& storage, const ParameterStorages& parameters) {
  if (!gradients_) {
    gradients_.emplace();
    parameters.for_each_gradient(
        [this](const at::Tensor& each) { gradients_->add(each.storage()); });
  }
  return gradients_->contains(storage);
}

bool UpdatedTensors::may_go_on_with(const c10::OperatorHandle& op,
                                    c10::ArrayRef<c10::IValue> arguments,
                                    const ParameterStorages& parameters) {
  if (arguments.empty() || arguments[0].isTensorList()) return true;
  const bool makes_copy = makes_results_of_its_own(op) && is_copy(op);
  bool is_of_update = !makes_results_of_its_own(op);
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    if (is_number(tensor)) continue;
    if (!tensor.has_storage() || made_.contains(tensor.storage())) return false;
    is_of_update |= parameters.contains(tensor.storage()) || updated_.contains(tensor.storage()) ||
                    (makes_copy && is_gradient(tensor.storage(), parameters));
  }
  return is_of_update;
}

void HostUpdates::switch_on(c10::DispatchKey key) {
  seen_at = key;
  are_on_.store(true);
}

bool HostUpdates::may_be_of_update(const c10::OperatorHandle& op) {
  return per_thread<recompute::OperatorCache<UpdateRule>>().of(op).may_be_of_update;
}

HostCall::HostCall(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments)
    : op_(op),
      arguments_(arguments.begin(), arguments.end()),
      is_of_lists_(!arguments.empty() && arguments[0].isTensorList()),
      makes_results_(makes_results_of_its_own(op)),
      copies_(is_copy(op)) {
  if (is_of_lists_ ? !recompute::is_by_element(op, arguments)
                   : arguments.empty() || !arguments[0].isTensor())
    return;
  const std::size_t size = is_of_lists_ ? arguments[0].toListRef().size() : 1;
  for (std::size_t member = 0; member < size; ++member) {
    const at::Tensor& lead =
        is_of_lists_ ? arguments[0].toListRef()[member].toTensor() : arguments[0].toTensor();
    if (!lead.defined() || !lead.has_storage() || lead.numel() == 0) continue;
    runtime::Runtime* const runtime = DeviceRuntimes::of(lead.device());
    if (runtime == nullptr || !runtime->find(lead.storage().data()).storage.is_some()) continue;
    if (DeviceRuntimes::is_capturing(lead.device().index())) continue;
    if (copies_ && copies_elsewhere(member)) continue;
    if (runtime_ == nullptr) runtime_ = runtime;
    if (const std::string objection = objection_to(member); !objection.empty())
      tell(op, objection);
    else
      members_.push_back(member);
  }
}

/// The tensors of a member that have as many elements as it has.
std::vector<HostCall::Operand> HostCall::operands_of(std::size_t member) const {
  std::vector<Operand> operands;
  const std::size_t size = is_of_lists_ ? arguments_[0].toListRef().size() : 1;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& argument = arguments_[i];
    const bool is_list = argument.isTensorList() && argument.toListRef().size() == size;
    if (is_of_lists_ ? !is_list : !argument.isTensor()) continue;
    const at::Tensor& tensor =
        is_of_lists_ ? argument.toListRef()[member].toTensor() : argument.toTensor();
    if (is_number(tensor) && i > 0) continue;
    operands.push_back({i, tensor, writes(op_.schema().arguments()[i])});
  }
  return operands;
}

/// A copy that comes or goes, or spreads, or makes no number of another one: no update does.
bool HostCall::copies_elsewhere(std::size_t member) const {
  if (makes_results_) return !only_widens(arguments_);
  const std::vector<Operand> operands = operands_of(member);
  return operands.size() != 2 || !operands[1].tensor.defined() ||
         operands[1].tensor.device() != operands[0].tensor.device() ||
         operands[1].tensor.sizes() != operands[0].tensor.sizes() ||
         !at::isFloatingType(operands[0].tensor.scalar_type()) ||
         !at::isFloatingType(operands[1].tensor.scalar_type());
}

std::string HostCall::objection_to(const Operand& operand, const at::Tensor& lead) const {
  const at::Tensor& tensor = operand.tensor;
  if (!tensor.defined() || !tensor.has_storage()) return "one of its tensors has no memory";
  if (tensor.device() != lead.device()) return "its tensors are on several devices";
  if (runtime_ != DeviceRuntimes::of(tensor.device())) return "its lists are of several GPUs";
  if (!copies_ && tensor.scalar_type() != lead.scalar_type())
    return "its tensors have several types";
  if (tensor.sizes() != lead.sizes() || tensor.strides() != lead.strides() ||
      tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense())
    return "its tensors lie differently in memory";
  if (tensor.is_conj() || tensor.is_neg())
    return "a tensor is conjugated or negated when it is read";
  const swap::RangeUse found = runtime_->find(tensor.storage().data());
  if (!found.storage.is_some()) return "one of its tensors is too small to leave the GPU";
  return {};
}

/// Why the host cannot do what the call does with this member; empty: it can.
std::string HostCall::objection_to(std::size_t member) const {
  const std::vector<Operand> operands = operands_of(member);
  const at::Tensor& lead = operands.front().tensor;
  if (!at::isFloatingType(lead.scalar_type())) return "its tensors are no floating-point numbers";
  for (const Operand& operand : operands)
    if (std::string objection = objection_to(operand, lead); !objection.empty()) return objection;
  for (const c10::IValue& argument : arguments_) {
    if (argument.isComplexDouble()) return "it takes a complex number";
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& number = argument.toTensor();
    if (is_of_lists_ && !is_number(number)) return "it takes a tensor for all members";
    // Such ones may decide on shape and type of a result.
    if (is_number(number) && (number.dim() > 0 || number.is_complex()) && makes_results_)
      return "it takes a number that has a dimension";
  }
  const at::Context& settings = at::globalContext();
  if (makes_results_ && settings.deterministicAlgorithms() &&
      settings.deterministicFillUninitializedMemory())
    return "LibTorch fills new memory there (torch.utils.deterministic.fill_uninitialized_memory)";
  return {};
}

/// Numbers on the GPU come to the host, those of a list at once.
void HostCall::copy_numbers() {
  for (c10::IValue& argument : arguments_) {
    if (argument.isTensor() && is_number(argument.toTensor())) {
      argument = argument.toTensor().cpu();
    } else if (argument.isTensorList()) {
      const std::vector<at::Tensor> list = argument.toTensorVector();
      const auto is_there = [](const at::Tensor& each) {
        return is_number(each) && each.is_cuda();
      };
      if (list.empty() || !std::all_of(list.begin(), list.end(), is_there)) continue;
      const auto is_like_first = [&](const at::Tensor& each) {
        return each.dtype() == list[0].dtype() && each.sizes() == list[0].sizes() &&
               each.device() == list[0].device();
      };
      c10::List<at::Tensor> numbers;
      if (std::all_of(list.begin(), list.end(), is_like_first)) {
        const at::Tensor together = at::stack(list).cpu();
        for (std::int64_t i = 0; i < together.size(0); ++i)
          numbers.push_back(together.select(0, i));
      } else {
        for (const at::Tensor& each : list) numbers.push_back(each.cpu());
      }
      argument = std::move(numbers);
    }
  }
}

/// Each storage once, with all pages that the call uses of it.
std::vector<swap::HostUse> HostCall::uses_of(const std::vector<Operand>& operands) const {
  std::vector<swap::HostUse> uses;
  for (const Operand& operand : operands) {
    swap::RangeUse use = runtime_->find(begin_of(operand.tensor), Bytes(operand.tensor.nbytes()));
    use.writes = operand.writes;
    const auto same = [&](const swap::HostUse& each) { return each.use.storage == use.storage; };
    const auto found = std::find_if(uses.begin(), uses.end(), same);
    if (found == uses.end()) {
      uses.push_back({use, operand.argument == arguments_.size()});
      continue;
    }
    swap::RangeUse& all = found->use;
    const std::uint32_t end = std::max(all.first + all.touched(), use.first + use.touched());
    all.first = std::min(all.first, use.first);
    all.count = end - all.first;
    all.writes |= use.writes;
  }
  return uses;
}

/// What the next members need of the GPU's memory is copied out meanwhile.
void HostCall::start_way_out(std::size_t first, std::size_t count) {
  swap::ResidencyOrders orders;
  for (std::size_t i = first; i < std::min(members_.size(), first + count); ++i)
    for (const swap::HostUse& each : uses_of(operands_of(members_[i])))
      orders.write_outs.push_back(
          {{each.use.storage, each.use.first, each.use.touched()}, each.use.touched()});
  runtime_->engine().apply(orders);
}

at::Tensor HostCall::make_result(const at::Tensor& like) const {
  const c10::impl::ExcludeDispatchKeyGuard unseen(seen_at);
  const runtime::HostWorkspace::Allocations filled_here(*runtime_);
  return at::empty_like(like, copies_ ? type_of_copy(arguments_) : like.scalar_type());
}

/// The pages of a member's tensors while the host holds them.
class HostCall::Held {
 public:
  Held(runtime::Runtime& runtime, std::vector<swap::HostUse> uses)
      : runtime_(runtime), uses_(std::move(uses)) {}
  bool hold() { return runtime::HostWorkspace(runtime_).hold(hold_, uses_); }

  /// Where a byte of a tensor on the GPU lies, and how many follow it in one piece.
  std::pair<std::byte*, std::size_t> at(const void* address) const {
    const swap::RangeUse byte = runtime_.find(address, Bytes(1));
    const auto same = [&](const swap::HostUse& each) { return each.use.storage == byte.storage; };
    const auto found = std::find_if(uses_.begin(), uses_.end(), same);
    const auto use = static_cast<std::size_t>(found - uses_.begin());
    const std::size_t page = runtime_.engine().page_size().count();
    const auto* const begin = static_cast<const std::byte*>(runtime_.address_of(byte.storage));
    const std::size_t offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - begin) % page;
    return {hold_.pages(use)[byte.first - found->use.first] + offset, page - offset};
  }

 private:
  runtime::Runtime& runtime_;
  std::vector<swap::HostUse> uses_;
  swap::HostHold hold_;
};

/// The kernel of the CPU, from each end of a page of any operand to the next.
void HostCall::run_pieces(std::size_t member, const std::vector<Operand>& operands,
                          const Held& held) {
  const auto size = static_cast<std::size_t>(operands.front().tensor.numel());
  const torch::jit::Stack of_member =
      is_of_lists_ ? recompute::arguments_for(arguments_, {member}) : arguments_;
  std::vector<at::Tensor> pieces(operands.size());
  for (std::size_t done = 0; done < size;) {
    std::size_t count = size - done;
    std::vector<std::byte*> memory;
    for (const Operand& operand : operands) {
      const std::size_t item = operand.tensor.itemsize();
      const auto [place, rest] = held.at(begin_of(operand.tensor) + done * item);
      memory.push_back(place);
      count = std::min(count, rest / item);
    }
    for (std::size_t i = 0; i < operands.size(); ++i)
      pieces[i] = at::from_blob(memory[i], {static_cast<std::int64_t>(count)},
                                at::TensorOptions(operands[i].tensor.dtype()).device(at::kCPU));
    run_piece(of_member, operands, pieces);
    done += count;
  }
}

void HostCall::run_piece(torch::jit::Stack stack, const std::vector<Operand>& operands,
                         const std::vector<at::Tensor>& pieces) {
  if (copies_) {
    const bool is_from_first = makes_results_;
    pieces[is_from_first ? 1 : 0].copy_(pieces[is_from_first ? 0 : 1]);
    return;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].argument >= stack.size()) continue;
    if (is_of_lists_)
      stack[operands[i].argument] = c10::List<at::Tensor>({pieces[i]});
    else
      stack[operands[i].argument] = pieces[i];
  }
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  if (makes_results_)
    pieces.back().copy_(is_of_lists_ ? stack.back().toTensorVector()[0] : stack.back().toTensor());
}

bool HostCall::run(std::size_t member, std::vector<Operand>& operands) {
  Held held(*runtime_, uses_of(operands));
  bool is_held = false;
  with_torch_errors([&] { is_held = held.hold(); });
  if (!is_held) {
    tell(op_, "host memory before the disks has no room for it (--nvme ram:SIZE,DIR), or something "
              "keeps it on the GPU");
    return false;
  }
  const c10::impl::ExcludeDispatchKeyGuard unseen(seen_at);
  run_pieces(member, operands, held);
  return true;
}

recompute::ListMembers HostCall::run(std::vector<at::Tensor>& results) {
  copy_numbers();
  recompute::ListMembers not_done;
  start_way_out(0, kAhead);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    start_way_out(i + kAhead, 1);
    std::vector<Operand> operands = operands_of(members_[i]);
    if (makes_results_) {
      const at::Tensor result = make_result(operands.front().tensor);
      if (!runtime_->find(result.storage().data()).storage.is_some()) {
        tell(op_, "its result is too small to leave the GPU");
        not_done.push_back(members_[i]);
        continue;
      }
      operands.push_back({arguments_.size(), result, true});
    }
    if (!run(members_[i], operands))
      not_done.push_back(members_[i]);
    else if (makes_results_)
      results[members_[i]] = operands.back().tensor;
  }
  return not_done;
}

}  // namespace spillway::torch_binding
