#include "step_search.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "moment_search.h"
#include "plan_assembly.h"
#include "strategies/strategy_list.h"

namespace spillway::planner {
namespace {

// A set of drops must be better by this much to be preferred to one that was tried before it.
constexpr double kWorthwhile = 0.9999;
// Simulated operators, as multiples of `refinement_ops`: where nobody stops the search, and where
// somebody may.
constexpr std::size_t kEffort = 4;
constexpr std::size_t kStoppableEffort = 40;
// All ways of swapping that are tried for one set of drops.
constexpr std::size_t kSwapTries = 30;

constexpr std::array<double, 3> kShares{1.0, 0.94, 0.88};
// What a second of transfers counts: from links that have time to spare to those that have none.
constexpr double kLeastWeight = 1.0 / 64;
constexpr double kMostWeight = 64.0;
constexpr double kWeightStep = 2.0;
constexpr std::array<double, 3> kFineWeights{0.7, 1.0, 1.4};
constexpr std::array<double, 5> kOtherWeights{0.25, 0.5, 1.0, 2.0, 4.0};
constexpr int kSweepRounds = 8;
constexpr int kPruneRounds = 4;
constexpr std::size_t kStarts = 3;
constexpr double kClimbShare = 0.3;  // Of the effort that is left after the sweep.
constexpr double kSlack = 0.003;     // At the begin of the disturbances; in the end none.
constexpr std::size_t kTriesPerStyle = 200;
constexpr int kPicks = 32;
// A step that takes hardly longer than its operators needs no better plan.
constexpr double kAlmostCompute = 1.0005;
constexpr double kOnlyCompute = 1.0 + 1e-9;
// Steps of so few operators get every moment of every swap of the best attempts tried.
constexpr std::size_t kTinyOps = 16;
constexpr std::size_t kFinalists = 24;
// Steps of more operators are not planned by blocks, too: that takes some ten times as long as a
// first plan.
constexpr std::size_t kMostOpsInBlocks = 4000;

}  // namespace

StepSearch::StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort)
    : tape_(tape),
      limits_(limits),
      effort_(effort),
      bound_(bound_plan(tape, limits)),
      space_(tape, limits),
      all_ops_(limits.refinement_ops * (effort.should_stop ? kStoppableEffort : kEffort)),
      ops_left_(all_ops_) {}

StepPlan StepSearch::run() {
  offer(attempt(space_.nothing(), {limits_.target_share, ChoiceRule::kLeastCost, {}}));
  if (!is_over()) offer(best_attempt(space_.nothing(), 0));
  offer_blocks();
  if (!space_.empty()) {
    sweep();
    choose_start();
    climb();
    // Early, since those who stop the search must not get a plan that swaps alone beat, either.
    offer_swaps_alone();
    for (std::size_t tries = 1; !is_over(); ++tries) {
      slack_ = kSlack * effort_left();
      disturb();
      if (tries % kTriesPerStyle == 0) offer(best_attempt(best_->fates, 0));
    }
    slack_ = 0.0;
  }
  if (!best_->replays.empty() && !is_good_enough() && !is_stopped())
    offer(best_attempt(best_->fates, limits_.refinement_ops));
  offer_swaps_alone();
  try_moments();
  return finished();
}

// --- Attempts ---------------------------------------------------------------------------------

// However good the drops are, swaps alone must not be better.
void StepSearch::offer_swaps_alone() {
  const bool may_wait = best_->estimate().step_seconds > bound_.compute_seconds * kOnlyCompute;
  if (has_swaps_alone_ || !may_wait || is_stopped()) return;
  offer(best_attempt(space_.nothing(), limits_.refinement_ops), 1.0);
  has_swaps_alone_ = true;
}

/// Where transfers hide nearly all, blocks that leave and return as a whole can hide the rest.
void StepSearch::offer_blocks() {
  const double almost_nothing = bound_.compute_seconds * kOnlyCompute;
  if (tape_.ops.size() > kMostOpsInBlocks || best_->estimate().step_seconds <= almost_nothing)
    return;
  if (live_peak(tape_) <= limits_.budget_pages || is_stopped()) return;
  StepPlan plan = kKarma.plan(tape_, limits_);
  spend(kSwapTries * tape_.ops.size());
  if (!is_better(plan.swaps.estimate, best_estimate(), kWorthwhile)) return;
  plan.strategy = "spillway";
  blocks_ = std::move(plan);
  if (effort_.on_better) effort_.on_better(finished());
}

void StepSearch::keep_finalist(const Attempt& attempt) {
  if (tape_.ops.size() > kTinyOps) return;
  for (const Attempt& known : finalists_) {
    const bool is_known = known.estimate().step_seconds == attempt.estimate().step_seconds &&
                          known.steps.op_of == attempt.steps.op_of;
    if (is_known) return;
  }
  const auto place = std::find_if(finalists_.begin(), finalists_.end(), [&](const Attempt& known) {
    return is_better(attempt.estimate(), known.estimate(), 1.0);
  });
  finalists_.insert(place, attempt);
  if (finalists_.size() > kFinalists) finalists_.pop_back();
}

/// Styles set the moments of all swaps alike, which costs some per cent where each one counts.
void StepSearch::try_moments() {
  for (Attempt& each : std::exchange(finalists_, {})) {
    if (is_good_enough() || is_stopped()) return;
    const PlanAssembly assembly(tape_, each.replays, limits_);
    each.swaps.plan = with_best_moments(assembly, std::move(each.swaps.plan));
    offer(each, 1.0);
  }
}

StepSearch::Attempt StepSearch::rewritten(std::vector<Fate> fates) const {
  Attempt made;
  made.fates = std::move(fates);
  made.replays = space_.replays(made.fates);
  made.steps = rewrite_tape(tape_, made.replays);
  return made;
}

StepSearch::Attempt StepSearch::attempt(std::vector<Fate> fates, const SwapStyle& style) {
  Attempt made = rewritten(std::move(fates));
  made.swaps = {style, SwapSearch(made.steps.tape, limits_).plan(style)};
  spend(made.steps.tape.ops.size());
  return made;
}

StepSearch::Attempt StepSearch::best_attempt(std::vector<Fate> fates, std::size_t refinement_ops) {
  Attempt made = rewritten(std::move(fates));
  made.swaps =
      SwapSearch(made.steps.tape, limits_).best(refinement_ops, [this] { return is_stopped(); });
  spend(kSwapTries * made.steps.tape.ops.size() + refinement_ops);
  return made;
}

/// The best is handed out; what is nearly as good is gone on from.
bool StepSearch::offer(const Attempt& attempt, double worthwhile) {
  keep_finalist(attempt);
  const bool is_first = !best_;
  const bool is_best = is_first || is_better(attempt.estimate(), best_->estimate(), worthwhile);
  const bool is_news = !blocks_ || is_better(attempt.estimate(), best_estimate(), worthwhile);
  const bool is_near = slack_ > 0.0 && attempt.fates != current_.fates && !is_best &&
                       is_better(attempt.estimate(), best_->estimate(), 1.0 + slack_);
  const bool is_step =
      is_first || is_near || is_better(attempt.estimate(), current_.estimate(), kWorthwhile);
  if (is_best) {
    best_ = attempt;
    if (is_news) blocks_.reset();
    if (is_news && effort_.on_better) effort_.on_better(finished());
  }
  if (is_step) current_ = attempt;
  return is_step;
}

StepPlan StepSearch::finished() const {
  if (blocks_) return *blocks_;
  StepPlan plan;
  plan.strategy = "spillway";
  plan.replays = best_->replays;
  plan.replay_seconds = replay_seconds(tape_, best_->replays);
  plan.steps = best_->steps;
  plan.swaps = best_->swaps.plan;
  plan.bound = bound_;
  return plan;
}

const StepEstimate& StepSearch::best_estimate() const {
  return blocks_ ? blocks_->swaps.estimate : best_->estimate();
}

bool StepSearch::is_stopped() {
  was_stopped_ = was_stopped_ || (effort_.should_stop && effort_.should_stop());
  return was_stopped_;
}

bool StepSearch::is_over() { return ops_left_ == 0 || is_good_enough() || is_stopped(); }

bool StepSearch::is_good_enough() const {
  const StepEstimate& estimate = best_estimate();
  return estimate.is_complete && estimate.step_seconds <= bound_.compute_seconds * kAlmostCompute;
}

double StepSearch::effort_left() const {
  return static_cast<double>(ops_left_) / static_cast<double>(all_ops_);
}

// --- Drops by prices --------------------------------------------------------------------------

/// The time of a step is about the larger of what operators and what transfers take. So the price
/// of transfers in seconds of replays goes from hardly anything to very much; between lies a best.
void StepSearch::sweep() {
  for (double weight = kLeastWeight; weight <= kMostWeight; weight *= kWeightStep)
    drop_by_prices({kShares.front(), weight});
  if (starts_.empty() || is_over()) return;
  // Swaps beside replays are other ones than swaps alone.
  offer(best_attempt(starts_.front().attempt.fates, 0));
  const double best = starts_.front().pressure.transfer_weight;
  for (const double share : kShares) {
    for (const double factor : kFineWeights) drop_by_prices({share, best * factor});
  }
}

/// What is computed again comes back when the first one needs it, so a tape with replays can be too
/// full where the one before was not: it is looked at anew until that ends.
void StepSearch::drop_by_prices(DropPressure pressure) {
  Attempt last = rewritten(space_.nothing());
  for (int round = 0; round < kSweepRounds && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(last.fates, last.steps, pressure);
    if (more == last.fates) break;
    last = attempt(std::move(more), best_->swaps.style);
    keep_start(last, pressure);
    offer(last);
  }
}

void StepSearch::keep_start(const Attempt& attempt, DropPressure pressure) {
  for (const Start& start : starts_) {
    if (start.attempt.fates == attempt.fates) return;
  }
  starts_.push_back({attempt, pressure});
  std::stable_sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) {
    return is_better(a.attempt.estimate(), b.attempt.estimate(), 1.0);
  });
  if (starts_.size() > kStarts) starts_.pop_back();
}

/// The local search begins at the best, once each has the swaps that suit it.
void StepSearch::choose_start() {
  for (const Start& start : starts_) {
    if (is_over()) return;
    const Attempt styled = best_attempt(start.attempt.fates, 0);
    const bool is_first = &start == &starts_.front();
    if (!offer(styled) && is_first) current_ = styled;
    if (is_first || current_.fates == styled.fates) pressure_ = start.pressure;
  }
}

// --- Local search -----------------------------------------------------------------------------

/// Every drop once, in random order, so that a short search is spread over the whole step.
void StepSearch::climb() {
  std::vector<std::size_t> order(space_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[below(i + 1)]);
  const auto end = static_cast<std::size_t>((1.0 - kClimbShare) * static_cast<double>(ops_left_));
  for (const std::size_t drop : order) {
    if (ops_left_ <= end || is_over()) return;
    toggle(drop);
  }
}

void StepSearch::disturb() {
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

void StepSearch::toggle(std::size_t drop) {
  const Fate now = current_.fates[drop];
  for (const Fate fate : {Fate::kStays, Fate::kDrops, Fate::kDropsAgain}) {
    const bool is_same = fate == now || (space_.is_ingredient(drop) && fate == Fate::kDrops);
    if (is_same || is_over()) continue;
    std::vector<Fate> fates = current_.fates;
    fates[drop] = fate;
    if (offer(attempt(std::move(fates), current_.swaps.style))) return;
  }
}

/// Takes one drop back and lets others take its place.
void StepSearch::repair_without(std::size_t drop) {
  std::vector<Fate> fates = current_.fates;
  if (fates[drop] == Fate::kStays) return toggle(drop);
  fates[drop] = fates[drop] == Fate::kDropsAgain ? Fate::kDrops : Fate::kStays;
  extend(rewritten(std::move(fates)), 2, drop);
}

/// Drops one more, and takes back what that makes needless.
void StepSearch::add_and_prune(std::size_t drop) {
  std::vector<Fate> fates = current_.fates;
  if (fates[drop] == Fate::kDropsAgain) return toggle(drop);
  fates[drop] = fates[drop] == Fate::kStays ? Fate::kDrops : Fate::kDropsAgain;
  Attempt more = attempt(std::move(fates), current_.swaps.style);
  if (!offer(more)) prune(std::move(more), other_pressure().share);
}

/// Forgets the drops of one part of the step and chooses them anew.
void StepSearch::recreate_window() {
  std::vector<Fate> fates = current_.fates;
  const std::size_t first = below(fates.size());
  const std::size_t end = std::min(first + (std::size_t{4} << below(6)), fates.size());
  for (std::size_t i = first; i < end; ++i) fates[i] = Fate::kStays;
  extend(rewritten(std::move(fates)), 3, kNoOp);
}

/// Gives one part of the step the same fate.
void StepSearch::set_window() {
  std::vector<Fate> fates = current_.fates;
  const std::size_t first = below(fates.size());
  const std::size_t end = std::min(first + (std::size_t{2} << below(4)), fates.size());
  const auto fate = static_cast<Fate>(below(3));
  for (std::size_t i = first; i < end; ++i) fates[i] = fate;
  if (fates != current_.fates) offer(attempt(std::move(fates), current_.swaps.style));
}

void StepSearch::extend(Attempt from, int rounds, std::size_t spared) {
  const DropPressure pressure = other_pressure();
  for (int round = 0; round < rounds && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(from.fates, from.steps, pressure, spared);
    if (more == from.fates && round > 0) break;
    from = attempt(std::move(more), current_.swaps.style);
    if (offer(from)) return;
  }
  prune(std::move(from), pressure.share);
}

void StepSearch::prune(Attempt from, double share) {
  for (int round = 0; round < kPruneRounds && !is_over(); ++round) {
    std::vector<Fate> less = space_.pruned(from.fates, from.steps, share);
    if (less == from.fates) return;
    from = attempt(std::move(less), current_.swaps.style);
    if (offer(from)) return;
  }
}

DropPressure StepSearch::other_pressure() {
  const double share = kShares[below(kShares.size())];
  return {share, pressure_.transfer_weight * kOtherWeights[below(kOtherWeights.size())]};
}

/// One that is dropped, unless hardly any is.
std::size_t StepSearch::random_dropped() {
  std::size_t drop = below(space_.size());
  for (int picks = 0; picks < kPicks && current_.fates[drop] == Fate::kStays; ++picks)
    drop = below(space_.size());
  return drop;
}

}  // namespace spillway::planner
