// Which drops are tried next: first by prices, then one by one and at random.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "search_limits.h"
#include "step_search.h"

namespace spillway::planner {
/// The time of a step is about the larger of what operators and what transfers take. So the price
/// of transfers in seconds of replays goes from hardly anything to very much; between lies a best,
/// mostly near 1, so the sweep begins there: it may be stopped.
void StepSearch::sweep() {
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
void StepSearch::drop_by_prices(DropPressure pressure) {
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

void StepSearch::keep_start(const Attempt& attempt, DropPressure pressure) {
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
void StepSearch::choose_start() {
  for (const Start& start : starts_) {
    if (is_over()) return;
    const Attempt styled = best_attempt(start.attempt.fates, 0);
    const bool is_first = &start == &starts_.front();
    if (!offer(styled) && is_first) current_ = styled;
    if (is_first || current_.fates == styled.fates) pressure_ = start.pressure;
  }
}

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
void StepSearch::repair_without(std::size_t drop) {
  std::vector<Fate> fates = current_.fates;
  if (fates[drop] == Fate::kStays) return toggle(drop);
  // One degree less, and `spared` from being chosen again: otherwise the prices would only bring
  // back what was there.
  fates[drop] = fates[drop] == Fate::kDropsEachTime ? Fate::kDrops : Fate::kStays;
  extend(rewritten(std::move(fates)), 2, drop);
}

/// Drops one more, and takes back what that makes needless.
void StepSearch::add_and_prune(std::size_t drop) {
  std::vector<Fate> fates = current_.fates;
  if (fates[drop] == Fate::kDropsEachTime) return toggle(drop);
  fates[drop] = fates[drop] == Fate::kStays ? Fate::kDrops : Fate::kDropsEachTime;
  Attempt more = attempt(std::move(fates), current_.swaps.style);
  // What it makes needless is worth looking for only where the drop alone is not better already.
  if (!offer(more)) prune(std::move(more), other_pressure().share);
}

/// Forgets the drops of one part of the step and chooses them anew.
void StepSearch::recreate_window() {
  std::vector<Fate> fates = current_.fates;
  const std::size_t first = below(fates.size());
  // Stretches of all sizes: drops are numbered by the step, so neighbours relieve the same
  // operators.
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
  for (int round = 0; round < rounds && !from.is_pruned && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(from.fates, from.steps, pressure, spared);
    if (more == from.fates && round > 0) break;
    from = attempt(std::move(more), current_.swaps.style);
    if (offer(from)) return;
  }
  prune(std::move(from), pressure.share);
}

void StepSearch::prune(Attempt from, double share) {
  for (int round = 0; round < kTakeBackRounds && !from.is_pruned && !is_over(); ++round) {
    std::vector<Fate> less = space_.pruned(from.fates, from.steps, share);
    if (less == from.fates) return;
    from = attempt(std::move(less), current_.swaps.style);
    if (offer(from)) return;
  }
}

DropPressure StepSearch::other_pressure() {
  const double share = kDropShares[below(kDropShares.size())];
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
