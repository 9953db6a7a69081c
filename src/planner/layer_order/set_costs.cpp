#include "set_costs.h"

#include <algorithm>
#include <numeric>

#include "layer_figures.h"

namespace spillway::layer_order {

UnitCosts::UnitCosts(const partition::PartitionProblem& problem, const UnitGraph& graph)
    : problem_(problem), graph_(graph), stages_(partition::stage_constants(problem)) {
  add_units();
  add_ties();
  rank_items();
}

void UnitCosts::add_units() {
  const std::vector<partition::ModelLayer>& layers = problem_.chain.layers;
  for (std::uint32_t index = 0; index < graph_.units(); ++index) {
    Unit unit;
    for (partition::LayerIndex i = graph_.first_layer[index]; i < graph_.first_layer[index + 1];
         ++i) {
      unit.load.add(layers[i], i < graph_.lead);
      unit.peak = std::max(unit.peak, partition::as_double(layers[i].working_peak));
      if (i < graph_.lead) continue;
      for (const partition::SumPair& item : partition::recompute_items(layers[i]))
        unit.items.push_back({0, item});
    }
    // They come first in every order, see `UnitGraph`.
    if (graph_.first_layer[index + 1] <= graph_.lead) frozen_units_ = index + 1;
    units_.push_back(std::move(unit));
  }
}

void UnitCosts::add_ties() {
  const auto& first = graph_.first_layer;
  for (std::uint32_t tie = 0; tie < problem_.chain.ties.size(); ++tie)
    for (const partition::LayerIndex layer : problem_.chain.ties[tie].layers) {
      // The unit with the last first layer that is not behind this one.
      const auto behind = std::upper_bound(first.begin(), first.end(), layer);
      units_[static_cast<std::size_t>(behind - first.begin()) - 1].ties.push_back(tie);
    }
}

void UnitCosts::rank_items() {
  std::vector<Item*> all;
  for (Unit& unit : units_)
    for (Item& item : unit.items) all.push_back(&item);
  std::stable_sort(all.begin(), all.end(), [](const Item* one, const Item* other) {
    return partition::density_of(one->sum) > partition::density_of(other->sum);
  });
  // One order of all items: sets of units then only sort numbers.
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i]->rank = i;
}

double UnitCosts::working_peak(const Units& units) const {
  double peak = 0.0;
  for (const std::uint32_t unit : units) peak = std::max(peak, units_[unit].peak);
  return peak;
}

partition::SumPair UnitCosts::spared(const Units& units) const {
  partition::SumPair spared;
  if (problem_.chain.ties.empty()) return spared;
  std::vector<char> is_seen(problem_.chain.ties.size(), 0);
  for (const std::uint32_t unit : units)
    for (const std::uint32_t tie : units_[unit].ties) {
      const partition::TiedWeights& weights = problem_.chain.ties[tie];
      // The first of them holds the weights, and all further ones spare them.
      if (is_seen[tie] != 0)
        spared += partition::static_pair(problem_.chain.layers[weights.layers[0]],
                                         partition::as_double(weights.bytes));
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
  double fastest = partition::kNever;
  double speed = 0.0;  // Of all devices together.
  TransferRate rate;
  double memory = 0.0;
  partition::SegmentLoad all;
  all.in_flight = partition::kNever;
  double versions = partition::kNever;
  double copies = partition::kNever;
  for (const partition::StageConstants& stage : stages_) {
    fastest = std::min(fastest, stage.slowdown);
    speed += 1.0 / stage.slowdown;
    rate += stage.swap_rate;
    memory += stage.memory - stage.reserved;
    // The least of all stages, so that the device which stands for all of them holds no more than
    // they do.
    all.in_flight = std::min(all.in_flight, stage.held.in_flight);
    versions = std::min(versions, stage.held.weight_versions);
    copies = std::min(copies, stage.held.state_copies);
  }
  partition::UnitLoad sum;
  double largest = 0.0;
  for (const Unit& unit : units_) {
    sum += unit.load;
    // No stage is quicker than its largest unit on the best of the devices.
    largest = std::max(largest, unit.load.seconds * fastest);
  }
  Units units(graph_.units());
  std::iota(units.begin(), units.end(), 0U);
  const partition::SumPair twice = spared(units);
  all.seconds = sum.seconds;
  all.stash_bytes = sum.stash;
  all.fixed_bytes =
      copies * (sum.fixed - twice.a) + versions * (sum.versioned - twice.b) + sum.buffers;
  // One device that has the time and memory of all: after T seconds, T * speed have passed on it.
  const double excess = all.excess_bytes(memory);
  if (excess == partition::kNever) return partition::kNever;
  const double together =
      excess <= 0.0 ? all.seconds
                    : partition::reduced_seconds(items(units, 1.0), all, excess, rate / speed);
  return std::max(largest, together / speed);
}

SetCosts::SetCosts(const UnitCosts& units, const Downsets& sets) : units_(units), sets_(sets) {
  sums_.resize(sets.count());
  for (std::uint32_t set = 0; set < sets.count(); ++set)
    for (const std::uint32_t unit : sets.between(0, set)) sums_[set] += units.load(unit);
}

/// Behind frozen layers alone no gradient returns. Those that lead run first in every order.
double SetCosts::ways(std::uint32_t set) const {
  const std::uint32_t size = sets_.size(set);
  return size > 0 && size <= units_.frozen_units() ? 1.0 : 2.0;
}

/// Of what comes into the stage, the bytes that it keeps for backward.
double SetCosts::kept_bytes(std::uint32_t small, const UnitCosts::Units& between) const {
  const UnitGraph& graph = units_.graph();
  std::vector<std::uint32_t> kept;
  for (const std::uint32_t unit : between)
    for (const UnitInput& input : graph.read[unit])
      if (input.is_kept && sets_.has(small, graph.tensors[input.tensor].producer))
        kept.push_back(input.tensor);
  // A tensor that several units of the stage keep is there once.
  std::sort(kept.begin(), kept.end());
  double bytes = 0.0;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (i == 0 || kept[i] != kept[i - 1]) bytes += graph.tensors[kept[i]].bytes;
  return bytes;
}

void SetCosts::add_memory(partition::SegmentLoad& load, std::uint32_t small, std::uint32_t large,
                          const partition::StageConstants& stage,
                          const UnitCosts::Units& between) const {
  const partition::UnitLoad& from = sums_[small];
  const partition::UnitLoad& to = sums_[large];
  const partition::SumPair twice = units_.spared(between);
  const double kept = kept_bytes(small, between);
  // What comes in and is not kept is only read or passed on, in one buffer whatever is in flight.
  const double relayed = sets_.crossing_bytes(small) - kept;
  load.stash_bytes = to.stash - from.stash + kept;
  load.fixed_bytes = stage.reserved + stage.held.state_copies * (to.fixed - from.fixed - twice.a) +
                     stage.held.weight_versions * (to.versioned - from.versioned - twice.b) +
                     to.buffers - from.buffers + units_.working_peak(between) + relayed;
}

double SetCosts::least_seconds(std::uint32_t small, std::uint32_t large,
                               std::uint32_t index) const {
  const partition::StageConstants& stage = units_.stages()[index];
  partition::SegmentLoad load;
  load.in_flight = stage.held.in_flight;
  load.swap_rate = stage.swap_rate;
  load.seconds = (sums_[large].seconds - sums_[small].seconds) * stage.slowdown;
  const partition::StageEnds ends{sets_.crossing_bytes(small), sets_.crossing_bytes(large),
                                  ways(small), ways(large)};
  partition::add_transfers(load, stage, ends, units_.problem());
  // What lies between two sets is a list that takes time to make; without a limit nobody asks for
  // it.
  if (stage.memory == partition::kNever) return load.busy_seconds();
  const UnitCosts::Units between = sets_.between(small, large);
  add_memory(load, small, large, stage, between);
  const double excess = load.excess_bytes(stage.memory);
  if (excess <= 0.0) return load.busy_seconds();
  if (excess == partition::kNever) return partition::kNever;
  return partition::reduced_seconds(units_.items(between, stage.slowdown), load, excess,
                                    load.swap_rate);
}

}  // namespace spillway::layer_order
