#include "step_search.h"

#include <limits>
#include <utility>

#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {
StepSearch::StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort)
    : tape_(tape),
      limits_(limits),
      effort_(effort),
      compute_seconds_(compute_begins(tape).back()),
      space_(tape, limits),
      all_ops_(limits.refinement_ops * (effort.should_stop ? kStoppableEffort : kEffort)),
      ops_left_(all_ops_) {}

// In the order of what somebody gets who stops it: any plan; swaps alone; the plans of all others;
// our own drops, found at prices (the sweep), one by one (the climb) and at random (disturbances).
// search.md tells the whole way. Refining swaps takes a large part of the effort and changes no
// drops, so it comes at the end, unless the search may be stopped before.
StepPlan StepSearch::run() {
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

// However good the drops are, swaps alone must not be better.
void StepSearch::offer_swaps_alone() {
  const bool may_wait = best_->estimate().step_seconds > compute_seconds_ * kOnlyCompute;
  if (has_swaps_alone_ || !may_wait || is_stopped()) return;
  offer(best_attempt(space_.nothing(), limits_.refinement_ops), 1.0);
  has_swaps_alone_ = true;
}

/// A search that begins anew does not lose what the one before has found.
void StepSearch::offer_known() {
  if (effort_.known == nullptr) return;
  const StepPlan& known = *effort_.known;
  try {
    StepPlan plan;
    plan.replays = known.replays;
    plan.steps = rewrite_tape(tape_, plan.replays);
    plan.replay_seconds = replay_seconds(tape_, plan.replays);
    // Its decisions are taken over, its figures are not: times and rates may be others now.
    plan.swaps = restore_swaps(plan.steps.tape, choices_of(known.steps.tape, known.swaps), limits_);
    offer_published(std::move(plan));
  } catch (const PlanError&) {
    return;  // The step has become another one.
  }
}

/// Others have ideas of their own: segments, blocks, what is big and stale. Ours is never slower
/// than the best of them, and goes on from what they drop.
void StepSearch::offer_published() {
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

void StepSearch::offer_published(StepPlan plan) {
  spend(kPublishedTries * plan.steps.tape.ops.size());
  std::vector<Fate> fates = space_.fates_in(plan.steps);
  hand_out(std::move(plan));
  // No set of ours describes such replays, or there are none: the plan itself is kept, but nothing
  // can be changed in it.
  if (fates == space_.nothing() || is_over()) return;
  const Attempt own = attempt(std::move(fates), best_->swaps.style);
  if (own.is_pruned) return;
  keep_start(own, {});
  offer(own);
}

/// A plan that is not made of the drops of an attempt of ours.
void StepSearch::hand_out(StepPlan plan) {
  if (!is_better(plan.swaps.estimate, best_estimate())) return;
  plan.strategy = "spillway";
  published_ = std::move(plan);
  // Whoever runs the plan follows it from now on, while the search goes on.
  if (effort_.on_better) effort_.on_better(finished());
}

StepSearch::Attempt StepSearch::rewritten(std::vector<Fate> fates) const {
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

StepSearch::Attempt StepSearch::attempt(std::vector<Fate> fates, const SwapStyle& style) {
  Attempt made = rewritten(std::move(fates));
  // Also where nothing is simulated: otherwise a search that only draws pruned sets would not
  // end.
  spend(tape_.ops.size());
  if (made.is_pruned) return made;
  made.swaps = {style, SwapSearch(made.steps.tape, limits_).plan(style)};
  spend(made.replays.size());
  return made;
}

StepSearch::Attempt StepSearch::best_attempt(std::vector<Fate> fates, std::size_t refinement_ops) {
  Attempt made = rewritten(std::move(fates));
  if (made.is_pruned) return made;
  made.swaps =
      SwapSearch(made.steps.tape, limits_).best(refinement_ops, [this] { return is_stopped(); });
  spend(kSwapTries * made.steps.tape.ops.size() + refinement_ops);
  return made;
}

/// The best is handed out; what is nearly as good is gone on from.
bool StepSearch::offer(const Attempt& attempt, double worthwhile) {
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

StepPlan StepSearch::finished() const { return published_ ? *published_ : plan_of(*best_); }

const StepEstimate& StepSearch::best_estimate() const {
  return published_ ? published_->swaps.estimate : best_->estimate();
}

bool StepSearch::is_stopped() {
  // Kept, so that all parts agree, whatever the caller's clock says next.
  was_stopped_ = was_stopped_ || (effort_.should_stop && effort_.should_stop());
  return was_stopped_;
}

bool StepSearch::is_over() { return ops_left_ == 0 || is_good_enough() || is_stopped(); }

bool StepSearch::is_good_enough() const {
  const StepEstimate& estimate = best_estimate();
  return estimate.is_complete && estimate.step_seconds <= compute_seconds_ * kAlmostCompute;
}

double StepSearch::effort_left() const {
  return static_cast<double>(ops_left_) / static_cast<double>(all_ops_);
}

}  // namespace spillway::planner
