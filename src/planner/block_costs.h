#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/planner/chain_recomputation.h"
#include "tape_chain.h"

namespace spillway::planner {

/// Replays of a block, and the pages that they take.
struct BlockReplay {
  std::vector<OpIndex> ops;
  double seconds = 0.0;
  std::uint32_t peak = 0;
};

/// The blocks of a tape as the dynamic program of chains wants them, with the operators behind.
class BlockCosts {
 public:
  BlockCosts(const StepTape& tape, const ForwardStash& stash, std::span<const ChainBlock> blocks);

  /// In slots of so many pages, rounded up.
  std::vector<ChainCosts> in_slots(std::uint32_t pages_per_slot) const;
  const BlockReplay& replay(std::uint32_t block, RerunFor wanted) const;

 private:
  struct Block {
    BlockReplay for_boundary, for_all, for_last;
    std::int64_t boundary = 0;
    std::int64_t stash = 0;
    std::int64_t first_boundary_peak = 0, first_all_peak = 0;
    std::int64_t held_before_backward = 0, backward_peak = 0;
  };

  void find_replays(std::size_t index);
  void find_levels(std::size_t index);
  BlockReplay replay_of(const ChainBlock& block, const std::vector<ValueIndex>& wanted) const;

  const StepTape& tape_;
  const ForwardStash& stash_;
  const std::span<const ChainBlock> chain_;
  std::vector<Block> blocks_;
  const PerOp births_;
  std::vector<bool> is_rebuilt_;  ///< Per value: all that makes and writes it may run again.
  /// Pages during each operator, all stashes of blocks that have been looked at taken out.
  std::vector<std::int64_t> levels_;
};

}  // namespace spillway::planner
