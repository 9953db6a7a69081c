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

/// Looks for cuts of forward over which one value leads and which backward passes in reverse order:
///
///     forward     | block 0 | block 1 | block 2 |
///     backward                                  | of 2 | of 1 | of 0 |
///                           ^ cut: one value leads on, and nothing that lies before it is needed
///                             by what backward does behind it
///
/// Nets with skip connections inside of blocks have such cuts between these; those in which layers
/// read all layers before them have none.
class ChainFinder {
 public:
  ChainFinder(const StepTape& tape, const ForwardStash& stash, const Recomputation& all,
              std::size_t most_blocks)
      : tape_(tape), stash_(stash), most_blocks_(most_blocks), is_droppable_(tape.values.size()) {
    ReplayWalk walk(all);
    for (std::size_t i = 0; i < stash.values.size(); ++i) {
      const StashedValue& value = stash.values[i];
      // What cannot be recomputed stays wherever chains are cut, so it neither counts for their
      // sizes nor keeps a cut from being one.
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
    // From the end back, because backward takes the last block first: where it begins a block, it
    // has ended the one behind.
    for (OpIndex cut = stash_.forward_end; cut-- > 0;) {
      const auto boundary = boundary_at(cut);
      if (!boundary) continue;
      const std::size_t first = first_born_behind(cut);
      const OpIndex begin = is_last ? block.backward : backward_of(first, taken, block);
      // Something before the cut is needed earlier: backward does not come in the reverse order of
      // blocks here, so this is no cut of a chain.
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
      // As changes at both ends, so that all cuts together take as long as the step is.
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
    // Written behind the cut it would be two contents, of which replays of the next block need the
    // first.
    return last_write_[value] <= cut && is_droppable_[value] ? std::optional(value) : std::nullopt;
  }

  void find_oldest_needs() {
    oldest_need_.assign(droppable_.size() + 1, kNoOp);
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
    OpIndex begin = kNoOp;
    OpIndex behind_boundary = block.backward;
    for (std::size_t i = first; i < end; ++i) {
      const StashedValue& value = stash_.values[droppable_[i]];
      if (value.value == block.boundary)
        behind_boundary =
            std::max(behind_boundary, value.last_use + (value.last_use > value.next ? 0 : 1));
      else
        begin = std::min(begin, value.next);
    }
    return std::max(block.backward, begin == kNoOp ? behind_boundary : begin);
  }

  bool is_big_enough(std::size_t first, std::size_t end) const {
    std::uint64_t pages = 0;
    for (std::size_t i = first; i < end; ++i) pages += stash_.values[droppable_[i]].pages;
    // By pages and not by operators: the dynamic program is about memory, and its time grows with
    // the cube of the blocks.
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
