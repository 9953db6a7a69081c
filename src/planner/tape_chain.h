#pragma once

#include <cstddef>
#include <vector>

#include "spillway/planner/forward_stash.h"
#include "spillway/planner/recomputation.h"

namespace spillway::planner {

/// Operators of forward behind which a single value leads on to later ones, and what backward wants
/// of them.
struct ChainBlock {
  OpIndex first = 0;  ///< Operators [first, last] of forward.
  OpIndex last = 0;
  ValueIndex boundary = profile::kNoValue;  ///< What leads on; none behind the last block.
  /// What backward uses and can be recomputed from the block before, the boundary included;
  /// into `ForwardStash::values`.
  std::vector<std::size_t> stash;
  OpIndex backward = 0;  ///< Its backward begins with this operator; descends from block to block.
};

/// Groups forward to a chain. Values that cannot be recomputed (carried in, born by operators
/// that may not run again) are there anyway and do not count. A cut needs a boundary that nobody
/// writes later, that lives until the backward of the block behind it begins, and a backward that
/// takes the blocks in reverse order. Neighbours are grouped until no more than about `most_blocks`
/// are left. One block: no chain.
std::vector<ChainBlock> chain_of(const StepTape& tape, const ForwardStash& stash,
                                 const Recomputation& all, std::size_t most_blocks);

}  // namespace spillway::planner
