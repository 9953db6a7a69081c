#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "level_tree.h"
#include "plan_assembly.h"
#include "replay_walk.h"
#include "spillway/planner/forward_stash.h"

namespace spillway::planner {
namespace {

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

double worth(const StashBlock& block) {
  return block.droppable_bytes / std::max(1e-12, block.forward_seconds);
}

/// The block model of what forward leaves for backward: about equal blocks of it, of which the last
/// ones stay, those before are swapped, and of these some are recomputed to hide transfers.
class StashBlocks {
 public:
  /// Keeps references.
  StashBlocks(const StepTape& tape, const SwapLimits& limits, const Recomputation& all,
              const ForwardStash& stash, std::size_t count)
      : tape_(tape), limits_(limits), stash_(stash) {
    cut_blocks(all, count);
    measure_blocks();
    find_swapped_prefix();
  }

  /// Swapped blocks that, recomputed instead, relieve backward of a longer stall than that
  /// takes; the one with most bytes per second first.
  std::vector<std::size_t> recompute_order() {
    std::vector<std::size_t> order;
    for (;;) {
      const auto [stall, at] = worst_stall();
      std::optional<std::size_t> best;
      for (std::size_t i = at; i < swapped_; ++i) {
        const StashBlock& block = blocks_[i];
        // Where recomputing takes longer than the stall, backward would wait for that instead.
        if (block.is_recomputed || block.dropped.empty() || stall <= block.forward_seconds)
          continue;
        if (!best || worth(block) > worth(blocks_[*best])) best = i;
      }
      if (!best) break;
      blocks_[*best].is_recomputed = true;
      order.push_back(*best);
    }
    // Only the order was asked for; the strategy takes as much of it as the event model likes best.
    for (StashBlock& block : blocks_) block.is_recomputed = false;
    return order;
  }

  void recompute(std::size_t block) { blocks_[block].is_recomputed = true; }

  std::vector<Drop> drops() const {
    std::vector<Drop> drops;
    for (std::size_t b = 0; b < swapped_; ++b) {
      if (!blocks_[b].is_recomputed) continue;
      for (const std::size_t i : blocks_[b].dropped)
        drops.push_back({stash_.values[i].value, stash_.values[i].after});
    }
    return drops;
  }

  std::vector<ChosenGap> gaps() const {
    std::vector<ChosenGap> gaps;
    for (std::size_t b = 0; b < swapped_; ++b) {
      const StashBlock& block = blocks_[b];
      for (const std::size_t i : block.stash) {
        const StashedValue& value = stash_.values[i];
        const bool is_dropped = block.is_recomputed &&
                                std::binary_search(block.dropped.begin(), block.dropped.end(), i);
        if (!is_dropped && value.next > value.after + 1)
          gaps.push_back({value.value, value.after, value.next - value.after - 1, value.pages});
      }
    }
    return gaps;
  }

 private:
  // Blocks in the order of forward; backward takes them from the last one to the first:
  //
  //     recomputed or swapped | swapped | ... | kept | kept |
  //     0 ...                          swapped_ ...       blocks_.size()
  //
  // Kept ones give the first swapped ones time to come in, so only the stall that is left after
  // these is worth recomputing for.
  void cut_blocks(const Recomputation& all, std::size_t count) {
    std::uint64_t total = 0;
    for (const StashedValue& value : stash_.values) total += value.pages;
    const double page = static_cast<double>(limits_.page_size.count());
    std::uint64_t taken = 0;
    ReplayWalk walk(all);
    for (std::size_t i = 0; i < stash_.values.size(); ++i) {
      const StashedValue& value = stash_.values[i];
      // Against the share that so many blocks should have by now, so that large values do not make
      // all later blocks small.
      const bool is_full = !blocks_.empty() && taken * count >= total * blocks_.size();
      if (blocks_.empty() || is_full) blocks_.emplace_back();
      StashBlock& block = blocks_.back();
      if (block.stash.empty()) block.backward = value.next;
      block.backward = std::min(block.backward, value.next);
      block.stash.push_back(i);
      block.bytes += value.pages * page;
      taken += value.pages;
      // Without an operator in between it is never away, and what cannot be recomputed is swapped,
      // also in a block that is.
      if (value.next <= value.after + 1 || !walk.can_drop(value.value, value.after)) continue;
      block.dropped.push_back(i);
      block.droppable_bytes += value.pages * page;
    }
  }

  void measure_blocks() {
    const std::vector<double> begins = compute_begins(tape_);
    OpIndex earliest = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      StashBlock& block = blocks_[i];
      // Backward takes the blocks in reverse order, so it ends a block where it begins the one
      // before; the optimizer counts with the first.
      const OpIndex end = i == 0 ? static_cast<OpIndex>(tape_.ops.size()) : blocks_[i - 1].backward;
      block.backward_seconds = std::max(0.0, begins[end] - begins[block.backward]);
      const OpIndex last = stash_.values[block.stash.back()].birth;
      for (OpIndex op = earliest; op <= last; ++op)
        if (tape_.ops[op].is_replayable) block.forward_seconds += seconds(tape_.ops[op].time);
      earliest = last + 1;
    }
  }

  void find_swapped_prefix() {
    LevelTree levels(live_pages(tape_));
    const auto add = [&](const StashBlock& block, int sign) {
      for (const std::size_t i : block.stash) {
        const StashedValue& value = stash_.values[i];
        if (value.next > value.after + 1)
          levels.add(value.after + 1, value.next - value.after - 1,
                     sign * std::int64_t{value.pages});
      }
    };
    // Backward needs the last blocks first, so these stay, as many as find room; the first ones
    // have the longest time to be away.
    for (const StashBlock& block : blocks_) add(block, -1);
    const std::int64_t least = levels.max(0, levels.op_count());
    const std::int64_t room = std::max<std::int64_t>(limits_.budget_pages, least);
    swapped_ = blocks_.size();
    for (; swapped_ > 0; --swapped_) {
      add(blocks_[swapped_ - 1], 1);
      if (levels.max(0, levels.op_count()) > room) break;
    }
  }

  /// Largest stall of backward and the block at which it is reached: what must have come in until
  /// there against the compute time before it.
  std::pair<double, std::size_t> worst_stall() const {
    double incoming = 0.0;
    double compute = 0.0;
    std::pair<double, std::size_t> worst{0.0, swapped_};
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      const StashBlock& block = blocks_[i];
      if (i < swapped_) {
        incoming += limits_.rates.read.seconds_for(
            block.bytes - (block.is_recomputed ? block.droppable_bytes : 0.0));
        if (incoming - compute > worst.first) worst = {incoming - compute, i};
      }
      // Counted behind the block: its pages must be there before its backward begins.
      compute += block.backward_seconds + (block.is_recomputed ? block.forward_seconds : 0.0);
    }
    return worst;
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const ForwardStash& stash_;
  std::vector<StashBlock> blocks_;
  std::size_t swapped_ = 0;  ///< Blocks before this one are out or recomputed.
};

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
  // Of each interval only what the blocks have not taken already may still leave.
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
      // The same blocks as for the share before, and so the same plan.
      if (share > 0.0 && wanted == taken) continue;
      // Shares grow, so each recomputes what the one before did, and some more.
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
