#include <algorithm>
#include <optional>

#include "plan_assembly.h"
#include "spillway/planner/forward_stash.h"
#include "stash_blocks.h"

namespace spillway::planner {
namespace {

// Numbers of blocks that are tried; the event model chooses.
constexpr std::size_t kBlockCounts[] = {8, 16, 32, 64, 128};
// Shares of the way to a backward without stalls, in blocks that are recomputed.
constexpr double kRecomputedShares[] = {0.0, 0.34, 0.67, 1.0};

/// Where blocks are not enough, weights and states leave too, farthest use first.
SwapPlan with_the_rest(const PlanAssembly& assembly, std::vector<std::uint32_t> pages,
                       const SwapLimits& limits) {
  const LevelTree left = assembly.levels_without(pages);
  std::vector<std::uint32_t> levels(left.op_count());
  for (std::uint32_t op = 0; op < left.op_count(); ++op)
    levels[op] = static_cast<std::uint32_t>(std::max<std::int64_t>(0, left.at(op)));
  TouchIntervals rest = assembly.touches();
  for (std::size_t i = 0; i < pages.size(); ++i) rest.intervals[i].pages -= pages[i];
  const EvictionChoice more =
      choose_evictions(rest, levels, limits.budget_pages, ChoiceRule::kFarthestUse, {1.0, 1.0});
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] += more.pages[i];
  return assembly.swapped(pages, TransferStyle{});
}

/// Stored blocks at the end of forward, swapped ones before them, and recomputed ones among these.
StepPlan make_karma(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  const ForwardStash stash = find_stash(tape);
  const Recomputation all(tape);
  std::optional<PlanAssembly> best;
  SwapPlan best_swaps;
  for (const std::size_t count : kBlockCounts) {
    if (best && is_told(should_stop)) break;
    StashBlocks blocks(tape, limits, all, stash, count);
    const std::vector<std::size_t> order = blocks.recompute_order();
    std::size_t taken = 0;
    for (const double share : kRecomputedShares) {
      if (best && is_told(should_stop)) break;
      const auto wanted = static_cast<std::size_t>(share * static_cast<double>(order.size()));
      if (share > 0.0 && wanted == taken) continue;
      for (; taken < wanted; ++taken) blocks.recompute(order[taken]);
      PlanAssembly assembly(tape, all.replays(blocks.drops()), limits);
      SwapPlan swaps = with_the_rest(assembly, assembly.pages_for(blocks.gaps()), limits);
      swaps.estimate = assembly.estimate(swaps);
      if (best && !is_better(swaps.estimate, best_swaps.estimate)) continue;
      best.emplace(std::move(assembly));
      best_swaps = std::move(swaps);
    }
  }
  return std::move(*best).finish(std::move(best_swaps));
}

}  // namespace

// The source tells that swapping and redundant recomputation of layers are combined by a
// performance model; blocks, capacity rule and choice here are our own restatement of that idea.
extern const Strategy kKarma{
    "karma", "blocks: the last kept, others swapped, some of them recomputed",
    "our reading of the idea of Wahib et al., Scaling distributed deep learning "
    "workloads beyond the memory capacity with KARMA, SC20, arXiv 2008.11421",
    make_karma};

}  // namespace spillway::planner
