#include "stash_blocks.h"

#include <algorithm>
#include <optional>

#include "level_tree.h"
#include "replay_walk.h"

namespace spillway::planner {
namespace {

double worth(const StashBlock& block) {
  return block.droppable_bytes / std::max(1e-12, block.forward_seconds);
}

}  // namespace

StashBlocks::StashBlocks(const StepTape& tape, const SwapLimits& limits, const Recomputation& all,
                         const ForwardStash& stash, std::size_t count)
    : tape_(tape), limits_(limits), stash_(stash) {
  cut_blocks(all, count);
  measure_blocks();
  find_swapped_prefix();
}

void StashBlocks::cut_blocks(const Recomputation& all, std::size_t count) {
  std::uint64_t total = 0;
  for (const StashedValue& value : stash_.values) total += value.pages;
  const double page = static_cast<double>(limits_.page_size.count());
  std::uint64_t taken = 0;
  ReplayWalk walk(all);
  for (std::size_t i = 0; i < stash_.values.size(); ++i) {
    const StashedValue& value = stash_.values[i];
    const bool is_full = !blocks_.empty() && taken * count >= total * blocks_.size();
    if (blocks_.empty() || is_full) blocks_.emplace_back();
    StashBlock& block = blocks_.back();
    if (block.stash.empty()) block.backward = value.next;
    block.backward = std::min(block.backward, value.next);
    block.stash.push_back(i);
    block.bytes += value.pages * page;
    taken += value.pages;
    if (value.next <= value.after + 1 || !walk.can_drop(value.value, value.after)) continue;
    block.dropped.push_back(i);
    block.droppable_bytes += value.pages * page;
  }
}

void StashBlocks::measure_blocks() {
  const std::vector<double> begins = compute_begins(tape_);
  OpIndex earliest = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    StashBlock& block = blocks_[i];
    const OpIndex end = i == 0 ? static_cast<OpIndex>(tape_.ops.size()) : blocks_[i - 1].backward;
    block.backward_seconds = std::max(0.0, begins[end] - begins[block.backward]);
    const OpIndex last = stash_.values[block.stash.back()].birth;
    for (OpIndex op = earliest; op <= last; ++op)
      if (tape_.ops[op].is_replayable) block.forward_seconds += seconds(tape_.ops[op].time);
    earliest = last + 1;
  }
}

void StashBlocks::find_swapped_prefix() {
  LevelTree levels(live_pages(tape_));
  const auto add = [&](const StashBlock& block, int sign) {
    for (const std::size_t i : block.stash) {
      const StashedValue& value = stash_.values[i];
      if (value.next > value.after + 1)
        levels.add(value.after + 1, value.next - value.after - 1, sign * std::int64_t{value.pages});
    }
  };
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
std::pair<double, std::size_t> StashBlocks::worst_stall() const {
  double incoming = 0.0;
  double compute = 0.0;
  std::pair<double, std::size_t> worst{0.0, swapped_};
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const StashBlock& block = blocks_[i];
    if (i < swapped_) {
      incoming += (block.bytes - (block.is_recomputed ? block.droppable_bytes : 0.0)) /
                  limits_.rates.read_bytes_per_second;
      if (incoming - compute > worst.first) worst = {incoming - compute, i};
    }
    compute += block.backward_seconds + (block.is_recomputed ? block.forward_seconds : 0.0);
  }
  return worst;
}

std::vector<std::size_t> StashBlocks::recompute_order() {
  std::vector<std::size_t> order;
  for (;;) {
    const auto [stall, at] = worst_stall();
    std::optional<std::size_t> best;
    for (std::size_t i = at; i < swapped_; ++i) {
      const StashBlock& block = blocks_[i];
      if (block.is_recomputed || block.dropped.empty() || stall <= block.forward_seconds) continue;
      if (!best || worth(block) > worth(blocks_[*best])) best = i;
    }
    if (!best) break;
    blocks_[*best].is_recomputed = true;
    order.push_back(*best);
  }
  for (StashBlock& block : blocks_) block.is_recomputed = false;
  return order;
}

std::vector<Drop> StashBlocks::drops() const {
  std::vector<Drop> drops;
  for (std::size_t b = 0; b < swapped_; ++b) {
    if (!blocks_[b].is_recomputed) continue;
    for (const std::size_t i : blocks_[b].dropped)
      drops.push_back({stash_.values[i].value, stash_.values[i].after});
  }
  return drops;
}

std::vector<ChosenGap> StashBlocks::gaps() const {
  std::vector<ChosenGap> gaps;
  for (std::size_t b = 0; b < swapped_; ++b) {
    const StashBlock& block = blocks_[b];
    for (const std::size_t i : block.stash) {
      const StashedValue& value = stash_.values[i];
      const bool is_dropped =
          block.is_recomputed && std::binary_search(block.dropped.begin(), block.dropped.end(), i);
      if (!is_dropped && value.next > value.after + 1)
        gaps.push_back({value.value, value.after, value.next - value.after - 1, value.pages});
    }
  }
  return gaps;
}

}  // namespace spillway::planner
