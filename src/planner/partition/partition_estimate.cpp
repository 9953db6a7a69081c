#include "spillway/planner/partition/partition_estimate.h"

#include <algorithm>

#include "bottleneck_search.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "whole_actions.h"

namespace spillway::partition {
namespace {

StageEstimate stage_estimate(const SegmentCosts& costs, Segment segment, const SegmentLoad& load,
                             WholeActions actions) {
  StageEstimate stage;
  stage.first_layer = costs.first_layer(segment.first);
  stage.last_layer = costs.first_layer(segment.end) - 1;
  stage.parameters = as_bytes(costs.held_parameter_bytes(segment.first, segment.end));
  stage.raw_seconds = load.seconds;
  stage.link_seconds = load.link_seconds;
  stage.raw_memory = as_bytes(load.raw_bytes());
  stage.recompute_seconds = actions.recompute_seconds;
  stage.recomputed = std::move(actions.points);
  return stage;
}

void add(PartitionEstimate& estimate, StageEstimate stage) {
  estimate.seconds = std::max(estimate.seconds, stage.seconds);
  estimate.memory = std::max(estimate.memory, stage.memory);
  estimate.stages.push_back(std::move(stage));
}

}  // namespace

void check(const SegmentCosts& costs, const Cuts& cuts) {
  if (cuts.size() != costs.stages() + std::size_t{1})
    throw PlanError(
        "{} cuts for {} stages; give one before each stage, and one behind the last one",
        cuts.size(), costs.stages());
  if (cuts.front() != 0 || cuts.back() != costs.units())
    throw PlanError("cuts go from {} to {} and leave out units; begin with 0 and end with {}",
                    cuts.front(), cuts.back(), costs.units());
  for (std::uint32_t k = 0; k < costs.stages(); ++k)
    if (cuts[k] >= cuts[k + 1])
      throw PlanError("stage {} goes from unit {} to {} and has no layer; give it one", k, cuts[k],
                      cuts[k + 1]);
}

PartitionEstimate evaluate(const SegmentCosts& costs, const Cuts& cuts) {
  check(costs, cuts);
  PartitionEstimate estimate;
  estimate.fluid_seconds = bottleneck_of(TimeGoal(costs), whole(costs), cuts);
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    const Segment segment{cuts[k], cuts[k + 1], k};
    const double bytes = costs.device_bytes(k);
    const SegmentLoad load = costs.load(segment);
    // By the same search for the cuts of all partitioners, so that only the cuts differ.
    const WholeActions actions = quickest_actions(costs, segment, bytes);
    estimate.point_sets += actions.sets;
    StageEstimate stage = stage_estimate(costs, segment, load, actions);
    stage.seconds = seconds_with(load, actions, bytes);
    const double kept = load.stash_bytes - actions.saved_bytes;
    double memory = load.fixed_bytes + load.in_flight * kept;
    if (stage.seconds < kNever && bytes < kNever) {
      stage.swapped = as_bytes(kept - (bytes - load.fixed_bytes) / load.in_flight);
      // What is swapped brings it down to the device, to the byte: not by way of a quotient.
      memory = std::min(memory, bytes);
    }
    stage.memory = as_bytes(memory);
    add(estimate, std::move(stage));
  }
  estimate.fits = estimate.seconds < kNever;
  if (estimate.fits) estimate.rounding_gap = share_above(estimate.seconds, estimate.fluid_seconds);
  return estimate;
}

PartitionEstimate evaluate_memory(const SegmentCosts& costs, const Cuts& cuts, double seconds) {
  check(costs, cuts);
  PartitionEstimate estimate;
  estimate.fluid_bytes = bottleneck_of(MemoryGoal(costs, seconds), whole(costs), cuts);
  estimate.fits = estimate.fluid_bytes < kNever;
  // Not `estimate.memory`, which is in whole bytes.
  double worst = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    const Segment segment{cuts[k], cuts[k + 1], k};
    const SegmentLoad load = costs.load(segment);
    const WholeActions actions = most_saving_actions(costs, segment, seconds);
    estimate.point_sets += actions.sets;
    StageEstimate stage = stage_estimate(costs, segment, load, actions);
    stage.seconds = seconds_with(load, actions, kNever);
    const double kept = load.stash_bytes - actions.saved_bytes;
    const double swapped = std::min(load.swap_rate.bytes_in(seconds), std::max(0.0, kept));
    const double bytes = load.fixed_bytes + load.in_flight * (kept - swapped);
    stage.swapped = as_bytes(swapped);
    stage.memory = as_bytes(bytes);
    worst = std::max(worst, bytes);
    // Both must hold: whole layers may take longer than the fractions that `seconds` was found
    // with.
    estimate.fits &= bytes <= costs.device_bytes(k) && stage.seconds <= seconds;
    add(estimate, std::move(stage));
  }
  estimate.fluid_seconds = estimate.seconds;
  if (estimate.fits) estimate.rounding_gap = share_above(worst, estimate.fluid_bytes);
  return estimate;
}

}  // namespace spillway::partition
