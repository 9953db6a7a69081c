#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/planner/layer_order/layer_order.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {

/// Orders of branches and cuts of one chain, found once. They depend on stages, and what these
/// hold, alone, which many schedules and variants have in common.
class CutMemo {
 public:
  /// As `choose_order`.
  const OrderChoice& order(const PartitionProblem& problem, const OrderEffort& effort);
  /// As the partitioner finds them.
  const std::optional<Cuts>& cuts(const Partitioner& partitioner, const SegmentCosts& costs);

 private:
  using Figures = std::vector<double>;  ///< Figures of a problem, without its chain.

  std::map<std::pair<std::uint64_t, Figures>, OrderChoice> orders_;  ///< By steps of effort.
  std::map<std::pair<const Partitioner*, Figures>, std::optional<Cuts>> cuts_;
};

/// Results that the plans of one search share, by chain: one for each number of micro-batches and
/// each order of the layers. For requests of one model and batch, on devices of one speed. Not for
/// several threads at once.
class PlanMemo {
 public:
  CutMemo& of(std::uint32_t micro_batches, const LayerOrder& order) {
    return chains_[{micro_batches, order}];
  }

 private:
  std::map<std::pair<std::uint32_t, LayerOrder>, CutMemo> chains_;
};

}  // namespace spillway::planner
