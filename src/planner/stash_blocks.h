#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan_assembly.h"
#include "spillway/planner/forward_stash.h"

namespace spillway::planner {

/// Neighbouring values of the stash, which are kept, swapped or recomputed as a whole.
struct StashBlock {
  std::vector<std::size_t> stash;    ///< Into `ForwardStash::values`.
  std::vector<std::size_t> dropped;  ///< Of these, what can be recomputed.
  double bytes = 0.0;
  double droppable_bytes = 0.0;
  double forward_seconds = 0.0;   ///< To recompute it from the block before.
  double backward_seconds = 0.0;  ///< From its first need to that of the block before.
  OpIndex backward = 0;
  bool is_recomputed = false;
};

/// The block model of what forward leaves for backward: about equal blocks of it, of which the last
/// ones stay, those before are swapped, and of these some are recomputed to hide transfers.
class StashBlocks {
 public:
  /// Keeps references.
  StashBlocks(const StepTape& tape, const SwapLimits& limits, const Recomputation& all,
              const ForwardStash& stash, std::size_t count);

  /// Swapped blocks that, recomputed instead, relieve backward of a longer stall than that
  /// takes; the one with most bytes per second first.
  std::vector<std::size_t> recompute_order();
  void recompute(std::size_t block) { blocks_[block].is_recomputed = true; }

  std::vector<Drop> drops() const;
  std::vector<ChosenGap> gaps() const;

 private:
  void cut_blocks(const Recomputation& all, std::size_t count);
  void measure_blocks();
  void find_swapped_prefix();
  std::pair<double, std::size_t> worst_stall() const;

  const StepTape& tape_;
  const SwapLimits& limits_;
  const ForwardStash& stash_;
  std::vector<StashBlock> blocks_;
  std::size_t swapped_ = 0;  ///< Blocks before this one are out or recomputed.
};

}  // namespace spillway::planner
