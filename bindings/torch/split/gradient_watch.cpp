#include "gradient_watch.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "call_arguments.h"
#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::split {
namespace {

using pipeline::StorageOrdinal;
using recompute::ArgumentUse;

bool is_all_of_its_storage(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() ==
             storage_of(tensor).nbytes();
}

allreduce::Element element_of(const at::Tensor& gradient, const ExchangedParameter& parameter) {
  using allreduce::Element;
  switch (gradient.scalar_type()) {
    case at::kFloat: return Element::kFloat32;
    case at::kDouble: return Element::kFloat64;
    case at::kHalf: return Element::kFloat16;
    case at::kBFloat16: return Element::kBfloat16;
    case at::kComplexFloat: return Element::kComplex64;
    case at::kComplexDouble: return Element::kComplex128;
    default: break;
  }
  throw UnsupportedError("the gradient of {} has a type that --shards cannot average: {}",
                         to_string(parameter), c10::toString(gradient.scalar_type()));
}

}  // namespace

at::Tensor leaf_of(const at::Tensor& tensor) {
  constexpr int kMostViews = 16;
  if (!tensor.requires_grad() || tensor.is_leaf()) return tensor;
  auto node = tensor.grad_fn();
  for (int views = 0; node && views < kMostViews; ++views) {
    if (const auto* const last = dynamic_cast<const torch::autograd::AccumulateGrad*>(&*node))
      return last->variable;
    if (node->num_outputs() == 0) break;
    node = node->next_edge(0).function;
  }
  return {};
}

at::Tensor leaf_in(c10::ArrayRef<c10::IValue> arguments, const c10::StorageImpl& storage) {
  at::Tensor leaf;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    if (leaf.defined() || &storage_of(tensor) != &storage) return;
    leaf = leaf_of(tensor);
    if (!leaf.defined()) leaf = tensor;
  });
  return leaf;
}

const at::Tensor* variable_of_running_node() {
  const auto node = ::torch::autograd::get_current_node();
  const auto* const accumulates =
      node == nullptr ? nullptr : dynamic_cast<const torch::autograd::AccumulateGrad*>(&*node);
  return accumulates == nullptr ? nullptr : &accumulates->variable;
}

bool overwrites_first(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames{"aten::zero_", "aten::fill_", "aten::copy_",
                                                   "aten::_foreach_zero_", "aten::_foreach_copy_"};
  return std::find(kNames.begin(), kNames.end(), name.substr(0, name.find('.'))) != kNames.end();
}

bool GradientWatch::Leaf::changes_to(const at::Tensor& now) {
  c10::TensorImpl* const impl = now.defined() ? now.unsafeGetTensorImpl() : nullptr;
  const std::uint32_t current =
      impl == nullptr || impl->is_inference() ? 0 : impl->version_counter().current_version();
  const bool is_other = impl != gradient || current != version;
  gradient = impl;
  version = current;
  return is_other;
}

void GradientWatch::add_parameter(StorageOrdinal storage, ExchangedParameter parameter) {
  parameters_[storage] = std::move(parameter);
  has_new_ = true;
}

void GradientWatch::note_use(const ExchangedParameter& parameter) {
  order_.parameter_used();
  if (parameter.forward >= newest_forward_) {
    newest_forward_ = parameter.forward;
    newest_ = parameter.what;
  }
  if (parameter.forward < oldest_forward_) {
    oldest_forward_ = parameter.forward;
    oldest_ = parameter.what;
  }
  if (has_new_ && oldest_forward_ < newest_forward_)
    throw UnsupportedError(
        "a parameter ({}) was made after forward had used another one of its model ({}), so its "
        "place may depend on data and --shards cannot tell which one of other shards it is: make "
        "all "
        "parameters before forward, or do the first forward without gradients (torch.no_grad())",
        newest_, oldest_);
}

bool GradientWatch::updates(std::span<const pipeline::OperatorUse> uses, bool overwrites) const {
  bool is_any = false;
  for (const pipeline::OperatorUse& use : uses) {
    if (!use.writes) continue;
    is_any |= parameters_.contains(use.storage);
    if (!overwrites && free_leaves_.contains(use.storage))
      throw UnsupportedError(
          "a tensor of {} that requires a gradient and is no parameter of a module "
          "(torch.nn.Parameter, register_parameter) is changed in place, and --shards takes it for "
          "data, whose gradient it does not average: make it a parameter, or make a new tensor "
          "instead",
          use.size);
  }
  return is_any;
}

void GradientWatch::note_forward(c10::ArrayRef<c10::IValue> arguments) {
  // Initialisers look at the shape of a parameter by views of it, before the others are made.
  bool has_other = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    has_other |= !tensor.requires_grad() || !tensor.is_leaf();
  });
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    if (!tensor.requires_grad()) return;
    const auto known = numbers_.find(tensor.unsafeGetTensorImpl());
    if (known != numbers_.end()) {
      if (has_other) note_use(leaves_[known->second].parameter);
      return;
    }
    const auto storage = storages_.at(storage_of(tensor).data());
    const auto parameter = storage ? parameters_.find(*storage) : parameters_.end();
    if (parameter == parameters_.end()) {
      if (!storage) refuse_foreign(tensor);
      return;
    }
    if (has_other) note_use(parameter->second);
    const at::Tensor leaf = leaf_of(tensor);
    if (!leaf.defined() || !numbers_.emplace(leaf.unsafeGetTensorImpl(), leaves_.size()).second)
      return;
    Leaf& added = leaves_.emplace_back(
        Leaf{parameter->second, c10::weak_intrusive_ptr<c10::TensorImpl>(leaf.getIntrusivePtr())});
    added.changes_to(leaf.grad());
  });
}

/// Nobody knows its storage, so no rank keeps it.
void GradientWatch::refuse_foreign(const at::Tensor& tensor) const {
  const at::Tensor leaf = leaf_of(tensor);
  if (leaf.defined() && order_.is_declared(leaf))
    throw UnsupportedError("a parameter ({} {}) lies in memory that the program has made past "
                           "LibTorch (from_numpy, from_blob), where --shards cannot average its "
                           "gradient: make it of a clone()",
                           leaf.scalar_type(), leaf.sizes());
}

std::vector<StorageOrdinal> GradientWatch::read_in_backward(const c10::OperatorHandle& op,
                                                            c10::ArrayRef<c10::IValue> arguments,
                                                            const at::Tensor* variable) {
  if (!is_in_backward_) begin_backward();
  const auto& accesses = recompute::rules_of(op).uses;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
    if (accesses[position] != ArgumentUse::kRead) refuse_update(tensor, variable);
  });
  if (variable == nullptr || !variable->grad().defined()) return {};
  const auto number = numbers_.find(variable->unsafeGetTensorImpl());
  if (number == numbers_.end()) return {};
  // What only reads a gradient that has come in this backward is a hook's.
  const at::Tensor& gradient = variable->grad();
  bool reads = false, writes = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
    if (!gradient.has_storage() || &storage_of(gradient) != &storage_of(tensor)) return;
    (accesses[position] == ArgumentUse::kRead ? reads : writes) = true;
  });
  Leaf& leaf = leaves_[number->second];
  if (!reads || writes || !leaf.changes_to(gradient)) return {};
  add(leaf.parameter, gradient);
  return {*storages_.ordinal_of(storage_of(gradient))};
}

/// Its gradient may have been read before without its mean.
void GradientWatch::refuse_update(const at::Tensor& written, const at::Tensor* variable) const {
  const auto storage = storages_.at(storage_of(written).data());
  const auto found = storage ? parameters_.find(*storage) : parameters_.end();
  if (found == parameters_.end()) return;
  if (variable != nullptr && &storage_of(*variable) == &storage_of(written)) return;
  throw UnsupportedError("{} is updated inside of backward by a hook that is not its own, where "
                         "--shards cannot average "
                         "its gradient: update it behind backward, or in its own hook "
                         "(register_post_accumulate_grad_hook)",
                         to_string(found->second));
}

std::vector<StorageOrdinal> GradientWatch::read_by(const c10::OperatorHandle& op,
                                                   c10::ArrayRef<c10::IValue> arguments) {
  if (is_in_backward_) end_backward();
  std::vector<StorageOrdinal> read;
  if (changed_.empty()) return read;
  const auto& accesses = recompute::rules_of(op).uses;
  const bool overwrites = overwrites_first(kept_name_of(op));
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
    const auto storage = changed(tensor);
    if (!storage) return;
    if (accesses[position] != ArgumentUse::kOverwrite && !(overwrites && position == 0)) {
      if (std::find(read.begin(), read.end(), *storage) == read.end()) read.push_back(*storage);
    } else if (is_all_of_its_storage(tensor)) {
      changed_.erase(*storage);
    }
  });
  return read;
}

bool GradientWatch::is_changed(StorageOrdinal storage) {
  if (is_in_backward_) end_backward();
  return changed_.contains(storage);
}

std::vector<GradientWatch::Gradient> GradientWatch::take(StorageOrdinal storage) {
  auto taken = changed_.extract(storage);
  return taken.empty() ? std::vector<Gradient>() : std::move(taken.mapped());
}

void GradientWatch::ended(StorageOrdinal storage) {
  parameters_.erase(storage);
  free_leaves_.erase(storage);
  changed_.erase(storage);
}

void GradientWatch::begin_backward() {
  is_in_backward_ = true;
  has_new_ = false;
  newest_forward_ = 0;
  oldest_forward_ = ~std::uint64_t{0};
  for (Leaf& leaf : leaves_)
    if (auto kept = leaf.variable.lock()) leaf.changes_to(at::Tensor(std::move(kept)).grad());
}

void GradientWatch::end_backward() {
  is_in_backward_ = false;
  std::vector<Leaf> left;
  for (Leaf& leaf : leaves_) {
    auto kept = leaf.variable.lock();
    if (!kept) continue;
    const at::Tensor variable(std::move(kept));
    if (leaf.changes_to(variable.grad()) && variable.grad().defined())
      add(leaf.parameter, variable.grad());
    left.push_back(std::move(leaf));
  }
  if (left.size() == leaves_.size()) {
    leaves_ = std::move(left);
    return;
  }
  leaves_ = std::move(left);
  numbers_.clear();
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    numbers_.emplace(leaves_[i].variable._unsafe_get_target(), i);
}

/// Wherever autograd has put it.
void GradientWatch::add(const ExchangedParameter& parameter, const at::Tensor& gradient) {
  if (!gradient.has_storage())
    throw UnsupportedError("the gradient of {} is sparse, which --shards cannot average: make it "
                           "dense (sparse=False)",
                           to_string(parameter));
  c10::StorageImpl& storage = *gradient.storage().unsafeGetStorageImpl();
  if (storage.nbytes() == 0) return;
  const auto ordinal = storages_.ordinal_of(storage);
  if (!ordinal)
    throw UnsupportedError("the gradient of {} lies in memory that the program has made past "
                           "LibTorch, where --shards cannot average it",
                           to_string(parameter));
  Gradient one{parameter, element_of(gradient, parameter), 0, Bytes(storage.nbytes()), &storage};
  if (gradient.is_non_overlapping_and_dense()) {
    const auto item = static_cast<std::uint64_t>(gradient.element_size());
    one.begin = static_cast<std::uint64_t>(gradient.storage_offset()) * item;
    one.size = Bytes(static_cast<std::uint64_t>(gradient.numel()) * item);
  }
  std::vector<Gradient>& there = changed_[*ordinal];
  std::erase_if(there, [&](const Gradient& other) { return other.begin == one.begin; });
  there.push_back(std::move(one));
}

std::optional<StorageOrdinal> GradientWatch::changed(const at::Tensor& tensor) const {
  const auto storage = storages_.at(storage_of(tensor).data());
  if (!storage || !changed_.contains(*storage)) return std::nullopt;
  return storage;
}

}  // namespace spillway::split
