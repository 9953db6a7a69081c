#include "order/unit_costs.h"

#include <algorithm>
#include <numeric>

#include "chain_units.h"
#include "recompute_items.h"

namespace spillway::planner {

UnitCosts::UnitCosts(const PartitionProblem& problem, const UnitGraph& graph)
    : problem_(problem), graph_(graph), stages_(stage_constants(problem)) {
  add_units();
  add_ties();
  rank_items();
}

void UnitCosts::add_units() {
  const std::vector<ModelLayer>& layers = problem_.chain.layers;
  for (std::uint32_t index = 0; index < graph_.units(); ++index) {
    Unit unit;
    for (LayerIndex i = graph_.first_layer[index]; i < graph_.first_layer[index + 1]; ++i) {
      const SumPair bytes = static_pair(layers[i], as_double(layers[i].parameters));
      unit.load.fixed += bytes.a;
      unit.load.versioned += bytes.b;
      unit.load.buffers += as_double(layers[i].buffers);
      unit.load.seconds += layers[i].forward_seconds;
      unit.peak = std::max(unit.peak, as_double(layers[i].working_peak));
      if (i < graph_.lead) continue;
      unit.load.seconds += layers[i].backward_seconds;
      unit.load.stash += as_double(layers[i].stash);
      for (const SumPair& item : recompute_items(layers[i])) unit.items.push_back({0, item});
    }
    if (graph_.first_layer[index + 1] <= graph_.lead) frozen_units_ = index + 1;
    units_.push_back(std::move(unit));
  }
}

void UnitCosts::add_ties() {
  const auto& first = graph_.first_layer;
  for (std::uint32_t tie = 0; tie < problem_.chain.ties.size(); ++tie)
    for (const LayerIndex layer : problem_.chain.ties[tie].layers) {
      const auto behind = std::upper_bound(first.begin(), first.end(), layer);
      units_[static_cast<std::size_t>(behind - first.begin()) - 1].ties.push_back(tie);
    }
}

void UnitCosts::rank_items() {
  std::vector<Item*> all;
  for (Unit& unit : units_)
    for (Item& item : unit.items) all.push_back(&item);
  const auto density = [](const Item& item) {
    return item.sum.a > 0.0 ? item.sum.b / item.sum.a : kNoLink;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Item* one, const Item* other) {
    return density(*one) > density(*other);
  });
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i]->rank = i;
}

double UnitCosts::working_peak(const Units& units) const {
  double peak = 0.0;
  for (const std::uint32_t unit : units) peak = std::max(peak, units_[unit].peak);
  return peak;
}

SumPair UnitCosts::spared(const Units& units) const {
  SumPair spared;
  if (problem_.chain.ties.empty()) return spared;
  std::vector<char> is_seen(problem_.chain.ties.size(), 0);
  for (const std::uint32_t unit : units)
    for (const std::uint32_t tie : units_[unit].ties) {
      const TiedWeights& weights = problem_.chain.ties[tie];
      if (is_seen[tie] != 0)
        spared += static_pair(problem_.chain.layers[weights.layers[0]], as_double(weights.bytes));
      is_seen[tie] = 1;
    }
  return spared;
}

RankedItems UnitCosts::items(const Units& units, double slowdown) const {
  std::vector<Item> all;
  for (const std::uint32_t unit : units)
    all.insert(all.end(), units_[unit].items.begin(), units_[unit].items.end());
  std::sort(all.begin(), all.end(),
            [](const Item& one, const Item& other) { return one.rank < other.rank; });
  RankedItems ranked{{}, slowdown};
  for (const Item& item : all) ranked.items.push_back(item.sum);
  return ranked;
}

double UnitCosts::bound_seconds() const {
  double fastest = kNever;
  double speed = 0.0;  // Of all devices together.
  double rate = 0.0;
  double memory = 0.0;
  SegmentLoad all;
  all.in_flight = kNever;
  double versions = kNever;
  double copies = kNever;
  for (const StageConstants& stage : stages_) {
    fastest = std::min(fastest, stage.slowdown);
    speed += 1.0 / stage.slowdown;
    rate += stage.swap_rate;
    memory += stage.memory - stage.reserved;
    all.in_flight = std::min(all.in_flight, stage.in_flight);
    versions = std::min(versions, stage.weight_versions);
    copies = std::min(copies, stage.state_copies);
  }
  UnitLoad sum;
  double largest = 0.0;
  for (const Unit& unit : units_) {
    sum += unit.load;
    largest = std::max(largest, unit.load.seconds * fastest);
  }
  Units units(graph_.units());
  std::iota(units.begin(), units.end(), 0U);
  const SumPair twice = spared(units);
  all.seconds = sum.seconds;
  all.stash_bytes = sum.stash;
  all.fixed_bytes =
      copies * (sum.fixed - twice.a) + versions * (sum.versioned - twice.b) + sum.buffers;
  // One device that has the time and memory of all: after T seconds, T * speed have passed on it.
  const double excess = all.excess_bytes(memory);
  if (excess == kNever) return kNever;
  const double together =
      excess <= 0.0 ? all.seconds : reduced_seconds(items(units, 1.0), all, excess, rate / speed);
  return std::max(largest, together / speed);
}

}  // namespace spillway::planner
