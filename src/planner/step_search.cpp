#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "drop_space.h"
#include "online_eviction.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/planner/recomputation.h"
#include "spillway/planner/step_plan.h"
#include "spillway/planner/strategies.h"
#include "spillway/planner/swap_plan.h"
#include "swap_search.h"
#include "touch_intervals.h"

namespace spillway::planner {
namespace {

/// A plan as the list of what runs again, whichever drops led to it, and the swaps beside it.
struct ReplayList {
  std::vector<Replay> replays;
  RewrittenTape steps;
  StyledSwaps swaps;

  const StepEstimate& estimate() const { return swaps.plan.estimate; }
};

/// None where an operator would not find what it needs.
std::optional<ReplayList> planned(const StepTape& tape, const SwapLimits& limits,
                                  std::vector<Replay> replays, const SwapStyle& style) {
  ReplayList list;
  try {
    list.steps = rewrite_tape(tape, replays);
  } catch (const PlanError&) {
    return std::nullopt;
  }
  list.replays = std::move(replays);
  list.swaps = {style, SwapSearch(list.steps.tape, limits).plan(style)};
  return list;
}

/// What an on-line eviction runs again that has so many pages, and swaps of this style for what
/// does not fit into the budget then.
ReplayList evict_on_line(const StepTape& tape, const Recomputation& all, const SwapLimits& limits,
                         std::uint32_t pages, const SwapStyle& style,
                         const StopCheck& should_stop) {
  // Where layers read all those before them, freed values serve several replays, and there is more
  // room here than the budget has: they may stay.
  return *planned(tape, limits, evicted_on_line(tape, all, pages, FreedValues::kStay, should_stop),
                  style);
}

/// Takes replays out one by one, as long as that makes the plan better: what one of them brought
/// back stays from its use before on, or is swapped. Before each try it says how many operators
/// that simulates, and ends when the answer is no.
ReplayList without_needless(const StepTape& tape, const SwapLimits& limits, ReplayList list,
                            const std::function<bool(std::size_t ops)>& may_try) {
  for (bool has_improved = true; has_improved;) {
    has_improved = false;
    // What is computed from others comes before them, so these are needless when their turn comes.
    for (std::size_t i = list.replays.size(); i-- > 0;) {
      if (!may_try(list.steps.op_of.size())) return list;
      std::vector<Replay> less = list.replays;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<ReplayList> next = planned(tape, limits, std::move(less), list.swaps.style);
      if (!next || !is_better(next->estimate(), list.estimate(), kWorthwhileReplay)) continue;
      list = std::move(*next);
      has_improved = true;
    }
  }
  return list;
}

/// Searches sets of drops. Each is evaluated by the event model, with the swaps that go with it.
/// Keeps references to what it is given.
class StepSearch {
 public:
  StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort)
      : tape_(tape),
        limits_(limits),
        effort_(effort),
        compute_seconds_(compute_begins(tape).back()),
        space_(tape, limits),
        all_ops_(limits.refinement_ops * (effort.should_stop ? kStoppableEffort : kEffort)),
        ops_left_(all_ops_) {}

  // In the order of what somebody gets who stops it: any plan; swaps alone; the plans of all
  // others; our own drops, found at prices (the sweep), one by one (the climb) and at random
  // (disturbances). search.md tells the whole way. Refining swaps takes a large part of the effort
  // and changes no drops, so it comes at the end, unless the search may be stopped before.
  StepPlan run() {
    // One plan at once, of a single try: whoever stops the search early gets one.
    offer(attempt(space_.nothing(), {limits_.target_share, ChoiceRule::kLeastCost, {}}));
    if (!best_->swaps.plan.is_feasible) return finished();  // Replays need no less.
    offer_known();
    // All styles of swaps alone, unrefined: a fair plan to compare drops with, in a fraction of the
    // time that refining takes.
    if (!is_over()) offer(best_attempt(space_.nothing(), 0));
    offer_published();
    find_evictions();
    // Early where the effort is large: who stops the search must not get a plan that swaps alone
    // beat.
    if (effort_.should_stop) offer_swaps_alone();
    if (!space_.empty()) {
      sweep();
      choose_start();
      prune_lists();
      prune_best();
      climb();
      offer_swaps_alone();
      for (std::size_t tries = 1; !is_over(); ++tries) {
        slack_ = kSlack * effort_left();
        disturb();
        if (tries % kTriesPerStart == 0) begin_elsewhere(tries / kTriesPerStart);
        if (tries % kTriesPerStyle == 0) offer(best_attempt(best_->fates, 0));
        if (tries % kTriesPerStyle == 0) prune_best();
      }
      slack_ = 0.0;
    }
    if (!best_->replays.empty() && !is_good_enough() && !is_stopped())
      offer(best_attempt(best_->fates, limits_.refinement_ops));
    offer_swaps_alone();
    return finished();
  }

 private:
  /// A set of drops and what comes of it.
  struct Attempt : ReplayList {
    std::vector<Fate> fates;
    bool is_pruned = false;  ///< Far too much runs again; nothing else is known of it.
  };
  /// A set of drops to go on from, and how it was found.
  struct Start {
    Attempt attempt;
    DropPressure pressure;
  };

  Attempt rewritten(std::vector<Fate> fates) const {
    Attempt made;
    made.fates = std::move(fates);
    if (auto replays = space_.replays(made.fates)) {
      made.replays = std::move(*replays);
      made.steps = rewrite_tape(tape_, made.replays);
      return made;
    }
    made.is_pruned = true;
    made.swaps.plan.estimate.is_complete = false;
    // Infinite, so that whoever compares it without asking never prefers it.
    made.swaps.plan.estimate.step_seconds = std::numeric_limits<double>::infinity();
    return made;
  }

  Attempt attempt(std::vector<Fate> fates, const SwapStyle& style) {
    Attempt made = rewritten(std::move(fates));
    // Also where nothing is simulated: otherwise a search that only draws pruned sets would not
    // end.
    spend(tape_.ops.size());
    if (made.is_pruned) return made;
    made.swaps = {style, SwapSearch(made.steps.tape, limits_).plan(style)};
    spend(made.replays.size());
    return made;
  }

  Attempt best_attempt(std::vector<Fate> fates, std::size_t refinement_ops) {
    Attempt made = rewritten(std::move(fates));
    if (made.is_pruned) return made;
    made.swaps =
        SwapSearch(made.steps.tape, limits_).best(refinement_ops, [this] { return is_stopped(); });
    spend(kSwapTries * made.steps.tape.ops.size() + refinement_ops);
    return made;
  }

  /// What is at least by so much better than the best.
  /// The best is handed out; what is nearly as good is gone on from.
  bool offer(const Attempt& attempt, double worthwhile = kWorthwhileDrops) {
    const bool is_first = !best_;
    const bool is_best = is_first || is_better(attempt.estimate(), best_->estimate(), worthwhile);
    const bool is_news = !published_ || is_better(attempt.estimate(), best_estimate(), worthwhile);
    // Plans a little slower than the best are gone on from, less and less so: a search that takes
    // improvements alone stays where it first finds none.
    const bool is_near = slack_ > 0.0 && attempt.fates != current_.fates && !is_best &&
                         is_better(attempt.estimate(), best_->estimate(), 1.0 + slack_);
    const bool is_step =
        is_first || is_near || is_better(attempt.estimate(), current_.estimate(), kWorthwhileDrops);
    if (is_best) {
      best_ = attempt;
      if (is_news) published_.reset();
      if (is_news && effort_.on_better) effort_.on_better(finished());
    }
    if (is_step) current_ = attempt;
    return is_step;
  }

  // However good the drops are, swaps alone must not be better.
  void offer_swaps_alone() {
    const bool may_wait = best_->estimate().step_seconds > compute_seconds_ * kOnlyCompute;
    if (has_swaps_alone_ || !may_wait || is_stopped()) return;
    offer(best_attempt(space_.nothing(), limits_.refinement_ops), 1.0);
    has_swaps_alone_ = true;
  }

  /// A search that begins anew does not lose what the one before has found.
  void offer_known() {
    if (effort_.known == nullptr) return;
    const StepPlan& known = *effort_.known;
    try {
      StepPlan plan;
      plan.replays = known.replays;
      plan.steps = rewrite_tape(tape_, plan.replays);
      plan.replay_seconds = replay_seconds(tape_, plan.replays);
      // Its decisions are taken over, its figures are not: times and rates may be others now.
      plan.swaps =
          restore_swaps(plan.steps.tape, choices_of(known.steps.tape, known.swaps), limits_);
      offer_published(std::move(plan));
    } catch (const PlanError&) {
      return;  // The step has become another one.
    }
  }

  /// Others have ideas of their own: segments, blocks, what is big and stale. Ours is never slower
  /// than the best of them, and goes on from what they drop.
  void offer_published() {
    if (live_peak(tape_) <= limits_.budget_pages) return;
    if (!effort_.should_stop && tape_.ops.size() > kMostOpsUnstopped) return;
    for (const Strategy& strategy : strategies()) {
      if (!strategy.is_start) continue;
      if (ops_left_ == 0 || is_stopped()) return;
      try {
        // Not `Strategy::plan`, which would check tape and limits again and ask whether the step
        // fits.
        offer_published(strategy.make(tape_, limits_, [this] { return is_stopped(); }));
      } catch (const PlanError&) {
        continue;  // Such a step is none for it.
      }
    }
    if (starts_.size() > kGivenStarts) starts_.resize(kGivenStarts);  // Others are to be our own.
  }

  void offer_published(StepPlan plan) {
    spend(kPublishedTries * plan.steps.tape.ops.size());
    std::vector<Fate> fates = space_.fates_in(plan.steps);
    hand_out(std::move(plan));
    // No set of ours describes such replays, or there are none: the plan itself is kept, but
    // nothing can be changed in it.
    if (fates == space_.nothing() || is_over()) return;
    const Attempt own = attempt(std::move(fates), best_->swaps.style);
    if (own.is_pruned) return;
    keep_start(own, {});
    offer(own);
  }

  /// A plan that is not made of the drops of an attempt of ours.
  void hand_out(StepPlan plan) {
    if (!is_better(plan.swaps.estimate, best_estimate())) return;
    plan.strategy = "spillway";
    published_ = std::move(plan);
    // Whoever runs the plan follows it from now on, while the search goes on.
    if (effort_.on_better) effort_.on_better(finished());
  }

  StepPlan plan_of(const ReplayList& list) const {
    StepPlan plan;
    plan.strategy = "spillway";
    plan.replays = list.replays;
    plan.replay_seconds = replay_seconds(tape_, list.replays);
    plan.steps = list.steps;
    plan.swaps = list.swaps.plan;
    return plan;
  }

  /// What an on-line eviction with more room than there is recomputes, and swaps for the rest:
  /// where layers read all those before them, prices of single drops do not find such plans.
  void find_evictions() {
    if (space_.empty() || tape_.ops.size() > kMostOpsEvicted) return;
    const Recomputation all(tape_);
    for (const double share : kEvictionShares) {
      if (is_over()) break;
      // With more room than there is it recomputes less, and swaps have to do the rest; which
      // mixture is best depends on the link.
      const auto pages = static_cast<std::uint32_t>(share * limits_.budget_pages);
      ReplayList list = evict_on_line(tape_, all, limits_, pages, best_->swaps.style,
                                      [this] { return is_stopped(); });
      spend(kPublishedTries * list.steps.op_of.size());
      lists_.push_back(std::move(list));
    }
    std::stable_sort(lists_.begin(), lists_.end(), [](const ReplayList& a, const ReplayList& b) {
      return is_better(a.estimate(), b.estimate());
    });
    if (lists_.size() > kLists) lists_.resize(kLists);
    for (ReplayList& list : lists_) hand_out(plan_of(list));
  }

  /// Gives it the swaps that suit it: it was found with those of another plan.
  void restyle(ReplayList& list) {
    list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
    spend(kSwapTries * list.steps.op_of.size());
    hand_out(plan_of(list));
  }

  void prune_list(ReplayList list) {
    auto left = static_cast<std::size_t>(kPruneShare * static_cast<double>(ops_left_));
    const auto may_try = [&](std::size_t ops) {
      if (left < ops || is_over()) return false;
      left -= ops;
      spend(ops);
      return true;
    };
    list = without_needless(tape_, limits_, std::move(list), may_try);
    hand_out(plan_of(list));
    if (!is_over()) restyle(list);
  }

  void prune_lists() {
    for (ReplayList& list : lists_) {
      if (is_over()) return;
      if (!is_better(list.estimate(), best_estimate(), kFarBehind)) continue;
      restyle(list);
      prune_list(std::move(list));
    }
    lists_.clear();
  }

  /// Drops come and go with all that they ask for; single replays may do without.
  void prune_best() {
    const bool is_known = std::equal(
        pruned_.begin(), pruned_.end(), best_->replays.begin(), best_->replays.end(),
        [](const Replay& a, const Replay& b) { return a.before == b.before && a.op == b.op; });
    if (is_known || best_->replays.empty() || is_over()) return;
    // A plan that was pruned once has nothing more to lose, and this is called again and again.
    pruned_ = best_->replays;
    prune_list(*best_);
  }

  StepPlan finished() const { return published_ ? *published_ : plan_of(*best_); }

  bool is_stopped() {
    // Kept, so that all parts agree, whatever the caller's clock says next.
    was_stopped_ = was_stopped_ || (effort_.should_stop && effort_.should_stop());
    return was_stopped_;
  }

  bool is_over() { return ops_left_ == 0 || is_good_enough() || is_stopped(); }

  bool is_good_enough() const {
    const StepEstimate& estimate = best_estimate();
    return estimate.is_complete && estimate.step_seconds <= compute_seconds_ * kAlmostCompute;
  }

  const StepEstimate& best_estimate() const {
    return published_ ? published_->swaps.estimate : best_->estimate();
  }

  void spend(std::size_t ops) { ops_left_ -= std::min(ops_left_, ops); }
  double effort_left() const {
    return static_cast<double>(ops_left_) / static_cast<double>(all_ops_);
  }

  /// The time of a step is about the larger of what operators and what transfers take. So the price
  /// of transfers in seconds of replays goes from hardly anything to very much; between lies a
  /// best, mostly near 1, so the sweep begins there: it may be stopped.
  void sweep() {
    drop_by_prices({kDropShares.front(), 1.0});
    for (double weight = kWeightStep; weight <= kMostWeight; weight *= kWeightStep) {
      drop_by_prices({kDropShares.front(), 1.0 / weight});
      drop_by_prices({kDropShares.front(), weight});
    }
    if (starts_.empty() || is_over()) return;
    // Swaps beside replays are other ones than swaps alone.
    offer(best_attempt(starts_.front().attempt.fates, 0));
    const double best = starts_.front().pressure.transfer_weight;
    for (const double share : kDropShares) {
      for (const double factor : kFineWeights) drop_by_prices({share, best * factor});
    }
  }

  /// What is recomputed comes back when the first one needs it, so a tape with replays can be too
  /// full where the one before was not: it is looked at anew until that ends.
  void drop_by_prices(DropPressure pressure) {
    if (is_over()) return;
    Attempt last = rewritten(space_.nothing());
    for (int round = 0; round < kSweepRounds && !is_over(); ++round) {
      std::vector<Fate> more = space_.extended(last.fates, last.steps, pressure);
      // Nothing is too full any more, or drops cannot help what is.
      if (more == last.fates) break;
      last = attempt(std::move(more), best_->swaps.style);
      if (last.is_pruned) return;
      keep_start(last, pressure);
      offer(last);
    }
  }

  void keep_start(const Attempt& attempt, DropPressure pressure) {
    // The sweep finds some sets at several prices; three equal starts would be one.
    for (const Start& start : starts_) {
      if (start.attempt.fates == attempt.fates) return;
    }
    starts_.push_back({attempt, pressure});
    std::stable_sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) {
      return is_better(a.attempt.estimate(), b.attempt.estimate());
    });
    if (starts_.size() > kStarts) starts_.pop_back();
  }

  /// The local search begins at the best, once each has the swaps that suit it.
  void choose_start() {
    for (const Start& start : starts_) {
      if (is_over()) return;
      const Attempt styled = best_attempt(start.attempt.fates, 0);
      const bool is_first = &start == &starts_.front();
      if (!offer(styled) && is_first) current_ = styled;
      if (is_first || current_.fates == styled.fates) pressure_ = start.pressure;
    }
  }

  /// Every drop once, in random order, so that a short search is spread over the whole step.
  void climb() {
    std::vector<std::size_t> order(space_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Not std::shuffle, whose order the standard leaves open: plans would differ between libraries.
    for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[below(i + 1)]);
    // Long steps have more drops than the effort allows to try; the rest of it is for moves that
    // change several at once.
    const auto end = static_cast<std::size_t>((1.0 - kClimbShare) * static_cast<double>(ops_left_));
    for (const std::size_t drop : order) {
      if (ops_left_ <= end || is_over()) return;
      toggle(drop);
    }
  }

  /// What is best may be a dead end, so every other time the search goes on from another start.
  void begin_elsewhere(std::size_t count) {
    current_ = *best_;
    if (count % 2 == 0 || starts_.empty()) return;
    const Start& start = starts_[count / 2 % starts_.size()];
    current_ = start.attempt;
    pressure_ = start.pressure;
  }

  void disturb() {
    switch (below(10)) {
      case 0: return set_window();
      case 1: return recreate_window();
      case 2: return add_and_prune(below(space_.size()));
      case 3:
      case 4:
      case 5: return repair_without(random_dropped());
      default: return toggle(below(space_.size()));
    }
  }

  void toggle(std::size_t drop) {
    const Fate now = current_.fates[drop];
    for (const Fate fate : {Fate::kStays, Fate::kDrops, Fate::kDropsEachTime}) {
      // For an ingredient, to drop and to stay mean the same: it is kept for others.
      const bool is_same = fate == now || (space_.is_ingredient(drop) && fate == Fate::kDrops);
      if (is_same || is_over()) continue;
      std::vector<Fate> fates = current_.fates;
      fates[drop] = fate;
      if (offer(attempt(std::move(fates), current_.swaps.style))) return;
    }
  }

  /// Takes one drop back and lets others take its place.
  void repair_without(std::size_t drop) {
    std::vector<Fate> fates = current_.fates;
    if (fates[drop] == Fate::kStays) return toggle(drop);
    // One degree less, and `spared` from being chosen again: otherwise the prices would only bring
    // back what was there.
    fates[drop] = fates[drop] == Fate::kDropsEachTime ? Fate::kDrops : Fate::kStays;
    extend(rewritten(std::move(fates)), 2, drop);
  }

  /// Drops one more, and takes back what that makes needless.
  void add_and_prune(std::size_t drop) {
    std::vector<Fate> fates = current_.fates;
    if (fates[drop] == Fate::kDropsEachTime) return toggle(drop);
    fates[drop] = fates[drop] == Fate::kStays ? Fate::kDrops : Fate::kDropsEachTime;
    Attempt more = attempt(std::move(fates), current_.swaps.style);
    // What it makes needless is worth looking for only where the drop alone is not better already.
    if (!offer(more)) prune(std::move(more), other_pressure().share);
  }

  /// Forgets the drops of one part of the step and chooses them anew.
  void recreate_window() {
    std::vector<Fate> fates = current_.fates;
    const std::size_t first = below(fates.size());
    // Stretches of all sizes: drops are numbered by the step, so neighbours relieve the same
    // operators.
    const std::size_t end = std::min(first + (std::size_t{4} << below(6)), fates.size());
    for (std::size_t i = first; i < end; ++i) fates[i] = Fate::kStays;
    extend(rewritten(std::move(fates)), 3, kNoOp);
  }

  /// Gives one part of the step the same fate.
  void set_window() {
    std::vector<Fate> fates = current_.fates;
    const std::size_t first = below(fates.size());
    const std::size_t end = std::min(first + (std::size_t{2} << below(4)), fates.size());
    const auto fate = static_cast<Fate>(below(3));
    for (std::size_t i = first; i < end; ++i) fates[i] = fate;
    if (fates != current_.fates) offer(attempt(std::move(fates), current_.swaps.style));
  }

  void extend(Attempt from, int rounds, std::size_t spared) {
    const DropPressure pressure = other_pressure();
    for (int round = 0; round < rounds && !from.is_pruned && !is_over(); ++round) {
      std::vector<Fate> more = space_.extended(from.fates, from.steps, pressure, spared);
      if (more == from.fates && round > 0) break;
      from = attempt(std::move(more), current_.swaps.style);
      if (offer(from)) return;
    }
    prune(std::move(from), pressure.share);
  }

  void prune(Attempt from, double share) {
    for (int round = 0; round < kTakeBackRounds && !from.is_pruned && !is_over(); ++round) {
      std::vector<Fate> less = space_.pruned(from.fates, from.steps, share);
      if (less == from.fates) return;
      from = attempt(std::move(less), current_.swaps.style);
      if (offer(from)) return;
    }
  }

  DropPressure other_pressure() {
    const double share = kDropShares[below(kDropShares.size())];
    return {share, pressure_.transfer_weight * kOtherWeights[below(kOtherWeights.size())]};
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }
  /// One that is dropped, unless hardly any is.
  std::size_t random_dropped() {
    std::size_t drop = below(space_.size());
    for (int picks = 0; picks < kPicks && current_.fates[drop] == Fate::kStays; ++picks)
      drop = below(space_.size());
    return drop;
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const PlanEffort& effort_;
  const double compute_seconds_;  ///< Of the operators, once each.
  const DropSpace space_;
  const std::size_t all_ops_;  ///< Operators that may be simulated.
  std::size_t ops_left_;
  bool was_stopped_ = false;      ///< Nobody is asked again then.
  bool has_swaps_alone_ = false;  ///< They were refined and offered.
  std::optional<Attempt> best_;
  std::optional<StepPlan> published_;  ///< Of another strategy, where it is better than the best.
  std::vector<Start> starts_;          ///< The best few, best first.
  std::vector<ReplayList> lists_;      ///< Of on-line evictions, best first.
  std::vector<Replay> pruned_;         ///< Of the latest best plan that was pruned.
  Attempt current_;                    ///< From which the local search goes on.
  DropPressure pressure_;              ///< That led to it.
  double slack_ = 0.0;                 ///< So much slower than the best it may be.
  std::minstd_rand random_;            ///< Always begins alike.
};

SwapPlan best_swaps(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  if (!tape.ops.empty())
    return SwapSearch(tape, limits).best(limits.refinement_ops, should_stop).plan;
  SwapPlan plan;
  plan.write_outs.first = plan.fetches.first = plan.births.first = {0};
  plan.is_feasible = true;
  return plan;
}

}  // namespace

PerOp drops_per_op(const StepTape& tape, const RewrittenTape& steps) {
  const std::vector<OpIndex> at = places_in(steps);
  // A presence that ends before the value itself does.
  std::vector<OpIndex> ends;
  for (ValueIndex i = 0; i < steps.tape.values.size(); ++i) {
    const OpIndex end = steps.tape.values[i].death;
    const OpIndex death = tape.values[steps.value_of[i]].death;
    const bool is_drop =
        end != profile::kSurvives && (death == profile::kSurvives || end < at[death]);
    ends.push_back(is_drop ? end : kNoOp);
  }
  PerOp drops = group_by_op(ends, steps.tape.ops.size());
  for (std::uint32_t& entry : drops.entries) entry = steps.value_of[entry];
  return drops;
}

StepPlan plan_with_replays(const StepTape& tape, std::vector<Replay> replays,
                           const SwapLimits& limits, const StopCheck& should_stop) {
  check(limits);
  profile::check(tape);
  StepPlan plan;
  plan.steps = rewrite_tape(tape, replays);
  plan.replay_seconds = replay_seconds(tape, replays);
  plan.replays = std::move(replays);
  plan.swaps = best_swaps(plan.steps.tape, limits, should_stop);
  return plan;
}

StepPlan plan_step(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort) {
  check(limits);
  profile::check(tape);
  if (tape.ops.empty()) {
    StepPlan plan = plan_with_replays(tape, {}, limits);
    plan.strategy = "spillway";
    if (effort.on_better) effort.on_better(plan);
    return plan;
  }
  return StepSearch(tape, limits, effort).run();
}

}  // namespace spillway::planner
