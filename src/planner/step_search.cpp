#include "step_search.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace spillway::planner {
namespace {

const bool debug = getenv("DBG") != nullptr;
constexpr double kWorthwhile = 0.9999;
constexpr std::array<double, 3> kShares{1.0, 0.94, 0.88};
constexpr std::size_t kStarts = 3;
constexpr std::size_t kEffort = 10;  // so many times refinement ops

}  // namespace

StepSearch::StepSearch(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort)
    : tape_(tape),
      limits_(limits),
      effort_(effort),
      bound_(bound_plan(tape, limits)),
      space_(tape, limits),
      ops_left_(kEffort * limits.refinement_ops * (getenv("EFF") ? atoi(getenv("EFF")) : 1)) {}

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
  ops_left_ -= std::min(ops_left_, made.steps.tape.ops.size());
  ++evals_;
  return made;
}

StepSearch::Attempt StepSearch::best_attempt(std::vector<Fate> fates, std::size_t refinement_ops) {
  Attempt made = rewritten(std::move(fates));
  made.swaps = SwapSearch(made.steps.tape, limits_).best(refinement_ops);
  ops_left_ -= std::min(ops_left_, 30 * made.steps.tape.ops.size() + refinement_ops);
  evals_ += 30;
  return made;
}

bool StepSearch::offer(Attempt&& attempt) {
  const bool is_first = best_.fates.size() != space_.size() || best_.steps.op_of.empty();
  const StepEstimate& estimate = attempt.swaps.plan.estimate;
  const bool is_step = is_first || current_.steps.op_of.empty() || is_better(estimate, current_.swaps.plan.estimate, kWorthwhile);
  const bool is_best = is_first || is_better(estimate, best_.swaps.plan.estimate, kWorthwhile);
  if (is_best) {
    best_ = attempt;
    if (effort_.on_better) effort_.on_better(finished(best_));
  }
  if (is_step) current_ = std::move(attempt);
  return is_step;
}

StepPlan StepSearch::finished(const Attempt& attempt) const {
  StepPlan plan;
  plan.strategy = "spillway";
  plan.replays = attempt.replays;
  plan.replay_seconds = replay_seconds(tape_, attempt.replays);
  plan.steps = attempt.steps;
  plan.swaps = attempt.swaps.plan;
  plan.swaps.bound = bound_;
  plan.bound = bound_;
  return plan;
}

bool StepSearch::is_over() const {
  return ops_left_ == 0 || is_good_enough() || (effort_.should_stop && effort_.should_stop());
}

bool StepSearch::is_good_enough() const {
  const StepEstimate& e = best_.swaps.plan.estimate;
  return e.is_complete && e.step_seconds <= bound_.compute_seconds * 1.0005 + e.interference_seconds;
}

void StepSearch::sweep() {
  for (double share : kShares) {
    for (double weight = 1.0 / 64; weight < 100; weight *= 1.6) sweep_with({share, weight});
  }
}

void StepSearch::sweep_with(DropPressure pressure) {
  Attempt last = rewritten(space_.nothing());
  for (int round = 0; round < 8 && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(last.fates, last.steps, pressure);
    if (more == last.fates) return;
    last = attempt(std::move(more), best_.swaps.style);
    keep_start(last, pressure);
    offer(Attempt(last));
  }
}

void StepSearch::keep_start(const Attempt& attempt, DropPressure pressure) {
  const StepEstimate& estimate = attempt.swaps.plan.estimate;
  for (const Start& start : starts_) if (start.fates == attempt.fates) return;
  starts_.push_back({attempt.fates, pressure, estimate});
  std::stable_sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) {
    return is_better(a.estimate, b.estimate, 1.0);
  });
  if (starts_.size() > kStarts) starts_.pop_back();
}

std::size_t StepSearch::below(std::size_t limit) { return random_() % limit; }

void StepSearch::toggle(std::size_t index) {
  const Fate now = current_.fates[index];
  for (const Fate fate : {Fate::kStays, Fate::kDrops, Fate::kDropsAgain}) {
    if (fate == now || is_over()) continue;
    if (space_.is_ingredient(index) && fate == Fate::kDrops) continue;
    std::vector<Fate> fates = current_.fates;
    fates[index] = fate;
    if (offer(attempt(std::move(fates), current_.swaps.style))) return;
  }
}

void StepSearch::climb() {
  std::vector<std::size_t> order(space_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[below(i + 1)]);
  for (const std::size_t index : order) toggle(index);
}

void StepSearch::disturb() {
  switch (below(4)) {
    case 0:
      return exchange();
    case 1:
      return set_window();
    default:
      return recreate_window();
  }
}

void StepSearch::exchange() {
  std::vector<Fate> fates = current_.fates;
  const std::size_t one = below(fates.size());
  if (fates[one] == Fate::kStays) return;
  for (int tries = 0; tries < 16; ++tries) {
    const std::size_t other = below(fates.size());
    if (!space_.overlap(one, other) || fates[other] != Fate::kStays) continue;
    std::swap(fates[one], fates[other]);
    offer(attempt(std::move(fates), current_.swaps.style));
    return;
  }
}

void StepSearch::set_window() {
  std::vector<Fate> fates = current_.fates;
  const std::size_t first = below(fates.size());
  const std::size_t length = std::size_t{2} << below(4);
  const auto fate = static_cast<Fate>(below(3));
  for (std::size_t i = first; i < std::min(first + length, fates.size()); ++i) fates[i] = fate;
  if (fates != current_.fates) offer(attempt(std::move(fates), current_.swaps.style));
}

void StepSearch::recreate_window() {
  Attempt last;
  std::vector<Fate> fates = current_.fates;
  const std::size_t first = below(fates.size());
  const std::size_t length = std::size_t{4} << below(6);
  for (std::size_t i = first; i < std::min(first + length, fates.size()); ++i) fates[i] = Fate::kStays;
  last = rewritten(std::move(fates));
  const DropPressure pressure{kShares[below(kShares.size())], pressure_.transfer_weight * std::array<double,5>{0.25,0.5,1.0,2.0,4.0}[below(5)]};
  for (int round = 0; round < 3 && !is_over(); ++round) {
    std::vector<Fate> more = space_.extended(last.fates, last.steps, pressure);
    if (more == last.fates) return;
    last = attempt(std::move(more), current_.swaps.style);
    if (offer(Attempt(last))) return;
  }
}

StepPlan StepSearch::run() {
  offer(attempt(space_.nothing(), {limits_.target_share, ChoiceRule::kLeastCost, {}}));
  if (is_good_enough()) return finished(best_);
  offer(best_attempt(space_.nothing(), 0));
  if (!space_.empty()) {
    sweep();
    if (debug) printf("swept %.4f evals %zu left %zu\n", best_.swaps.plan.estimate.step_seconds, evals_, ops_left_);
    const std::size_t reserve = ops_left_ / 2;
    for (const Start& start : std::vector<Start>(starts_)) {
      if (is_over()) break;
      pressure_ = start.pressure;
      current_ = best_attempt(start.fates, 0);
      offer(Attempt(current_));
      if (debug) printf("  start %.4f w %.3g share %.2f", current_.swaps.plan.estimate.step_seconds, pressure_.transfer_weight, pressure_.share);
      std::size_t end = ops_left_ - std::min(ops_left_, reserve / starts_.size());
      double before = 1e30;
      while (ops_left_ > end && !is_over() && seconds_of(current_) < before * kWorthwhile) { before = seconds_of(current_); climb(); }
      if (debug) printf(" climbed %.4f left %zu\n", current_.swaps.plan.estimate.step_seconds, ops_left_);
    }
    current_ = best_;
    offer(best_attempt(best_.fates, 0));
    for (int i = 0; !is_over(); ++i) { disturb(); if (i % 200 == 199) offer(best_attempt(best_.fates, 0)); }
    if (debug) printf("disturbed %.4f evals %zu\n", best_.swaps.plan.estimate.step_seconds, evals_);
    offer(best_attempt(best_.fates, limits_.refinement_ops));
  }
  offer(best_attempt(space_.nothing(), limits_.refinement_ops));
  return finished(best_);
}

double StepSearch::seconds_of(const Attempt& a) const { return a.swaps.plan.estimate.step_seconds; }

}  // namespace spillway::planner
