#include "tape_chain.h"

#include <algorithm>
#include <optional>

#include "replay_walk.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::TapeUse;

namespace {

constexpr OpIndex kNever = kNoOp;

class ChainFinder {
 public:
  ChainFinder(const StepTape& tape, const ForwardStash& stash, const Recomputation& all,
              std::size_t most_blocks)
      : tape_(tape), stash_(stash), most_blocks_(most_blocks), is_droppable_(tape.values.size()) {
    ReplayWalk walk(all);
    for (std::size_t i = 0; i < stash.values.size(); ++i) {
      const StashedValue& value = stash.values[i];
      if (!walk.can_drop(value.value, value.after)) continue;
      droppable_.push_back(i);
      is_droppable_[value.value] = true;
      pages_ += value.pages;
    }
  }

  std::vector<ChainBlock> find() {
    find_crossings();
    find_oldest_needs();
    std::vector<ChainBlock> blocks;
    std::size_t taken = droppable_.size();  // Those of later blocks lie behind.
    ChainBlock block{0, stash_.forward_end, kNoValue, {}, stash_.forward_end + 1};
    bool is_last = true;
    for (OpIndex cut = stash_.forward_end; cut-- > 0;) {
      const auto boundary = boundary_at(cut);
      if (!boundary) continue;
      const std::size_t first = first_born_behind(cut);
      const OpIndex begin = is_last ? block.backward : backward_of(first, taken, block);
      if (!is_big_enough(first, taken) || oldest_need_[first] < begin) continue;
      block.first = cut + 1;
      block.backward = begin;
      block.stash.assign(droppable_.begin() + static_cast<std::ptrdiff_t>(first),
                         droppable_.begin() + static_cast<std::ptrdiff_t>(taken));
      blocks.push_back(block);
      taken = first;
      block = {0, cut, *boundary, {}, begin};
      is_last = false;
    }
    if (!is_last) block.backward = backward_of(0, taken, block);
    block.stash.assign(droppable_.begin(), droppable_.begin() + static_cast<std::ptrdiff_t>(taken));
    blocks.push_back(block);
    std::reverse(blocks.begin(), blocks.end());
    return blocks;
  }

 private:
  /// How many values lead over each cut, and the sum of their numbers: of a single one, its own.
  void find_crossings() {
    std::vector<OpIndex> last_touch(tape_.values.size(), 0);
    last_write_.assign(tape_.values.size(), 0);
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
        const TapeUse& use = tape_.uses[tape_.ops[op].first_use + i];
        if (op <= stash_.forward_end) last_touch[use.value] = op;
        if (use.writes) last_write_[use.value] = op;
      }
    }
    crossing_.assign(stash_.forward_end + std::size_t{2}, {});
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const OpIndex birth = tape_.values[i].birth;
      if (birth == kCarriedIn || birth >= last_touch[i] || !tape_.ops[birth].is_replayable)
        continue;
      crossing_[birth].count += 1;
      crossing_[birth].sum += i;
      crossing_[last_touch[i]].count -= 1;
      crossing_[last_touch[i]].sum -= i;
    }
    for (OpIndex op = 1; op <= stash_.forward_end; ++op) {
      crossing_[op].count += crossing_[op - 1].count;
      crossing_[op].sum += crossing_[op - 1].sum;
    }
  }

  /// The value that alone leads over the cut; kNoValue where nothing does.
  std::optional<ValueIndex> boundary_at(OpIndex cut) const {
    if (crossing_[cut].count == 0) return kNoValue;
    if (crossing_[cut].count > 1) return std::nullopt;
    const auto value = static_cast<ValueIndex>(crossing_[cut].sum);
    return last_write_[value] <= cut && is_droppable_[value] ? std::optional(value) : std::nullopt;
  }

  void find_oldest_needs() {
    oldest_need_.assign(droppable_.size() + 1, kNever);
    for (std::size_t i = 0; i < droppable_.size(); ++i)
      oldest_need_[i + 1] = std::min(oldest_need_[i], stash_.values[droppable_[i]].next);
  }

  std::size_t first_born_behind(OpIndex cut) const {
    const auto first =
        std::partition_point(droppable_.begin(), droppable_.end(),
                             [&](std::size_t i) { return stash_.values[i].birth <= cut; });
    return static_cast<std::size_t>(first - droppable_.begin());
  }

  /// The first need of what is inside the block. Where there is nothing: the last use of the
  /// boundary, the first one being that of the next block; behind it if it is used once.
  OpIndex backward_of(std::size_t first, std::size_t end, const ChainBlock& block) const {
    OpIndex begin = kNever;
    OpIndex behind_boundary = block.backward;
    for (std::size_t i = first; i < end; ++i) {
      const StashedValue& value = stash_.values[droppable_[i]];
      if (value.value == block.boundary)
        behind_boundary =
            std::max(behind_boundary, value.last_use + (value.last_use > value.next ? 0 : 1));
      else
        begin = std::min(begin, value.next);
    }
    return std::max(block.backward, begin == kNever ? behind_boundary : begin);
  }

  bool is_big_enough(std::size_t first, std::size_t end) const {
    std::uint64_t pages = 0;
    for (std::size_t i = first; i < end; ++i) pages += stash_.values[droppable_[i]].pages;
    return pages > 0 && pages * most_blocks_ >= pages_;
  }

  struct Crossing {
    std::int64_t count = 0;
    std::int64_t sum = 0;
  };

  const StepTape& tape_;
  const ForwardStash& stash_;
  const std::size_t most_blocks_;
  std::vector<std::size_t> droppable_;  ///< By birth.
  std::vector<bool> is_droppable_;      ///< Per value: it is one of these.
  std::uint64_t pages_ = 0;
  std::vector<Crossing> crossing_;
  std::vector<OpIndex> last_write_;
  std::vector<OpIndex> oldest_need_;  ///< Of the first i droppable values.
};

}  // namespace

std::vector<ChainBlock> chain_of(const StepTape& tape, const ForwardStash& stash,
                                 const Recomputation& all, std::size_t most_blocks) {
  return ChainFinder(tape, stash, all, most_blocks).find();
}

}  // namespace spillway::planner
