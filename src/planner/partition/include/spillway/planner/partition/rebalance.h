#pragma once

#include <vector>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::planner {

struct RebalanceOptions {
  double steps_left = 1.0;          ///< For which the new cuts will hold.
  std::uint32_t micro_batches = 1;  ///< Of a step.
  double flush_seconds = 0.0;       ///< What each flush at which layers move costs besides.
};

/// Layers that go from a stage to a neighbour, with one copy of their weights, their gradients and
/// optimizer states. Nothing else is alive at a flush. Tied weights count once of the layers that
/// move together, even where the other stage has them already.
struct LayerMove {
  std::uint32_t flush = 0;  ///< From 0: layers that pass several stages move once per flush.
  LayerIndex first_layer = 0;
  LayerIndex last_layer = 0;
  std::uint32_t from_stage = 0;
  std::uint32_t to_stage = 0;
  Bytes bytes;
  double seconds = 0.0;  ///< On the link between both.
};

struct RebalancePlan {
  Cuts cuts;  ///< Behind the last flush.
  std::vector<LayerMove> moves;
  std::uint32_t flushes = 0;
  Bytes bytes;                  ///< Over all links.
  double move_seconds = 0.0;    ///< Flushes, and the slowest link of each.
  double seconds_before = 0.0;  ///< Per micro-batch; infinite where the cuts do not fit any more.
  double seconds_after = 0.0;
  double gained_seconds = 0.0;  ///< In the steps that are left, without what moving takes.
  bool pays = false;
};

/// What moving layers between neighbours can reach, from the cheapest on: each choice moves the
/// fewest bytes of all that reach its time or a better one. Exact in such bytes; where there are
/// more than 16 choices, some between them are left out. Shared links count in equal parts. Empty
/// where nothing is better than the cuts as they are. Throws PlanError for cuts that are none,
/// ConfigError for senseless options.
std::vector<RebalancePlan> rebalance_choices(const SegmentCosts& measured, const Cuts& now,
                                             const RebalanceOptions& options);

/// The choice that gains most in the steps that are left; the cuts as they are where none pays.
RebalancePlan rebalance(const SegmentCosts& measured, const Cuts& now,
                        const RebalanceOptions& options);

}  // namespace spillway::planner
