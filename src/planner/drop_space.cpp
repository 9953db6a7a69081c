#include "drop_space.h"

#include <algorithm>
#include <limits>

#include "level_tree.h"
#include "operator_prices.h"
#include "replay_walk.h"
#include "search_limits.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

namespace spillway::planner {
namespace {

/// A cover: an interval that goes relieves all operators inside it, and each full operator asks for
/// so many pages. Prices say what that is worth at each of them, so intervals are comparable by
/// cost over worth, and are taken in this order; what later ones make needless is taken back at the
/// end.
class DropChooser {
 public:
  DropChooser(const TouchIntervals& touches, const std::vector<std::uint32_t>& live,
              std::uint32_t target_pages, PageCost cost, const std::vector<double>& drop_costs)
      : touches_(touches), target_(target_pages), levels_(live) {
    const auto values =
        interval_values(touches, operator_prices(touches, live, target_pages, cost, drop_costs));
    for (std::uint32_t i = 0; i < touches.intervals.size(); ++i) {
      // No operator inside is full: whatever it costs, it relieves nobody.
      if (values[i] <= 0.0) continue;
      const Interval& interval = touches.intervals[i];
      // The write is charged whole to each interval of an epoch, though one serves them all: which
      // of these will leave is not known yet.
      const double moving = (interval.epoch == kNeverWritten ? 0.0 : cost.write) +
                            (interval.end == IntervalEnd::kUsed ? cost.read : 0.0);
      const double least = std::min(moving, drop_costs[i]);
      options_.push_back({i, drop_costs[i] < moving, least, least / values[i], 0});
    }
  }

  std::vector<std::uint32_t> choose() {
    std::stable_sort(options_.begin(), options_.end(),
                     [](const Option& a, const Option& b) { return a.rate < b.rate; });
    for (Option& option : options_) take(option);
    // What saves most by staying is asked first, since each one that stays takes room from the
    // next.
    std::stable_sort(options_.begin(), options_.end(), [](const Option& a, const Option& b) {
      return a.cost * static_cast<double>(a.taken) > b.cost * static_cast<double>(b.taken);
    });
    std::vector<std::uint32_t> chosen;
    for (Option& option : options_) {
      give_back(option);
      // Swaps stood here as rivals of the drops only. How many pages really move is decided anew on
      // the tape that has the replays.
      if (option.is_drop && option.taken > 0) chosen.push_back(option.interval);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  struct Option {
    std::uint32_t interval = 0;
    bool is_drop = false;
    double cost = 0.0;  ///< Per page.
    double rate = 0.0;  ///< Cost against what the reduced operators pay; the lowest goes first.
    std::int64_t taken = 0;
  };

  std::int64_t excess(const Interval& interval) const {
    return levels_.max(interval.begin + 1, interval.covered_ops) - target_;
  }

  void take(Option& option) {
    const Interval& interval = touches_.intervals[option.interval];
    const std::int64_t missing = excess(interval);
    if (missing <= 0) return;
    // Pages can be moved one by one; a value is computed as a whole.
    option.taken = interval.pages;
    if (!option.is_drop) option.taken = std::min(option.taken, missing);
    levels_.add(interval.begin + 1, interval.covered_ops, -option.taken);
  }

  /// What later ones have made needless.
  void give_back(Option& option) {
    const Interval& interval = touches_.intervals[option.interval];
    // All or nothing: a value that is recomputed for one of its pages is recomputed for all.
    if (option.taken == 0 || -excess(interval) < option.taken) return;
    levels_.add(interval.begin + 1, interval.covered_ops, option.taken);
    option.taken = 0;
  }

  const TouchIntervals& touches_;
  const std::int64_t target_;
  LevelTree levels_;
  std::vector<Option> options_;
};

/// Chooses for every interval the cheaper of moving its pages and recomputing them, and of all
/// of them what brings no operator above the target for the least cost: greedily at dual prices.
/// `drop_costs` are seconds per page and interval, infinite where nothing can be dropped. Returns
/// the intervals to drop.
std::vector<std::uint32_t> choose_drops(const TouchIntervals& touches,
                                        const std::vector<std::uint32_t>& live,
                                        std::uint32_t target_pages, PageCost cost,
                                        const std::vector<double>& drop_costs) {
  return DropChooser(touches, live, target_pages, cost, drop_costs).choose();
}

std::vector<double> crowd(const StepTape& tape, double pages) {
  std::vector<double> crowd;
  for (const std::uint32_t level : live_pages(tape)) crowd.push_back(level > pages ? 1.0 : 0.0);
  return crowd;
}

/// Per operator of a rewritten tape: the original one that is next or runs here.
/// Fates speak of operators of the original tape, so places among replays are named after the
/// operator that these run for.
std::vector<OpIndex> next_originals(const RewrittenTape& steps) {
  std::vector<OpIndex> next(steps.op_of.size() + 1, kNoOp);
  for (std::size_t at = steps.op_of.size(); at-- > 0;)
    next[at] = steps.is_replay[at] ? next[at + 1] : steps.op_of[at];
  return next;
}

}  // namespace

using profile::kCarriedIn;
using profile::kSurvives;

// Fates are ordered by how little they leave in memory: stays < drops < drops each time. Searches
// move along that order, one degree at a time, and look at the rewritten tape in between: what a
// degree frees, and which operators the replays fill again, only that tells.
DropSpace::DropSpace(const StepTape& tape, const SwapLimits& limits)
    : tape_(tape), limits_(limits), all_(tape) {
  find_candidates();
  find_ingredients();
  index_by_value();
}

void DropSpace::find_candidates() {
  // The number of candidates decides how long a search takes: sets are vectors of their fates, and
  // local moves draw from them.
  const CircularSums crowded(crowd(tape_, kFullShare * limits_.budget_pages));
  ReplayWalk walk(all_);
  for (const Interval& interval : find_intervals(tape_).intervals) {
    const std::size_t next = std::size_t{interval.begin} + 1 + interval.covered_ops;
    // A replay reads what its own step has made: nothing is recomputed over the end of the step,
    // and what dies unused has nobody to come back for.
    if (interval.end != IntervalEnd::kUsed || next >= tape_.ops.size()) continue;
    if (crowded.sum(interval.begin + std::size_t{1}, interval.covered_ops) < 0.5) continue;
    auto replays = walk.restore_alone(interval.value, static_cast<OpIndex>(next), kMostOpsOfDrop);
    if (replays.empty()) continue;
    candidates_.push_back(
        {{interval.value, interval.begin, false}, static_cast<OpIndex>(next), std::move(replays)});
  }
}

void DropSpace::find_ingredients() {
  const PerOp births = made_per_op(tape_);
  std::vector<bool> is_known(tape_.values.size(), false);
  for (const Candidate& candidate : candidates_) {
    for (const OpIndex op : candidate.replays) {
      for (const ValueIndex value : births.of(op)) {
        const OpIndex death = tape_.values[value].death;
        // What still lives when the replay needs it is simply there, and has no fate of its own.
        if (is_known[value] || death == kSurvives || death >= candidate.next) continue;
        is_known[value] = true;
        ingredients_.push_back({value, death, false});
      }
    }
  }
}

void DropSpace::index_by_value() {
  std::vector<OpIndex> values;
  for (const Candidate& candidate : candidates_) values.push_back(candidate.drop.value);
  for (const Drop& ingredient : ingredients_) values.push_back(ingredient.value);
  PerOp grouped = group_by_op(values, tape_.values.size());
  first_of_value_ = std::move(grouped.first);
  of_value_ = std::move(grouped.entries);
}

std::vector<Fate> DropSpace::nothing() const { return std::vector<Fate>(size(), Fate::kStays); }

std::optional<std::vector<Replay>> DropSpace::replays(const std::vector<Fate>& fates) const {
  std::vector<Drop> drops;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (fates[i] == Fate::kStays) continue;
    drops.push_back(candidates_[i].drop);
    drops.back().each_time = fates[i] == Fate::kDropsEachTime;
  }
  for (std::size_t i = candidates_.size(); i < fates.size(); ++i) {
    // The walk lets an ingredient go behind the operator that it came for, unless a drop names it:
    // then it keeps it for others (see `Recomputation::replays`). So the drop is what makes it
    // stay.
    if (fates[i] != Fate::kDropsEachTime) drops.push_back(ingredients_[i - candidates_.size()]);
  }
  return ReplayWalk(all_).walk(drops, kMostRounds * tape_.ops.size() + kFreeReplays);
}

std::vector<Fate> DropSpace::fates_in(const RewrittenTape& steps) const {
  const std::vector<OpIndex> next = next_originals(steps);
  std::vector<std::uint32_t> returns(size(), 0);
  // Values beyond those of the original tape are presences that replays have made.
  for (std::size_t value = tape_.values.size(); value < steps.value_of.size(); ++value) {
    const std::uint32_t drop = drop_at(steps.value_of[value], next[steps.tape.values[value].birth]);
    if (drop != kNoOp) ++returns[drop];
  }
  std::vector<Fate> fates = nothing();
  for (std::size_t drop = 0; drop < fates.size(); ++drop) {
    // A value that came back several times was let go in between.
    if (returns[drop] > 1) fates[drop] = Fate::kDropsEachTime;
    if (returns[drop] == 1 && !is_ingredient(drop)) fates[drop] = Fate::kDrops;
  }
  return fates;
}

/// The drop that decides about a value right before an operator.
std::uint32_t DropSpace::drop_at(ValueIndex value, OpIndex before) const {
  for (std::uint32_t i = first_of_value_[value]; i < first_of_value_[value + 1]; ++i) {
    const std::uint32_t drop = of_value_[i];
    if (is_ingredient(drop)) {
      if (before > ingredients_[drop - candidates_.size()].after) return drop;
    } else if (before > candidates_[drop].drop.after && before <= candidates_[drop].next) {
      return drop;
    }
  }
  return kNoOp;
}

std::vector<DropSpace::Option> DropSpace::options(const std::vector<Fate>& fates,
                                                  const RewrittenTape& steps,
                                                  const TouchIntervals& touches) const {
  std::vector<double> running(tape_.ops.size(), 0.0);
  for (std::size_t at = 0; at < steps.op_of.size(); ++at) {
    if (steps.is_replay[at]) running[steps.op_of[at]] += 1.0;
  }
  const std::vector<OpIndex> next = next_originals(steps);
  std::vector<Option> options(touches.intervals.size());
  for (std::size_t i = 0; i < options.size(); ++i) {
    const Interval& interval = touches.intervals[i];
    const std::size_t end = std::size_t{interval.begin} + 1 + interval.covered_ops;
    if (interval.end != IntervalEnd::kUsed || end >= steps.op_of.size()) continue;
    const std::uint32_t drop = drop_at(steps.value_of[interval.value], next[interval.begin + 1]);
    if (drop == kNoOp) continue;
    const OpIndex birth = steps.tape.values[interval.value].birth;
    const bool is_back = birth != kCarriedIn && steps.is_replay[birth];
    // What came back early can be dropped again; what others need meanwhile comes back anyway.
    if (is_back ? fates[drop] == Fate::kDropsEachTime
                : fates[drop] != Fate::kStays || steps.is_replay[interval.begin])
      continue;
    options[i].drop = drop;
    if (is_ingredient(drop)) {
      options[i].seconds = seconds(tape_.ops[steps.op_of[birth]].time);
      continue;
    }
    // What runs again anyway is shared.
    for (const OpIndex op : candidates_[drop].replays)
      options[i].seconds += seconds(tape_.ops[op].time) / (is_back ? 1.0 : 1.0 + running[op]);
  }
  return options;
}

std::vector<Fate> DropSpace::extended(const std::vector<Fate>& fates, const RewrittenTape& steps,
                                      DropPressure pressure, std::size_t spared) const {
  const TouchIntervals touches = find_intervals(steps.tape);
  const std::vector<Option> all = options(fates, steps, touches);
  std::vector<double> costs;
  for (std::size_t i = 0; i < all.size(); ++i)
    costs.push_back(all[i].drop == kNoOp || all[i].drop == spared
                        ? std::numeric_limits<double>::infinity()
                        : all[i].seconds / touches.intervals[i].pages);
  const std::vector<std::uint32_t> live = live_pages(steps.tape);
  PageCost cost = page_cost(limits_, excess_over(limits_.budget_pages, live));
  // Transfers and replays run side by side, so what a second of either is worth depends on which of
  // them the step waits for. Nobody knows that before; the search tries many ratios.
  cost.write *= pressure.transfer_weight;
  cost.read *= pressure.transfer_weight;
  const auto target = static_cast<std::uint32_t>(pressure.share * limits_.budget_pages);
  std::vector<Fate> extended = fates;
  for (const std::uint32_t i : choose_drops(touches, live, target, cost, costs)) {
    const std::uint32_t drop = all[i].drop;
    // One degree at a time: what was dropped already and is too long there again is dropped again.
    const bool is_kept = !is_ingredient(drop) && fates[drop] == Fate::kStays;
    extended[drop] = is_kept ? Fate::kDrops : Fate::kDropsEachTime;
  }
  return extended;
}

std::vector<DropSpace::Gap> DropSpace::gaps(const std::vector<Fate>& fates,
                                            const RewrittenTape& steps) const {
  const std::vector<OpIndex> next = next_originals(steps);
  std::vector<double> running(tape_.ops.size(), 0.0);
  std::vector<OpIndex> moved(tape_.ops.size(), 0);
  for (OpIndex at = 0; at < steps.op_of.size(); ++at) {
    if (steps.is_replay[at])
      running[steps.op_of[at]] += 1.0;
    else
      moved[steps.op_of[at]] = at;
  }
  struct Away {
    OpIndex since = kNoOp;
    std::uint32_t returns = 0;
  };
  std::vector<Away> away(size());
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    away[i].since = moved[candidates_[i].drop.after];
  std::vector<Gap> gaps;
  for (std::size_t value = tape_.values.size(); value < steps.value_of.size(); ++value) {
    const auto& lived = steps.tape.values[value];
    const std::uint32_t drop = drop_at(steps.value_of[value], next[lived.birth]);
    if (drop == kNoOp || (!is_ingredient(drop) && fates[drop] == Fate::kStays)) continue;
    Away& last = away[drop];
    const bool is_first = last.returns++ == 0;
    const OpIndex since = last.since;
    last.since = lived.death;
    // Taking back one degree keeps a value between its returns; it would not be there before the
    // first.
    if (is_first && (is_ingredient(drop) || fates[drop] == Fate::kDropsEachTime)) continue;
    if (lived.birth <= since) continue;
    Gap gap{drop, since + 1, lived.birth + 1, lived.pages, 0.0};
    if (is_ingredient(drop)) {
      gap.seconds = seconds(steps.tape.ops[lived.birth].time);
    } else {
      for (const OpIndex op : candidates_[drop].replays)
        gap.seconds += seconds(tape_.ops[op].time) / std::max(1.0, running[op]);
    }
    gaps.push_back(gap);
  }
  return gaps;
}

std::vector<Fate> DropSpace::pruned(const std::vector<Fate>& fates, const RewrittenTape& steps,
                                    double share) const {
  std::vector<Gap> all = gaps(fates, steps);
  // The dearest per page first: each one that stays takes room from those behind it.
  std::stable_sort(all.begin(), all.end(), [](const Gap& a, const Gap& b) {
    return a.seconds * b.pages > b.seconds * a.pages;
  });
  LevelTree levels(live_pages(steps.tape));
  const auto target = static_cast<std::int64_t>(share * limits_.budget_pages);
  std::vector<Fate> pruned = fates;
  for (const Gap& gap : all) {
    if (levels.max(gap.first, gap.end - gap.first) + gap.pages > target) continue;
    levels.add(gap.first, gap.end - gap.first, gap.pages);
    // One degree less for each: the next look at the rewritten tape tells whether another one
    // follows.
    pruned[gap.drop] = fates[gap.drop] == Fate::kDrops ? Fate::kStays : Fate::kDrops;
  }
  return pruned;
}

}  // namespace spillway::planner
