#include <algorithm>
#include <limits>

#include "plan_assembly.h"
#include "replay_walk.h"

namespace spillway::planner {
namespace {

/// A tensor between two accesses.
struct Candidate {
  ChosenGap gap;
  double free_seconds = 0.0;       ///< Between the end of its write-out and the start of its fetch.
  double recompute_seconds = 0.0;  ///< 0: it cannot be computed again.
  std::vector<ValueIndex> sources;  ///< What computing it again reads.
  bool is_chosen = false;
};

/// While some operator holds too much: of the tensors that are idle then, the one with the longest
/// free time is swapped, if that hides its transfers. When none is left, each of them costs either
/// the part of its transfers that is not hidden, or its recomputation, of which the one that saves
/// most memory per second (MSPS) comes first; the cheaper way is taken. The paper shifts fetches by
/// feedback of later iterations; here they go back from the next access with one link for all.
class CapuchinPolicy {
 public:
  CapuchinPolicy(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop)
      : tape_(tape),
        limits_(limits),
        should_stop_(should_stop),
        all_(tape),
        touches_(find_intervals(tape)) {
    for (const std::uint32_t level : gross_levels(tape)) levels_.push_back(level);
    const std::vector<double> begins = compute_begins(tape);
    for (const Interval& interval : touches_.intervals) {
      if (is_told(should_stop_)) break;
      if (interval.end != IntervalEnd::kDies) candidates_.push_back(candidate(interval, begins));
    }
  }

  void choose() {
    while (!is_told(should_stop_)) {
      const auto top = std::max_element(levels_.begin(), levels_.end());
      if (*top <= limits_.budget_pages) return;
      const auto op = static_cast<std::size_t>(top - levels_.begin());
      Candidate* best_swap = nullptr;
      Candidate* best_recompute = nullptr;
      for (Candidate& each : candidates_) {
        if (each.is_chosen || !covers(each.gap, op)) continue;
        if (!best_swap || each.free_seconds > best_swap->free_seconds) best_swap = &each;
        if (each.recompute_seconds > 0.0 && (!best_recompute || msps(each) > msps(*best_recompute)))
          best_recompute = &each;
      }
      if (!best_swap) {
        // Nothing idle is left here, and the event model pages on demand.
        *top = limits_.budget_pages;
        continue;
      }
      const bool is_hidden = best_swap->free_seconds >= 0.0;
      if (!is_hidden && best_recompute &&
          best_recompute->recompute_seconds < -best_swap->free_seconds)
        recompute(*best_recompute);
      else
        swap(*best_swap);
    }
  }

  std::vector<Replay> replays() const { return all_.replays(drops_); }
  const std::vector<ChosenGap>& swaps() const { return swaps_; }

 private:
  Candidate candidate(const Interval& interval, const std::vector<double>& begins) {
    const std::size_t op_count = tape_.ops.size();
    Candidate found{{interval.value, interval.begin, interval.covered_ops, interval.pages},
                    0.0,
                    0.0,
                    {},
                    false};
    if (interval.end == IntervalEnd::kStays) {
      found.free_seconds = std::numeric_limits<double>::max();
      return found;
    }
    const std::size_t end = std::size_t{interval.begin} + 1 + interval.covered_ops;
    const double bytes =
        static_cast<double>(interval.pages) * static_cast<double>(limits_.page_size.count());
    found.free_seconds = begins[end % op_count] +
                         static_cast<double>(end / op_count) * begins[op_count] -
                         begins[interval.begin + 1] - bytes / limits_.rates.write_bytes_per_second -
                         bytes / limits_.rates.read_bytes_per_second;
    if (end >= op_count) return found;
    for (const OpIndex op : walk_.cheapest_replays(interval.value, interval.begin)) {
      found.recompute_seconds += std::max(1e-12, seconds(tape_.ops[op].time));
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i)
        found.sources.push_back(tape_.uses[tape_.ops[op].first_use + i].value);
    }
    return found;
  }

  static double msps(const Candidate& each) { return each.gap.pages / each.recompute_seconds; }

  bool covers(const ChosenGap& gap, std::size_t op) const {
    const std::size_t from = (op + tape_.ops.size() - gap.begin - 1) % tape_.ops.size();
    return from < gap.covered_ops;
  }

  void leave(Candidate& chosen) {
    chosen.is_chosen = true;
    for (std::uint32_t i = 0; i < chosen.gap.covered_ops; ++i)
      levels_[(chosen.gap.begin + 1 + i) % tape_.ops.size()] -= chosen.gap.pages;
  }

  void swap(Candidate& chosen) {
    leave(chosen);
    swaps_.push_back(chosen.gap);
  }

  /// Whatever is computed from it takes that much longer from now on.
  void recompute(Candidate& chosen) {
    leave(chosen);
    drops_.push_back({chosen.gap.value, chosen.gap.begin});
    for (Candidate& other : candidates_) {
      const auto& sources = other.sources;
      if (std::find(sources.begin(), sources.end(), chosen.gap.value) != sources.end())
        other.recompute_seconds += chosen.recompute_seconds;
    }
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const StopCheck& should_stop_;
  const Recomputation all_;
  ReplayWalk walk_{all_};
  const TouchIntervals touches_;
  std::vector<std::int64_t> levels_;
  std::vector<Candidate> candidates_;
  std::vector<ChosenGap> swaps_;
  std::vector<Drop> drops_;
};

StepPlan make_capuchin(const StepTape& tape, const SwapLimits& limits,
                       const StopCheck& should_stop) {
  CapuchinPolicy policy(tape, limits, should_stop);
  policy.choose();
  PlanAssembly assembly(tape, policy.replays(), limits);
  SwapPlan swapped = assembly.swapped(assembly.pages_for(policy.swaps()), TransferStyle{});
  return std::move(assembly).finish(std::move(swapped));
}

}  // namespace

extern const Strategy kCapuchin{
    "capuchin", "swaps by free time, then recomputes by memory saved per second",
    "Peng et al., Capuchin: tensor-based GPU memory management for deep "
    "learning, ASPLOS 2020",
    make_capuchin};

}  // namespace spillway::planner
