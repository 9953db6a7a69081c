#include "gradient_means.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "call_arguments.h"
#include "first_rank.h"

namespace spillway::split {

using pipeline::StorageOrdinal;

/// What `look` returns.
template <typename Look>
auto GradientMeans::or_end(const Look& look) {
  try {
    return look();
  } catch (const UnsupportedError& error) {
    job_.abort(error.what());
  }
}

std::vector<GradientMeans::Storages> GradientMeans::read_by(const c10::OperatorHandle& op,
                                                            c10::ArrayRef<c10::IValue> arguments,
                                                            OpPhase phase, std::uint64_t step) {
  const bool is_backward = phase == OpPhase::kBackward;
  if (is_backward) step_ = step;
  std::vector<StorageOrdinal> read = or_end([&] {
    return is_backward ? gradients_.read_in_backward(op, arguments, variable_of_running_node())
                       : gradients_.read_by(op, arguments);
  });
  if (read.empty()) return {};
  Storages storages;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    const auto ordinal = storages_.at(storage_of(tensor).data());
    const auto found = ordinal ? std::find(read.begin(), read.end(), *ordinal) : read.end();
    if (found == read.end()) return;
    storages.emplace_back(*ordinal, &storage_of(tensor));
    read.erase(found);
  });
  return together(storages);
}

std::vector<GradientMeans::Storages> GradientMeans::read_at(StorageOrdinal ordinal) {
  if (!or_end([&] { return gradients_.is_changed(ordinal); })) return {};
  return together({{ordinal, gradients_.at(ordinal).front().storage}});
}

/// Small ones that are kept together go together.
std::vector<GradientMeans::Storages> GradientMeans::together(const Storages& storages) const {
  constexpr Bytes kAlone = 256_KiB;
  using Place = std::tuple<bool, Rank, allreduce::Element, bool>;
  std::map<Place, Storages> small;
  std::vector<Storages> all;
  for (const auto& [ordinal, storage] : storages) {
    const auto& gradients = gradients_.at(ordinal);
    const pipeline::StorageFacts& facts = directory_.at(ordinal);
    const Place place{facts.is_everywhere || !facts.unit,
                      facts.home.is_some() ? facts.home : facts.computed_by,
                      gradients.front().element, storage->device().is_cuda()};
    if (Bytes(storage->nbytes()) >= kAlone || gradients.size() > 1) {
      all.push_back({{ordinal, storage}});
      continue;
    }
    Storages& others = small[place];
    others.emplace_back(ordinal, storage);
    if (others.size() == ShardExchange::kMostParameters) all.push_back(std::exchange(others, {}));
  }
  for (auto& [place, others] : small)
    if (!others.empty()) all.push_back(std::move(others));
  return all;
}

void GradientMeans::ask_for(const Storages& storages, Rank keeper, bool is_here) {
  std::vector<ExchangedParameter> parameters;
  std::vector<StorageRange> ranges;
  std::vector<StorageOrdinal> ordinals;
  allreduce::Element element{};
  for (const auto& [ordinal, storage] : storages) {
    for (const GradientWatch::Gradient& gradient : gradients_.take(ordinal)) {
      parameters.push_back(gradient.parameter);
      ranges.push_back({ordinals.size(), gradient.begin, gradient.size});
      element = gradient.element;
    }
    ordinals.push_back(ordinal);
  }
  ++means_;
  // One storage may have the gradients of a whole model.
  constexpr auto kMost = static_cast<std::ptrdiff_t>(ShardExchange::kMostParameters);
  while (!parameters.empty()) {
    const auto count = std::min(kMost, std::ssize(parameters));
    auto mean = shards_.mean_of(step_, {parameters.begin(), parameters.begin() + count}, element,
                                {ranges.begin(), ranges.begin() + count},
                                storages.front().second->device(), keeper, is_here);
    if (is_here) executor_.add_effort(std::move(mean), ordinals, /*writes=*/true);
    parameters.erase(parameters.begin(), parameters.begin() + count);
    ranges.erase(ranges.begin(), ranges.begin() + count);
  }
}

void GradientMeans::begin_equal(const pipeline::Decision::Dealt& dealt, Bytes size,
                                c10::StorageImpl& storage, c10::ArrayRef<c10::IValue> arguments,
                                std::uint64_t step, bool is_here) {
  const at::Tensor leaf = leaf_in(arguments, storage);
  if (!order_.is_declared(leaf)) {
    gradients_.add_free_leaf(dealt.parameter);
    return;
  }
  const std::string what = message("{} {}", leaf.scalar_type(), leaf.sizes());
  const auto place = order_.place_of(leaf);
  if (!place)
    job_.abort(message("a parameter ({}) has come to require a gradient unseen, so --shards cannot "
                       "tell which one of other shards it is: make it by torch.nn.Parameter or "
                       "register_parameter",
                       what));
  const ExchangedParameter parameter{place->name, what, place->forward};
  gradients_.add_parameter(dealt.parameter, parameter);
  auto copy = shards_.copy_of_first(step, parameter, size, storage.device(), dealt.holders.first(),
                                    is_here);
  if (!is_here) return;
  const bool takes = shards_.shard() != kFirst;
  memory_.hand_over(storage, dealt.parameter, takes);
  executor_.add_effort(std::move(copy), {&dealt.parameter, 1}, takes);
  if (dealt.holders.is_all()) executor_.wait_for(dealt.parameter, takes, "a first parameter");
}

void GradientMeans::note_forward(c10::ArrayRef<c10::IValue> arguments) {
  or_end([&] { gradients_.note_forward(arguments); });
}

void GradientMeans::note_update(std::string_view name, std::span<const pipeline::OperatorUse> uses,
                                bool is_updating) {
  has_updated_ |=
      or_end([&] { return gradients_.updates(uses, overwrites_first(name)); }) && is_updating;
}

void GradientMeans::begin_step(std::uint64_t steps) {
  const bool has_mean = std::exchange(means_, 0) > 0;
  if (std::exchange(has_updated_, false) && !has_mean)
    job_.abort(message("step {} has updated parameters without gradients that --shards has "
                       "averaged: it averages what backward() leaves in .grad of parameters",
                       steps));
}

}  // namespace spillway::split
