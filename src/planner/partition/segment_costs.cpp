#include "spillway/planner/partition/segment_costs.h"

#include <algorithm>

#include "plain_figures.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/sizes_apart.h"
#include "stage_state.h"

namespace spillway::partition {

namespace {

/// A unit that no stage can hold, with what it takes on the stage that comes nearest to it.
[[noreturn]] void refuse_unit(const SegmentCosts& costs, std::uint32_t unit) {
  constexpr double kLongEnough = 1e12;  // All that can be recomputed is.
  // All but stashes stays on the device, whatever is swapped.
  const auto lacks_swaps = [&](std::uint32_t stage) {
    return costs.load({unit, unit + 1, stage}, Borders::kNone).fixed_bytes <=
           costs.device_bytes(stage);
  };
  const auto needed = [&](std::uint32_t stage) {
    return lacks_swaps(stage) ? costs.least_bytes({unit, unit + 1, stage}, kLongEnough,
                                                  Borders::kNone, MemoryReduction::kRecompute)
                              : costs.load({unit, unit + 1, stage}, Borders::kNone).fixed_bytes;
  };
  const auto missing = [&](std::uint32_t stage) {
    return needed(stage) - costs.device_bytes(stage);
  };
  std::uint32_t nearest = 0;
  for (std::uint32_t stage = 1; stage < costs.stages(); ++stage)
    if (missing(stage) < missing(nearest)) nearest = stage;
  const ModelLayer& layer = costs.problem().chain.layers[costs.first_layer(unit)];
  const std::string name = message(
      "layer {} ('{}'){}", costs.first_layer(unit), shown_text(layer.name),
      costs.first_layer(unit + 1) - costs.first_layer(unit) > 1 ? " with what stays with it" : "");
  const SizesApart sizes =
      sizes_apart(as_bytes(needed(nearest)), as_bytes(costs.device_bytes(nearest)));
  if (lacks_swaps(nearest))
    throw ConfigError(
        "{} fits on none of these devices while nothing is swapped: recomputed, it takes {}, and a "
        "stage may hold {} of its device; let it swap (--link-out and --link-in, and no "
        ":recompute), use devices with more memory, or split it",
        name, sizes.first, sizes.second);
  throw ConfigError(
      "{} fits on none of these devices: it takes {} beside all that can be swapped and "
      "recomputed, and a stage may hold {} of its device; {}use devices with more memory, or split "
      "it",
      name, sizes.first, sizes.second,
      // Other stages of a rank may swap, and leave it more of the device.
      can_swap(costs.problem())
          ? ""
          : "let others swap (--link-out and --link-in, and no :recompute), ");
}

}  // namespace

double SegmentLoad::excess_bytes(double bytes) const {
  if (bytes == kNever) return 0.0;
  // Swaps and recomputation take stash away and nothing else.
  if (fixed_bytes > bytes) return kNever;
  // Of one micro-batch, as swaps and recomputation count.
  return stash_bytes - (bytes - fixed_bytes) / in_flight;
}

double SegmentLoad::busy_seconds() const { return std::max(seconds, link_seconds); }

SegmentCosts::SegmentCosts(PartitionProblem problem)
    : state_(std::make_unique<State>(std::move(problem))) {
  // The first stage that can hold a unit is enough, and mostly the first one.
  for (std::uint32_t unit = 0; unit < units(); ++unit) {
    const auto fits = [&](std::uint32_t stage) {
      return least_seconds({unit, unit + 1, stage}, device_bytes(stage), Borders::kNone) < kNever;
    };
    std::uint32_t stage = 0;
    while (stage < stages() && !fits(stage)) ++stage;
    if (stage == stages()) refuse_unit(*this, unit);
  }
}

SegmentCosts::~SegmentCosts() = default;
SegmentCosts::SegmentCosts(SegmentCosts&&) noexcept = default;
SegmentCosts& SegmentCosts::operator=(SegmentCosts&&) noexcept = default;

const PartitionProblem& SegmentCosts::problem() const { return state_->problem; }
std::uint32_t SegmentCosts::units() const {
  return static_cast<std::uint32_t>(state_->before.size() - 1);
}
std::uint32_t SegmentCosts::stages() const {
  return static_cast<std::uint32_t>(state_->stages.size());
}
LayerIndex SegmentCosts::first_layer(std::uint32_t unit) const { return state_->first_layer[unit]; }
double SegmentCosts::crossing_bytes(std::uint32_t unit) const {
  return state_->before[unit].crossing;
}
double SegmentCosts::parameter_bytes(std::uint32_t first, std::uint32_t end) const {
  return state_->parameters[end] - state_->parameters[first];
}
double SegmentCosts::held_parameter_bytes(std::uint32_t first, std::uint32_t end) const {
  const SpanSums& tied = state_->tied_parameters;
  const double all = parameter_bytes(first, end);
  if (tied.is_empty()) return all;
  return all - tied.ending_before(tied.starting_before(first), tied.count(), end).a;
}
double SegmentCosts::trained_bytes(std::uint32_t first, std::uint32_t end) const {
  // Only what is trained has a copy for each version, see `static_pair`.
  return state_->static_pair_of(first, end).b;
}
double SegmentCosts::buffer_bytes(std::uint32_t first, std::uint32_t end) const {
  return state_->before[end].buffers - state_->before[first].buffers;
}
double SegmentCosts::layer_seconds(std::uint32_t first, std::uint32_t end) const {
  // Differences of running sums: any segment costs as little to ask for as a single unit.
  return state_->before[end].seconds - state_->before[first].seconds;
}
double SegmentCosts::device_bytes(std::uint32_t stage) const {
  return state_->stages[stage].memory;
}
bool SegmentCosts::is_monotone() const {
  // Behind frozen layers a cut sends one way only, so that a longer segment may send less.
  const bool has_even_links = state_->problem.transfers_hide || state_->last_forward_cut == 0;
  return has_even_links && state_->largest_crossing == 0.0;
}

SumPair SegmentCosts::State::static_pair_of(std::uint32_t first, std::uint32_t end) const {
  SumPair bytes{before[end].fixed - before[first].fixed,
                before[end].versioned - before[first].versioned};
  if (!tied.is_empty())
    bytes = bytes - tied.ending_before(tied.starting_before(first), tied.count(), end);
  return bytes;
}

double SegmentCosts::static_bytes(std::uint32_t first, std::uint32_t end) const {
  const SumPair bytes = state_->static_pair_of(first, end);
  return bytes.a + bytes.b + buffer_bytes(first, end);
}

SegmentLoad SegmentCosts::load(Segment segment, Borders borders) const {
  const State& state = *state_;
  const auto [first, end, index] = segment;
  const StageConstants& stage = state.stages[index];
  const UnitSums& from = state.before[first];
  const UnitSums& to = state.before[end];
  SegmentLoad load;
  load.in_flight = stage.held.in_flight;
  load.swap_rate = stage.swap_rate;
  load.seconds = (to.seconds - from.seconds) * stage.slowdown;
  load.stash_bytes = to.stash - from.stash;
  const SumPair bytes = state.static_pair_of(first, end);
  load.fixed_bytes = stage.reserved + stage.held.state_copies * bytes.a +
                     stage.held.weight_versions * bytes.b + buffer_bytes(first, end) +
                     state.peaks.largest(first, end);
  double into = 0.0;
  double out = 0.0;
  if (borders == Borders::kExact) {
    double relayed = 0.0;
    if (!state.long_pieces.is_empty()) {
      const std::uint32_t started = state.long_pieces.starting_before(first);
      relayed = state.long_pieces.total_before(started).a -
                state.long_pieces.ending_before(0, started, end).a;
    }
    // Tensors that only frozen layers read are never kept for a backward: one buffer holds them.
    relayed += from.untrained;
    into = from.crossing;
    out = to.crossing;
    load.stash_bytes += into - relayed;
    load.fixed_bytes += relayed;
  } else if (borders == Borders::kLargest) {
    // An upper bound has to hold for every segment that contains this one, whatever crosses its own
    // ends, so it takes the largest crossing for both.
    into = out = state.largest_crossing;
    load.stash_bytes += state.largest_crossing;
    load.fixed_bytes += state.largest_relayed;
  }
  // Bounds take the fewest directions that a cut may have, and the most.
  const auto ways = [&](std::uint32_t cut) {
    if (borders == Borders::kExact) return state.directions(cut);
    return borders == Borders::kNone ? 1.0 : 2.0;
  };
  add_transfers(load, stage, {into, out, ways(first), ways(end)}, state.problem);
  return load;
}

double SegmentCosts::least_seconds(Segment segment, double bytes, Borders borders,
                                   MemoryReduction memory_reduction) const {
  const SegmentLoad here = load(segment, borders);
  const double excess = here.excess_bytes(bytes);
  // Most segments of a search fit as they are, and need no look at their items.
  if (excess <= 0.0) return here.busy_seconds();
  if (excess == kNever || memory_reduction == MemoryReduction::kNone) return kNever;
  const TransferRate rate =
      memory_reduction == MemoryReduction::kSwapAndRecompute ? here.swap_rate : TransferRate();
  return reduced_seconds(state_->stretch(segment), here, excess, rate);
}

double SegmentCosts::least_bytes(Segment segment, double seconds, Borders borders,
                                 MemoryReduction memory_reduction) const {
  const SegmentLoad here = load(segment, borders);
  if (here.busy_seconds() > seconds) return kNever;
  double stash = here.stash_bytes;
  if (memory_reduction != MemoryReduction::kNone)
    // Time that passes anyway is free for recomputation, and the link moves bytes all the while.
    stash -= state_->saved_bytes(segment, seconds - here.seconds);
  if (memory_reduction == MemoryReduction::kSwapAndRecompute)
    stash -= here.swap_rate.bytes_in(seconds);
  return here.fixed_bytes + here.in_flight * std::max(0.0, stash);
}

ItemStretch SegmentCosts::State::stretch(Segment segment) const {
  return {&items, before[segment.first].items, before[segment.end].items,
          stages[segment.stage].slowdown};
}

double SegmentCosts::State::saved_bytes(Segment segment, double slack) const {
  const ItemStretch here = stretch(segment);
  const double room = slack / here.slowdown;
  SumPair next;
  bool has_next = false;
  const SumPair sum = here.items->take(
      here.first, here.end, [&](const SumPair& taken) { return taken.a <= room; }, next, has_next);
  // A part of the item that does not fit whole. It takes some time, or it would have fitted.
  return has_next ? sum.b + next.b * (room - sum.a) / next.a : sum.b;
}

}  // namespace spillway::partition
