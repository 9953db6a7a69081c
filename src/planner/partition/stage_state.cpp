#include "stage_state.h"

#include <algorithm>
#include <numeric>

#include "layer_figures.h"
#include "plain_figures.h"

namespace spillway::partition {

SpanSums::SpanSums(std::vector<Span> spans, std::uint32_t units) {
  if (spans.empty()) return;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& one, const Span& other) { return one.start < other.start; });
  // Positions by starts and ranks by ends: what starts in one range and ends before a cut is then a
  // stretch of positions below a rank.
  const auto count = static_cast<std::uint32_t>(spans.size());
  std::vector<std::uint32_t> by_end(count);
  std::iota(by_end.begin(), by_end.end(), 0U);
  std::stable_sort(by_end.begin(), by_end.end(), [&](std::uint32_t one, std::uint32_t other) {
    return spans[one].end < spans[other].end;
  });
  std::vector<std::uint32_t> rank(count);
  std::vector<SumPair> weights;
  for (std::uint32_t i = 0; i < count; ++i) rank[by_end[i]] = i;
  for (const Span& span : spans) {
    weights.push_back(span.weight);
    totals_.push_back(totals_.back() + span.weight);
  }
  sums_ = RankedSums(std::move(rank), weights);
  starts_below_.resize(units + 1);
  ends_below_.resize(units + 1);
  for (const Span& span : spans) {
    // Counted by unit, so that a query needs no search for the spans at a cut.
    if (span.start < units) ++starts_below_[span.start + 1];
    if (span.end < units) ++ends_below_[span.end + 1];
  }
  for (std::uint32_t unit = 0; unit < units; ++unit) {
    starts_below_[unit + 1] += starts_below_[unit];
    ends_below_[unit + 1] += ends_below_[unit];
  }
}

SegmentCosts::State::State(PartitionProblem given) : problem(std::move(given)) {
  check(problem);
  make_units();
  add_units();
  add_borders();
  add_ties();
  stages = stage_constants(problem);
}

void SegmentCosts::State::make_units() {
  first_layer = first_layers_of_units(problem.chain);
  for (std::uint32_t unit = 0; unit + 1 < first_layer.size(); ++unit)
    unit_of_layer_.resize(first_layer[unit + 1], unit);
}

void SegmentCosts::State::add_units() {
  const std::vector<ModelLayer>& layers = problem.chain.layers;
  lead_ = leading_frozen_layers(problem.chain);
  std::vector<SumPair> steps;
  std::vector<double> peak;
  before.emplace_back();
  parameters.push_back(0.0);
  for (std::size_t unit = 0; unit + 1 < first_layer.size(); ++unit) {
    // Running sums: figures of any segment are one difference.
    UnitSums sums = before.back();
    parameters.push_back(parameters.back());
    peak.push_back(0.0);
    for (LayerIndex i = first_layer[unit]; i < first_layer[unit + 1]; ++i) {
      const ModelLayer& layer = layers[i];
      sums.add(layer, i < lead_);
      parameters.back() += as_double(layer.parameters);
      peak.back() = std::max(peak.back(), as_double(layer.working_peak));
      if (i < lead_) continue;
      for (const SumPair& item : recompute_items(layer)) steps.push_back(item);
    }
    sums.items = static_cast<std::uint32_t>(steps.size());
    before.push_back(sums);
    // Cuts in front of it send activations only: no gradient comes back to frozen layers.
    if (first_layer[unit + 1] <= lead_) last_forward_cut = static_cast<std::uint32_t>(unit + 1);
  }
  peaks = PeakTable(std::move(peak));
  // Fractions of items are taken by bytes per second, so their ranks are fixed once for all
  // segments.
  items = sums_by_density(steps);
}

void SegmentCosts::State::add_borders() {
  const auto units = static_cast<std::uint32_t>(before.size() - 1);
  std::vector<double> crossing(units + 2, 0.0);
  std::vector<double> relayed(units + 2, 0.0);
  std::vector<double> untrained(units + 2, 0.0);
  std::vector<SpanSums::Span> pieces;
  for (const BorderTensor& border : problem.chain.borders) {
    const double bytes = as_double(border.bytes);
    const std::uint32_t producer = unit_of(border.producer);
    std::uint32_t last = producer;
    // Leading frozen layers read it and need it no more: no gradient goes there.
    std::vector<std::uint32_t> keepers;
    for (const LayerIndex consumer : border.consumers) {
      last = std::max(last, unit_of(consumer));
      if (consumer >= lead_) keepers.push_back(unit_of(consumer));
    }
    // As differences over cuts: a tensor crosses all of them from its producer to its last reader.
    crossing[producer + 1] += bytes;
    crossing[last + 1] -= bytes;
    // No backward needs it, so it is never a part of a stash.
    if (keepers.empty()) {
      untrained[producer + 1] += bytes;
      untrained[last + 1] -= bytes;
    }
    std::sort(keepers.begin(), keepers.end());
    // Stages between one reader that keeps it and the next one only pass it on.
    std::uint32_t from = producer;
    for (const std::uint32_t reader : keepers) {
      // Between two readers in a row no stage can only pass it on.
      if (reader - from > 1) {
        pieces.push_back({from, reader, {bytes, 0.0}});
        relayed[from + 1] += bytes;
        relayed[reader + 1] -= bytes;
      }
      from = reader;
    }
  }
  double over = 0.0;
  double passing = 0.0;
  double unkept = 0.0;
  for (std::uint32_t unit = 0; unit <= units; ++unit) {
    before[unit].crossing = over += crossing[unit];
    before[unit].untrained = unkept += untrained[unit];
    passing += relayed[unit];
    largest_crossing = std::max(largest_crossing, over);
    // Upper bounds of segments whose borders nobody has looked at (`Borders::kLargest`).
    largest_relayed = std::max(largest_relayed, passing + unkept);
  }
  long_pieces = SpanSums(std::move(pieces), units);
}

void SegmentCosts::State::add_ties() {
  const auto units = static_cast<std::uint32_t>(before.size() - 1);
  std::vector<SpanSums::Span> pairs;
  std::vector<SpanSums::Span> parameter_pairs;
  std::vector<SumPair> spared_inside(units + 1);  // By unit: what its own layers share.
  for (const TiedWeights& tie : problem.chain.ties) {
    std::vector<LayerIndex> layers = tie.layers;
    std::sort(layers.begin(), layers.end());
    // Neighbours in pairs: of n such layers in a segment n - 1 pairs lie inside it, and each spares
    // one copy of what they share.
    for (std::size_t i = 1; i < layers.size(); ++i) {
      const SumPair spared = static_pair(problem.chain.layers[layers[i]], as_double(tie.bytes));
      const std::uint32_t unit = unit_of(layers[i]);
      const std::uint32_t other = unit_of(layers[i - 1]);
      // Also within a unit, since the sums of parameters have all layers.
      parameter_pairs.push_back({other, unit, {as_double(tie.bytes), 0.0}});
      // Inside a unit they are always together, so what they share can be taken off at once.
      if (other != unit) {
        pairs.push_back({other, unit, spared});
      } else {
        spared_inside[unit + 1] += spared;
      }
    }
  }
  SumPair spared;
  for (std::uint32_t unit = 0; unit <= units; ++unit) {
    spared += spared_inside[unit];
    before[unit].fixed -= spared.a;
    before[unit].versioned -= spared.b;
  }
  tied = SpanSums(std::move(pairs), units);
  tied_parameters = SpanSums(std::move(parameter_pairs), units);
}

std::vector<StageConstants> stage_constants(const PartitionProblem& problem) {
  std::vector<StageConstants> stages;
  for (std::size_t i = 0; i < problem.devices.size(); ++i) {
    const StageDevice& device = problem.devices[i];
    StageConstants stage;
    stage.slowdown = device.slowdown;
    stage.reserved = as_double(device.reserved);
    // Else it stays infinite, so that comparisons need no case of their own.
    if (device.memory != kNoLimit) stage.memory = as_double(device.memory);
    stage.held = device.held;
    stage.swap_rate = device.swap_rate;
    if (i > 0 && !problem.links.empty()) stage.before = problem.links[i - 1];
    if (i < problem.links.size()) stage.behind = problem.links[i];
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace spillway::partition
