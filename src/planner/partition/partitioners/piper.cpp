#include "bottleneck_search.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

/// The optimum of its program for a chain without replication or tensor parallelism: the least
/// bottleneck where layers may be recomputed but not swapped.
Cuts cut_piper(const SegmentCosts& costs) {
  auto solved = least_time_cuts(costs, Relief::kRecompute);
  if (!solved) refuse_cuts(costs, Relief::kRecompute);
  return std::move(solved->cuts);
}

}  // namespace

extern const Partitioner kPiperPartitioner{
    "piper", "least time within memory by recomputation, which knows the stage; no swaps",
    "Tarnawski et al., Piper, NeurIPS 2021; repository msr-fiddle/piper", Reading::kAsPublished,
    cut_piper};

}  // namespace spillway::planner
