#include "parameter_order.h"

#include <algorithm>
#include <utility>

#include "python_parameters.h"
#include "spillway/base/mix.h"

namespace spillway::split {
namespace {

std::uint64_t kind_of(const c10::TensorImpl& leaf) {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(c10::typeMetaToScalarType(leaf.dtype())));
  for (const std::int64_t size : leaf.sizes()) hash = mix(hash, static_cast<std::uint64_t>(size));
  return hash;
}

}  // namespace

ParameterOrder::Leaf& ParameterOrder::noted(c10::TensorImpl& leaf) {
  const auto known = leaves_.find(&leaf);
  if (known != leaves_.end() && !known->second.tensor.expired()) return known->second;
  if (leaves_.size() >= most_) {
    std::erase_if(leaves_, [](const auto& one) { return one.second.tensor.expired(); });
    most_ = std::max(most_, 2 * leaves_.size());
  }
  Leaf made{.tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(
                c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(&leaf))};
  return leaves_.insert_or_assign(&leaf, std::move(made)).first->second;
}

void ParameterOrder::leaf_made(c10::TensorImpl& leaf) {
  Leaf& made = noted(leaf);
  if (made.in) return;
  if (!open_) {
    open_ = std::make_shared<Period>();
    open_->number = periods_++;
  }
  made.in = open_;
  made.kind = kind_of(leaf);
  made.number = ++open_->counts[made.kind];
}

void ParameterOrder::registered(const at::Tensor& parameter) {
  if (parameter.defined()) noted(*parameter.unsafeGetTensorImpl()).is_registered = true;
}

const ParameterOrder::Leaf* ParameterOrder::find(const at::Tensor& leaf) const {
  const auto found = leaves_.find(leaf.unsafeGetTensorImpl());
  return found == leaves_.end() || found->second.tensor.expired() ? nullptr : &found->second;
}

bool ParameterOrder::is_declared(const at::Tensor& leaf) const {
  const Leaf* const known = find(leaf);
  return (known != nullptr && known->is_registered) || is_python_parameter(leaf);
}

std::optional<ParameterOrder::Place> ParameterOrder::place_of(const at::Tensor& leaf) const {
  const Leaf* const known = find(leaf);
  if (known == nullptr || !known->in) return std::nullopt;
  return Place{
      {mix(known->in->number, known->kind), known->number, known->in->counts.at(known->kind)},
      known->in->number};
}

}  // namespace spillway::split
