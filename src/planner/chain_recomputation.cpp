#include "spillway/planner/chain_recomputation.h"

#include <algorithm>
#include <limits>

namespace spillway::planner {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr std::uint16_t kKeepAll = 0;  // Choices above 0: the block that the kept input leads to.

/// A part of the chain from block `from` to `to`, whose backward is next; its input is there. While
/// `to` is the last block of all, forward runs for the first time, which costs nothing extra.
///
///     T(i, j, m) = min of   own(i) + T(i + 1, j, m − stash(i))                  keep the stash
///                           runs(i … k − 1) + T(k, j, m − output(k − 1)) + T(i, k − 1, m)
///                                                      keep the input of some k in i + 1 … j
///
/// where a case counts only if its peaks fit into m. Kept inputs and stashes stay until the
/// backward of their block (persistent schedules), which makes the parts independent.
class ChainTable {
 public:
  ChainTable(std::span<const ChainCosts> blocks, std::uint32_t slots)
      : blocks_(blocks), count_(blocks.size()), slots_(slots) {
    seconds_.resize(count_ * count_ * (slots + std::size_t{1}), kImpossible);
    choice_.resize(seconds_.size(), kKeepAll);
    // Both parts of a split are shorter than the whole, so they are known by then.
    for (std::size_t length = 1; length <= count_; ++length) {
      for (std::size_t from = 0; from + length <= count_; ++from) {
        if (length > 1) keep_inputs(from, from + length - 1);
        keep_stash(from, from + length - 1);
      }
    }
  }

  std::optional<ChainSchedule> schedule() {
    const double least = seconds_[place(0, count_ - 1) + slots_];
    if (least == kImpossible) return std::nullopt;
    ChainSchedule schedule{least, {}};
    collect(0, count_ - 1, slots_, schedule.reruns);
    return schedule;
  }

 private:
  std::size_t place(std::size_t from, std::size_t to) const {
    return (from * count_ + to) * (slots_ + std::size_t{1});
  }
  bool is_first(std::size_t to) const { return to + 1 == count_; }

  /// Slots to run a block before the backward of another one.
  std::uint32_t forward_peak(std::size_t block, std::size_t to, RerunFor wanted) const {
    const ChainCosts& costs = blocks_[block];
    const bool is_boundary = wanted == RerunFor::kBoundary;
    if (is_first(to)) return is_boundary ? costs.first_boundary_peak : costs.first_all_peak;
    const std::uint32_t peak = is_boundary                 ? costs.boundary_peak
                               : wanted == RerunFor::kLast ? costs.last_peak
                                                           : costs.all_peak;
    return blocks_[to].held_before_backward + peak;
  }

  /// All of block `from` stays; the rest of the part has that much less.
  void keep_stash(std::size_t from, std::size_t to) {
    const ChainCosts& costs = blocks_[from];
    const bool is_single = from == to;
    const std::uint32_t need = std::max(
        forward_peak(from, to, is_single ? RerunFor::kLast : RerunFor::kAll), costs.backward_peak);
    // The first run belongs to forward, and is paid for whatever is kept of it.
    const double own = is_first(to) ? 0.0 : is_single ? costs.last_seconds : costs.all_seconds;
    double* here = &seconds_[place(from, to)];
    const double* rest = is_single ? nullptr : &seconds_[place(from + 1, to)];
    for (std::uint32_t slots = need; slots <= slots_; ++slots) {
      if (!is_single && slots < costs.stash) continue;
      const double time = own + (is_single ? 0.0 : rest[slots - costs.stash]);
      // Of equal times the stash stays: nothing is recomputed that wins no time.
      if (time > here[slots]) continue;
      here[slots] = time;
      choice_[place(from, to) + slots] = kKeepAll;
    }
  }

  /// Blocks before `next` run for their outputs only; the input of `next` stays until its backward.
  void keep_inputs(std::size_t from, std::size_t to) {
    double* here = &seconds_[place(from, to)];
    std::uint16_t* chosen = &choice_[place(from, to)];
    double own = 0.0;
    std::uint32_t need = 0;
    for (std::size_t next = from + 1; next <= to; ++next) {
      const ChainCosts& run = blocks_[next - 1];
      const std::uint32_t input = next - 1 > from ? blocks_[next - 2].boundary : 0;
      // Beside what a block takes there is the output that it reads; that of the first block is
      // held by whoever asked.
      need = std::max(need, input + forward_peak(next - 1, to, RerunFor::kBoundary));
      // Blocks between two kept inputs run once more each, for what leads to the next one.
      if (!is_first(to)) own += run.boundary_seconds;
      const double* later = &seconds_[place(next, to)];
      const double* earlier = &seconds_[place(from, next - 1)];
      for (std::uint32_t slots = std::max(need, run.boundary); slots <= slots_; ++slots) {
        const double time = own + later[slots - run.boundary] + earlier[slots];
        if (time >= here[slots]) continue;
        here[slots] = time;
        chosen[slots] = static_cast<std::uint16_t>(next);
      }
    }
  }

  void collect(std::size_t from, std::size_t to, std::uint32_t slots,
               std::vector<BlockRerun>& reruns) const {
    const auto rerun = [&](std::size_t block, RerunFor wanted) {
      if (!is_first(to))
        reruns.push_back(
            {static_cast<std::uint32_t>(block), wanted, static_cast<std::uint32_t>(to)});
    };
    if (from == to) return rerun(from, RerunFor::kLast);
    const std::size_t next = choice_[place(from, to) + slots];
    if (next == kKeepAll) {
      rerun(from, RerunFor::kAll);
      return collect(from + 1, to, slots - blocks_[from].stash, reruns);
    }
    for (std::size_t block = from; block < next; ++block) rerun(block, RerunFor::kBoundary);
    // Backward comes to the later part first, while the kept input of `next` takes its slots.
    collect(next, to, slots - blocks_[next - 1].boundary, reruns);
    collect(from, next - 1, slots, reruns);
  }

  const std::span<const ChainCosts> blocks_;
  const std::size_t count_;
  const std::uint32_t slots_;
  std::vector<double> seconds_;  ///< By first block, last block, slots.
  // Narrow, because there are slots times the square of the blocks of them.
  std::vector<std::uint16_t> choice_;
};

}  // namespace

std::optional<ChainSchedule> cheapest_reruns(std::span<const ChainCosts> blocks,
                                             std::uint32_t slots) {
  if (blocks.empty()) return ChainSchedule{};
  return ChainTable(blocks, slots).schedule();
}

}  // namespace spillway::planner
