#include "step_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "moment_search.h"
#include "plan_assembly.h"
#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"
#include "spillway/planner/swap_choices.h"

namespace spillway::planner {
namespace {

// Simulated operators, as multiples of `refinement_ops`: where nobody stops the search, and where
// somebody may.
constexpr std::size_t kEffort = 4;
constexpr std::size_t kStoppableEffort = 40;
// All ways of swapping that are tried for one set of drops.
constexpr std::size_t kSwapTries = 30;

constexpr std::array<double, 3> kShares{1.0, 0.94, 0.88};
// What a second of transfers counts, or one over it: from links that have time to spare to those
// that have none.
constexpr double kMostWeight = 64.0;
constexpr double kWeightStep = 2.0;
constexpr std::array<double, 3> kFineWeights{0.7, 1.0, 1.4};
constexpr std::array<double, 5> kOtherWeights{0.25, 0.5, 1.0, 2.0, 4.0};
constexpr int kSweepRounds = 8;
constexpr int kPruneRounds = 4;
constexpr std::size_t kStarts = 3;
constexpr std::size_t kGivenStarts = 1;  // Of the known plan and those of strategies.
constexpr double kClimbShare = 0.3;      // Of the effort that is left after the sweep.
constexpr double kSlack = 0.003;         // At the begin of the disturbances; in the end none.
constexpr std::size_t kTriesPerStyle = 200;
constexpr std::size_t kTriesPerStart = 50;
constexpr int kPicks = 32;
// A step that takes hardly longer than its operators needs no better plan.
constexpr double kAlmostCompute = 1.0005;
constexpr double kOnlyCompute = 1.0 + 1e-9;
// Steps of so few operators get every moment of every swap of the best attempts tried.
constexpr std::size_t kTinyOps = 16;
// They are quick to simulate, so they get so much more of it.
constexpr std::size_t kTinyEffort = 4;
constexpr std::size_t kFinalists = 24;
// Sets of swaps that are tried for each, and variants of all together whose moments are searched.
constexpr std::size_t kMostSets = 600;
constexpr std::size_t kVariants = 96;
// And of the best of these the moments of all pairs of swaps.
constexpr std::size_t kPairVariants = 16;
// Where nobody stops the search, steps of more operators are not planned by other strategies, too.
constexpr std::size_t kMostOpsUnstopped = 10000;
// What a plan of another strategy counts, in plans of ours.
constexpr std::size_t kPublishedTries = 2;
// Room of on-line evictions, in budgets: what goes beyond is swapped.
constexpr std::array<double, 7> kEvictionShares{1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0};
// They look at all that is resident again and again, so only for steps of so many operators.
constexpr std::size_t kMostOpsEvicted = 5000;
// As many of them are gone on with, and lose what they run needlessly for at most this share of the
// effort that is left.
constexpr std::size_t kLists = 3;
constexpr double kPruneShare = 0.1;
// Those that take so much longer than the best would not come near it by that.
constexpr double kFarBehind = 1.1;

}  // namespace

StepSearch::StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort)
    : tape_(tape),
      limits_(limits),
      effort_(effort),
      compute_seconds_(compute_begins(tape).back()),
      space_(tape, limits),
      all_ops_(limits.refinement_ops * (effort.should_stop ? kStoppableEffort : kEffort) *
               (tape.ops.size() <= kTinyOps ? kTinyEffort : 1)),
      ops_left_(all_ops_) {}

StepPlan StepSearch::run() {
  offer(attempt(space_.nothing(), {limits_.target_share, ChoiceRule::kLeastCost, {}}));
  if (!best_->swaps.plan.is_feasible) return finished();  // Replays need no less.
  offer_known();
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
  refine_finalists();
  try_moments();
  return finished();
}

// --- Attempts ---------------------------------------------------------------------------------

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
  if (fates == space_.nothing() || is_over()) return;
  const Attempt own = attempt(std::move(fates), best_->swaps.style);
  if (own.is_hopeless) return;
  keep_start(own, {});
  offer(own);
}

/// A plan that is not made of the drops of an attempt of ours.
void StepSearch::hand_out(StepPlan plan) {
  if (!is_better(plan.swaps.estimate, best_estimate(), 1.0)) return;
  plan.strategy = "spillway";
  published_ = std::move(plan);
  if (effort_.on_better) effort_.on_better(finished());
}

// --- Lists of replays -------------------------------------------------------------------------

/// What an on-line eviction with more room than there is computes again, and swaps for the rest:
/// where layers read all those before them, prices of single drops do not find such plans.
void StepSearch::find_evictions() {
  if (space_.empty() || tape_.ops.size() > kMostOpsEvicted) return;
  const Recomputation all(tape_);
  for (const double share : kEvictionShares) {
    if (is_over()) break;
    const auto pages = static_cast<std::uint32_t>(share * limits_.budget_pages);
    ReplayList list = evict_on_line(tape_, all, limits_, pages, best_->swaps.style,
                                    [this] { return is_stopped(); });
    spend(kPublishedTries * list.steps.op_of.size());
    lists_.push_back(std::move(list));
  }
  std::stable_sort(lists_.begin(), lists_.end(), [](const ReplayList& a, const ReplayList& b) {
    return is_better(a.estimate(), b.estimate(), 1.0);
  });
  if (lists_.size() > kLists) lists_.resize(kLists);
  for (ReplayList& list : lists_) hand_out(plan_of(list));
}

StepPlan StepSearch::plan_of(const ReplayList& list) const {
  StepPlan plan;
  plan.replays = list.replays;
  plan.replay_seconds = replay_seconds(tape_, list.replays);
  plan.steps = list.steps;
  plan.swaps = list.swaps.plan;
  return plan;
}

void StepSearch::prune_list(ReplayList list) {
  auto left = static_cast<std::size_t>(kPruneShare * static_cast<double>(ops_left_));
  const auto may_try = [&](std::size_t ops) {
    if (left < ops || is_over()) return false;
    left -= ops;
    spend(ops);
    return true;
  };
  list = without_needless(tape_, limits_, std::move(list), may_try);
  hand_out(plan_of(list));
  if (is_over()) return;
  list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
  spend(kSwapTries * list.steps.op_of.size());
  hand_out(plan_of(list));
}

void StepSearch::prune_lists() {
  for (ReplayList& list : lists_) {
    if (is_over()) return;
    if (!is_better(list.estimate(), best_estimate(), kFarBehind)) continue;
    list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
    spend(kSwapTries * list.steps.op_of.size());
    hand_out(plan_of(list));
    prune_list(std::move(list));
  }
  lists_.clear();
}

/// Drops come and go with all that they ask for; single replays may do without.
void StepSearch::prune_best() {
  const bool is_known = std::equal(
      pruned_.begin(), pruned_.end(), best_->replays.begin(), best_->replays.end(),
      [](const Replay& a, const Replay& b) { return a.before == b.before && a.op == b.op; });
  if (is_known || best_->replays.empty() || is_over()) return;
  pruned_ = best_->replays;
  prune_list({best_->replays, best_->steps, best_->swaps});
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

/// One style swaps for all sets of drops while they are searched; the best deserve their own.
void StepSearch::refine_finalists() {
  std::vector<std::vector<Fate>> sets;
  for (const Attempt& finalist : finalists_) sets.push_back(finalist.fates);
  for (std::vector<Fate>& fates : sets) {
    if (is_good_enough() || is_stopped()) return;
    offer(best_attempt(std::move(fates), limits_.refinement_ops), 1.0);
  }
}

/// Styles set the moments of all swaps alike, and price whole sets of them: both cost some per cent
/// where each swap counts.
void StepSearch::try_moments() {
  struct Variant {
    std::size_t finalist;
    SwapPlan plan;
  };
  std::vector<Attempt> finalists = std::exchange(finalists_, {});
  std::vector<PlanAssembly> assemblies;
  std::vector<Variant> variants;
  assemblies.reserve(finalists.size());
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    if (is_good_enough() || is_stopped()) return;
    const PlanAssembly& assembly = assemblies.emplace_back(tape_, finalists[i].replays, limits_);
    for (SwapPlan& plan : best_sets(assembly, std::move(finalists[i].swaps.plan),
                                    limits_.budget_pages, kMostSets, kVariants))
      variants.push_back({i, std::move(plan)});
  }
  const auto sort_by_time = [](std::vector<Variant>& all) {
    std::stable_sort(all.begin(), all.end(), [](const Variant& a, const Variant& b) {
      return is_better(a.plan.estimate, b.plan.estimate, 1.0);
    });
  };
  sort_by_time(variants);
  const auto improve = [&](Variant& each, MomentEffort effort) {
    Attempt& finalist = finalists[each.finalist];
    finalist.swaps.plan = with_best_moments(assemblies[each.finalist], each.plan, effort);
    offer(finalist, 1.0);
    each.plan = finalist.swaps.plan;
  };
  std::vector<Variant> tried;
  std::vector<bool> has_had_one(finalists.size(), false);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Variant& each = variants[i];
    // The best of all, and the best of each finalist.
    if (i >= kVariants && has_had_one[each.finalist]) continue;
    has_had_one[each.finalist] = true;
    if (is_good_enough() || is_stopped()) return;
    improve(each, MomentEffort::kSingles);
    tried.push_back(std::move(each));
  }
  sort_by_time(tried);
  tried.erase(std::unique(tried.begin(), tried.end(),
                          [](const Variant& a, const Variant& b) {
                            return a.finalist == b.finalist && has_same_moments(a.plan, b.plan);
                          }),
              tried.end());
  if (tried.size() > kPairVariants) tried.resize(kPairVariants);
  for (Variant& each : tried) {
    if (is_good_enough() || is_stopped()) return;
    improve(each, MomentEffort::kPairs);
  }
  finalists_.clear();
}

StepSearch::Attempt StepSearch::rewritten(std::vector<Fate> fates) const {
  Attempt made;
  made.fates = std::move(fates);
  if (auto replays = space_.replays(made.fates)) {
    made.replays = std::move(*replays);
    made.steps = rewrite_tape(tape_, made.replays);
    return made;
  }
  made.is_hopeless = true;
  made.swaps.plan.estimate.is_complete = false;
  made.swaps.plan.estimate.step_seconds = std::numeric_limits<double>::infinity();
  return made;
}

StepSearch::Attempt StepSearch::attempt(std::vector<Fate> fates, const SwapStyle& style) {
  Attempt made = rewritten(std::move(fates));
  spend(tape_.ops.size());
  if (made.is_hopeless) return made;
  made.swaps = {style, SwapSearch(made.steps.tape, limits_).plan(style)};
  spend(made.replays.size());
  return made;
}

StepSearch::Attempt StepSearch::best_attempt(std::vector<Fate> fates, std::size_t refinement_ops) {
  Attempt made = rewritten(std::move(fates));
  if (made.is_hopeless) return made;
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
  const bool is_news = !published_ || is_better(attempt.estimate(), best_estimate(), worthwhile);
  const bool is_near = slack_ > 0.0 && attempt.fates != current_.fates && !is_best &&
                       is_better(attempt.estimate(), best_->estimate(), 1.0 + slack_);
  const bool is_step =
      is_first || is_near || is_better(attempt.estimate(), current_.estimate(), kWorthwhile);
  if (is_best) {
    best_ = attempt;
    if (is_news) published_.reset();
    if (is_news && effort_.on_better) effort_.on_better(finished());
  }
  if (is_step) current_ = attempt;
  return is_step;
}

StepPlan StepSearch::finished() const {
  if (published_) return *published_;
  StepPlan plan;
  plan.strategy = "spillway";
  plan.replays = best_->replays;
  plan.replay_seconds = replay_seconds(tape_, best_->replays);
  plan.steps = best_->steps;
  plan.swaps = best_->swaps.plan;
  return plan;
}

const StepEstimate& StepSearch::best_estimate() const {
  return published_ ? published_->swaps.estimate : best_->estimate();
}

bool StepSearch::is_stopped() {
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

// --- Drops by prices --------------------------------------------------------------------------

/// The time of a step is about the larger of what operators and what transfers take. So the price
/// of transfers in seconds of replays goes from hardly anything to very much; between lies a best,
/// mostly near 1, so the sweep begins there: it may be stopped.
void StepSearch::sweep() {
  drop_by_prices({kShares.front(), 1.0});
  for (double weight = kWeightStep; weight <= kMostWeight; weight *= kWeightStep) {
    drop_by_prices({kShares.front(), 1.0 / weight});
    drop_by_prices({kShares.front(), weight});
  }
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
  if (is_over()) return;
  Attempt last = rewritten(space_.nothing());
  for (int round = 0; round < kSweepRounds && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(last.fates, last.steps, pressure);
    if (more == last.fates) break;
    last = attempt(std::move(more), best_->swaps.style);
    if (last.is_hopeless) return;
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

/// What is best may be a dead end, so every other time the search goes on from another start.
void StepSearch::begin_elsewhere(std::size_t count) {
  current_ = *best_;
  if (count % 2 == 0 || starts_.empty()) return;
  const Start& start = starts_[count / 2 % starts_.size()];
  current_ = start.attempt;
  pressure_ = start.pressure;
}

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
  for (int round = 0; round < rounds && !from.is_hopeless && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(from.fates, from.steps, pressure, spared);
    if (more == from.fates && round > 0) break;
    from = attempt(std::move(more), current_.swaps.style);
    if (offer(from)) return;
  }
  prune(std::move(from), pressure.share);
}

void StepSearch::prune(Attempt from, double share) {
  for (int round = 0; round < kPruneRounds && !from.is_hopeless && !is_over(); ++round) {
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
