#pragma once

#include <vector>

#include "order/unit_graph.h"
#include "stage_memory_reduction.h"

namespace spillway::planner {

/// Times and bytes of one micro-batch that add up over units.
struct UnitLoad {
  double seconds = 0.0;    ///< Forward and backward, on a device of slowdown 1.
  double fixed = 0.0;      ///< Static bytes that do not depend on the versions.
  double versioned = 0.0;  ///< Of each version of the weights.
  double buffers = 0.0;    ///< That nobody has twice.
  double stash = 0.0;

  UnitLoad& operator+=(const UnitLoad& other) {
    seconds += other.seconds;
    fixed += other.fixed;
    versioned += other.versioned;
    buffers += other.buffers;
    stash += other.stash;
    return *this;
  }
};

/// Recompute items of some units, by rank. Asked like an ItemStretch.
struct RankedItems {
  std::vector<SumPair> items;
  double slowdown = 1.0;

  template <typename Fits>
  SumPair take(const Fits& fits, SumPair& next, bool& has_next) const {
    SumPair sum;
    has_next = false;
    for (const SumPair& item : items) {
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
  UnitCosts(const PartitionProblem& problem, const UnitGraph& graph);

  const PartitionProblem& problem() const { return problem_; }
  const UnitGraph& graph() const { return graph_; }
  const std::vector<StageConstants>& stages() const { return stages_; }
  const UnitLoad& load(std::uint32_t unit) const { return units_[unit].load; }
  double working_peak(const Units& units) const;
  /// Bytes of weights that these units share and count more than once.
  SumPair spared(const Units& units) const;
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
    SumPair sum;
  };
  struct Unit {
    UnitLoad load;
    double peak = 0.0;
    std::vector<Item> items;
    std::vector<std::uint32_t> ties;  ///< Each as often as layers of the unit share it.
  };

  void add_units();
  void add_ties();
  void rank_items();

  const PartitionProblem& problem_;
  const UnitGraph& graph_;
  std::vector<StageConstants> stages_;
  std::vector<Unit> units_;
  std::uint32_t frozen_units_ = 0;
};

}  // namespace spillway::planner
