#pragma once

#include <vector>

#include "downsets.h"
#include "layer_figures.h"
#include "stage_state.h"
#include "unit_graph.h"

namespace spillway::layer_order {

/// Recompute items of some units, by rank. Asked like an ItemStretch.
struct RankedItems {
  std::vector<partition::SumPair> items;
  double slowdown = 1.0;

  template <typename Fits>
  partition::SumPair take(const Fits& fits, partition::SumPair& next, bool& has_next) const {
    partition::SumPair sum;
    has_next = false;
    for (const partition::SumPair& item : items) {
      if (!fits(sum + item)) {
        next = item;
        has_next = true;
        return sum;
      }
      sum += item;
    }
    return sum;
  }
};

/// What units cost wherever they run, and what follows from that for every order.
class UnitCosts {
 public:
  using Units = std::vector<std::uint32_t>;

  /// Keeps references.
  UnitCosts(const partition::PartitionProblem& problem, const UnitGraph& graph);

  const partition::PartitionProblem& problem() const { return problem_; }
  const UnitGraph& graph() const { return graph_; }
  const std::vector<partition::StageConstants>& stages() const { return stages_; }
  const partition::UnitLoad& load(std::uint32_t unit) const { return units_[unit].load; }
  double working_peak(const Units& units) const;
  /// Bytes of weights that these units share and count more than once.
  partition::SumPair spared(const Units& units) const;
  RankedItems items(const Units& units, double slowdown) const;
  /// Units that lead and have frozen layers alone.
  std::uint32_t frozen_units() const { return frozen_units_; }

  /// Returns the seconds that no order is faster than: those of the largest unit on the fastest
  /// device, all work shared evenly, and longer where all devices together have to swap and to
  /// recompute. Infinite where they cannot hold the model.
  double bound_seconds() const;

 private:
  /// A part of a layer's stash that recomputation saves.
  struct Item {
    std::uint32_t rank = 0;  ///< By bytes per second, over all units.
    partition::SumPair sum;
  };
  struct Unit {
    partition::UnitLoad load;
    double peak = 0.0;
    std::vector<Item> items;
    std::vector<std::uint32_t> ties;  ///< Each as often as layers of the unit share it.
  };

  void add_units();
  void add_ties();
  void rank_items();

  const partition::PartitionProblem& problem_;
  const UnitGraph& graph_;
  std::vector<partition::StageConstants> stages_;
  std::vector<Unit> units_;
  std::uint32_t frozen_units_ = 0;
};

/// Time of what lies between two downsets when one stage runs it, after the best swaps and
/// recomputation: the figure that `SegmentCosts` has where an order passes through both. Here any
/// two will do, and each question takes time by the number of units in between.
class SetCosts {
 public:
  /// Keeps references.
  SetCosts(const UnitCosts& units, const Downsets& sets);

  std::uint32_t stages() const { return static_cast<std::uint32_t>(units_.stages().size()); }
  double slowdown(std::uint32_t stage) const { return units_.stages()[stage].slowdown; }
  /// Forward and backward of a downset, on a device of slowdown 1.
  double layer_seconds(std::uint32_t set) const { return sums_[set].seconds; }
  /// Least seconds per micro-batch of `large` without `small`, which it holds, within the stage's
  /// device; infinite where nothing helps.
  double least_seconds(std::uint32_t small, std::uint32_t large, std::uint32_t stage) const;

 private:
  double ways(std::uint32_t set) const;
  void add_memory(partition::SegmentLoad& load, std::uint32_t small, std::uint32_t large,
                  const partition::StageConstants& stage, const UnitCosts::Units& between) const;
  double kept_bytes(std::uint32_t small, const UnitCosts::Units& between) const;

  const UnitCosts& units_;
  const Downsets& sets_;
  std::vector<partition::UnitLoad> sums_;  ///< By downset.
};

}  // namespace spillway::layer_order
