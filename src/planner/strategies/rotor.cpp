#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan_assembly.h"
#include "spillway/base/error.h"
#include "spillway/planner/chain_recomputation.h"
#include "tape_chain.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::TapeUse;
using profile::TapeValue;

namespace {

/// Replays of a block, and the pages that they take.
struct BlockReplay {
  std::vector<OpIndex> ops;
  double seconds = 0.0;
  std::uint32_t peak = 0;
};

std::int64_t highest(const std::vector<std::int64_t>& levels, OpIndex first, OpIndex end) {
  std::int64_t most = 0;
  for (OpIndex op = first; op < std::min<std::size_t>(end, levels.size()); ++op)
    most = std::max(most, levels[op]);
  return most;
}

/// The blocks of a tape as the dynamic program of chains wants them, with the operators behind.
class BlockCosts {
 public:
  BlockCosts(const StepTape& tape, const ForwardStash& stash, std::span<const ChainBlock> blocks)
      : tape_(tape),
        stash_(stash),
        chain_(blocks),
        blocks_(blocks.size()),
        births_(made_per_op(tape)),
        is_rebuilt_(tape.values.size(), false) {
    for (OpIndex op = 0; op < tape.ops.size(); ++op) {
      // One writer that may not run again is enough: a replay that stops before it would hand
      // backward an older content.
      const bool may_run = tape.ops[op].is_replayable;
      for (const TapeUse& use : uses_of(tape, op))
        if (use.writes && !may_run) is_rebuilt_[use.value] = false;
      for (const ValueIndex born : births_.of(op)) is_rebuilt_[born] = may_run;
    }
    for (const std::uint32_t level : live_pages(tape)) levels_.push_back(level);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      find_replays(i);
      find_levels(i);
    }
  }

  /// In slots of so many pages, rounded up.
  std::vector<ChainCosts> in_slots(std::uint32_t pages_per_slot) const {
    // Rounded up: what fits in slots then fits in pages, at the price of some memory for nothing.
    const auto slots = [&](std::int64_t pages) {
      return static_cast<std::uint32_t>((pages + pages_per_slot - 1) / pages_per_slot);
    };
    std::vector<ChainCosts> all;
    for (const Block& block : blocks_) {
      all.push_back({.boundary_seconds = block.for_boundary.seconds,
                     .all_seconds = block.for_all.seconds,
                     .last_seconds = block.for_last.seconds,
                     .boundary = slots(block.boundary),
                     .stash = slots(block.stash),
                     .first_boundary_peak = slots(block.first_boundary_peak),
                     .first_all_peak = slots(block.first_all_peak),
                     .boundary_peak = slots(block.for_boundary.peak),
                     .all_peak = slots(block.for_all.peak),
                     .last_peak = slots(block.for_last.peak),
                     .held_before_backward = slots(block.held_before_backward),
                     .backward_peak = slots(block.backward_peak)});
    }
    return all;
  }

  const BlockReplay& replay(std::uint32_t block, RerunFor wanted) const {
    const Block& costs = blocks_[block];
    if (wanted == RerunFor::kBoundary) return costs.for_boundary;
    return wanted == RerunFor::kAll ? costs.for_all : costs.for_last;
  }

 private:
  struct Block {
    BlockReplay for_boundary, for_all, for_last;
    std::int64_t boundary = 0;
    std::int64_t stash = 0;
    std::int64_t first_boundary_peak = 0, first_all_peak = 0;
    std::int64_t held_before_backward = 0, backward_peak = 0;
  };

  void find_replays(std::size_t index) {
    const ChainBlock& block = chain_[index];
    std::vector<ValueIndex> all;
    std::vector<ValueIndex> last;
    for (const std::size_t i : block.stash) {
      const StashedValue& value = stash_.values[i];
      all.push_back(value.value);
      // What only the backwards of later blocks read has been used when this block's own begins.
      if (value.last_use >= block.backward) last.push_back(value.value);
      blocks_[index].stash += value.pages;
      if (value.value == block.boundary) blocks_[index].boundary = value.pages;
    }
    if (block.boundary != profile::kNoValue)
      blocks_[index].for_boundary = replay_of(block, {block.boundary});
    blocks_[index].for_all = replay_of(block, all);
    blocks_[index].for_last = replay_of(block, last);
  }

  void find_levels(std::size_t index) {
    const ChainBlock& block = chain_[index];
    Block& costs = blocks_[index];
    // The levels are those without the stashes of earlier blocks, which the dynamic program adds
    // itself: it decides which of them are kept.
    costs.first_all_peak = highest(levels_, block.first, block.last + 1);
    std::vector<std::int64_t> thinned(levels_.begin() + block.first,
                                      levels_.begin() + block.last + 1);
    OpIndex end = block.backward;
    // From there to the end of the block they are out: sums of what leaves at each operator.
    std::vector<std::int64_t> leaving(thinned.size() + 1, 0);
    for (const std::size_t i : block.stash) {
      const StashedValue& value = stash_.values[i];
      end = std::max(end, value.last_use + 1);
      // Where only the boundary is to stay, a value of the stash can go once forward has touched it
      // last.
      if (value.value != block.boundary && value.after < block.last)
        leaving[std::max(value.after + 1, block.first) - block.first] += value.pages;
    }
    std::int64_t out = 0;
    for (std::size_t op = 0; op < thinned.size(); ++op) thinned[op] -= out += leaving[op];
    costs.first_boundary_peak = highest(thinned, 0, static_cast<OpIndex>(thinned.size()));
    // From there on the backward of the block before is the one that counts these pages.
    if (index > 0) end = std::max(block.backward, chain_[index - 1].backward);
    costs.backward_peak = highest(levels_, block.backward, end);
    std::vector<std::int64_t> change(levels_.size() + 1, 0);
    for (const std::size_t i : block.stash) {
      const TapeValue& value = tape_.values[stash_.values[i].value];
      if (value.death <= value.birth) continue;
      change[value.birth + 1] -= value.pages;
      change[value.death + std::size_t{1}] += value.pages;
    }
    std::int64_t less = 0;
    for (std::size_t op = 0; op < levels_.size(); ++op) levels_[op] += less += change[op];
    // A step that ends with forward has no backward that could hold anything.
    if (block.backward < tape_.ops.size())
      costs.held_before_backward =
          levels_[block.backward] - tape_.ops[block.backward].inside_peak_pages;
  }

  BlockReplay replay_of(const ChainBlock& block, const std::vector<ValueIndex>& wanted) const {
    BlockReplay replay;
    std::vector<bool> is_needed(tape_.values.size(), false);
    for (const ValueIndex value : wanted) is_needed[value] = true;
    // From the end back: an operator is worth running for what a later one of the replay reads, or
    // the caller.
    for (OpIndex op = block.last + 1; op-- > block.first;) {
      const auto uses = uses_of(tape_, op);
      const auto births = births_.of(op);
      const bool makes = std::any_of(births.begin(), births.end(),
                                     [&](ValueIndex value) { return is_needed[value]; });
      const bool changes = std::any_of(uses.begin(), uses.end(), [&](const TapeUse& use) {
        return use.writes && is_needed[use.value];
      });
      if ((!makes && !changes) || !tape_.ops[op].is_replayable) continue;
      replay.ops.push_back(op);
      replay.seconds += seconds(tape_.ops[op].time);
      for (const TapeUse& use : uses) {
        // What cannot be recomputed never leaves, and is there as its last operator left it.
        const OpIndex birth = tape_.values[use.value].birth;
        // What was born before the block is its input, which the dynamic program brings back by
        // itself.
        if (is_rebuilt_[use.value] && birth >= block.first) is_needed[use.value] = true;
      }
    }
    std::reverse(replay.ops.begin(), replay.ops.end());
    // Each result goes behind the last of these operators that reads it, unless it is wanted.
    std::vector<std::int64_t> last_reader(tape_.values.size(), -1);
    for (std::size_t at = 0; at < replay.ops.size(); ++at)
      for (const TapeUse& use : uses_of(tape_, replay.ops[at]))
        last_reader[use.value] = static_cast<std::int64_t>(at);
    for (const ValueIndex value : wanted)
      last_reader[value] = static_cast<std::int64_t>(replay.ops.size());
    std::int64_t held = 0;
    for (std::size_t at = 0; at < replay.ops.size(); ++at) {
      const OpIndex op = replay.ops[at];
      replay.peak =
          std::max(replay.peak, static_cast<std::uint32_t>(held) + tape_.ops[op].inside_peak_pages);
      // A result that no later operator of the replay reads is freed where it is made, so it only
      // shows in the inside peak.
      for (const ValueIndex born : births_.of(op))
        if (last_reader[born] > static_cast<std::int64_t>(at)) held += tape_.values[born].pages;
      for (const TapeUse& use : uses_of(tape_, op)) {
        const OpIndex birth = tape_.values[use.value].birth;
        // What the replay has not made itself was there before it, and stays for others.
        const bool is_ours =
            birth != kCarriedIn && std::binary_search(replay.ops.begin(), replay.ops.end(), birth);
        if (is_ours && last_reader[use.value] == static_cast<std::int64_t>(at))
          held -= tape_.values[use.value].pages;
      }
    }
    return replay;
  }

  const StepTape& tape_;
  const ForwardStash& stash_;
  const std::span<const ChainBlock> chain_;
  std::vector<Block> blocks_;
  const PerOp births_;
  std::vector<bool> is_rebuilt_;  ///< Per value: all that makes and writes it may run again.
  /// Pages during each operator, all stashes of blocks that have been looked at taken out.
  std::vector<std::int64_t> levels_;
};

constexpr std::size_t kMostBlocks = 96;
// Steps of the dynamic program: slots * blocks^3 / 6.
constexpr std::size_t kMostWork = 60'000'000;
constexpr std::size_t kFewestSlots = 60;
// Where no schedule fits, it tries with so much more memory.
constexpr double kMoreMemory = 1.1;

std::uint32_t slots_for(std::size_t blocks, std::uint32_t budget) {
  // Memory in fewer, larger slots for long chains: rounding wastes some of it, and time stays
  // bounded.
  const std::size_t affordable = kMostWork * 6 / (blocks * blocks * blocks);
  return static_cast<std::uint32_t>(std::min<std::size_t>(
      budget, std::max(kFewestSlots, std::min<std::size_t>(affordable, 2000))));
}

std::vector<Replay> replays_of(const ChainSchedule& schedule, const BlockCosts& costs,
                               const std::vector<ChainBlock>& chain) {
  std::vector<Replay> replays;
  for (const BlockRerun& rerun : schedule.reruns)
    for (const OpIndex op : costs.replay(rerun.block, rerun.wanted).ops)
      // All right before the backward that asks: where between earlier ones they run, the dynamic
      // program does not say.
      replays.push_back({chain[rerun.before].backward, op});
  return replays;
}

/// Optimal persistent recomputation of a chain. Where nothing fits into the budget, the schedule of
/// least memory, and the rest is paged on demand.
StepPlan make_rotor(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  const ForwardStash stash = find_stash(tape);
  const Recomputation all(tape);
  const std::vector<ChainBlock> chain = chain_of(tape, stash, all, kMostBlocks);
  if (chain.size() < 2)
    throw PlanError(
        "strategy rotor needs a chain, and nowhere among the {} operators of forward does a single "
        "value lead on that can be recomputed: use dtr or spillway",
        stash.forward_end + 1);
  const BlockCosts costs(tape, stash, chain);
  const std::uint32_t most = live_peak(tape);
  std::vector<Replay> replays;
  double pages = limits.budget_pages;
  for (;; pages = std::min<double>(most, pages * kMoreMemory + 1.0)) {
    const auto memory = static_cast<std::uint32_t>(pages);
    const std::uint32_t slots = slots_for(chain.size(), memory);
    // Whole pages, and slots so large that all of them cover the memory.
    const std::uint32_t pages_per_slot = (memory + slots - 1) / slots;
    const auto schedule = cheapest_reruns(costs.in_slots(pages_per_slot), memory / pages_per_slot);
    if (schedule) replays = replays_of(*schedule, costs, chain);
    if (schedule || memory >= most || is_told(should_stop)) break;
  }
  PlanAssembly assembly(tape, std::move(replays), limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kRotor{
    "rotor", "recomputes a chain by the optimal persistent schedule, pages the rest on demand",
    "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, Optimal checkpointing for heterogeneous "
    "chains, INRIA RR-9302, arXiv 1911.13214",
    make_rotor};

}  // namespace spillway::planner
