#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bottleneck_search.h"
#include "segment_goal.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/profile/step_profile.h"

namespace spillway::quality {

/// What is cut: a published model, as a chain of layers.
struct Workload {
  partition::ModelChain chain;
  bool has_links = false;  ///< Stages send each other tensors, over links of their own.
  bool can_swap = true;    ///< Its times and bytes are of a real device.
};

/// Micro-batches whose stash a stage holds, of K stages and as many micro-batches at least.
enum class Flight {
  kOneForwardOneBackward,  ///< Stage s holds K - s.
  kAllForward,             ///< All forwards first, of K micro-batches: each stage holds them all.
  kNoFlush,  ///< As the first one, with a copy of the weights for each micro-batch in flight.
};

/// Devices that a workload is cut for.
struct Setting {
  std::uint32_t stages = 1;
  Bytes memory = partition::kNoLimit;
  partition::MemoryReduction memory_reduction = partition::MemoryReduction::kSwapAndRecompute;
  Flight flight = Flight::kOneForwardOneBackward;
};

/// One-forward-one-backward with at least as many micro-batches as stages; swaps and stages' links
/// at 12 GB/s in each direction. Without recomputation the layers have no points.
partition::PartitionProblem problem_of(const Workload& workload, const Setting& setting);

/// `pipedream FILE`, `piper FILE` or `vpipe`. Throws ConfigError for another source and for files
/// that are none of these.
Workload workload_from(std::string_view source, const std::string& file);

/// Forward operators of an imported graph as layers, with Adam. A layer keeps, from forward to
/// backward, what it makes and backward reads; it is made again by the layer, and by those that
/// write it in place. The working peak is the gradients that a backward operator reads and makes,
/// and the layer's own stash, which is there again when it was recomputed.
partition::ModelChain imported_chain(const profile::StepProfile& profile);

/// 97 blocks of BERT with 48 layers as vPipe's plans count them: forward 1 s, backward 2 s, 1,000
/// bytes of stash, no weights.
partition::ModelChain vpipe_chain();

/// The chain with these layers so many times in a row. Of the tensors from before them they may
/// read one, and of theirs one may be read behind them: it takes the place of the former from the
/// second time on. Throws ConfigError for others.
partition::ModelChain repeated(const partition::ModelChain& chain, partition::LayerRange layers,
                               std::uint32_t times);

/// Without all layers of this name but the last one; chains with tensors between layers stay whole.
partition::ModelChain shortened(partition::ModelChain chain, std::string_view name);

/// The least-memory cuts within so many seconds whose second fullest stage, too, holds as little as
/// can be then, and so on. Nothing where no cuts keep to the time.
inline std::optional<partition::SolvedCuts> frugal_cuts(const partition::SegmentCosts& costs,
                                                        double seconds) {
  return partition::balanced_cuts(partition::MemoryGoal(costs, seconds), partition::whole(costs));
}

}  // namespace spillway::quality
