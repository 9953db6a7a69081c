// How the library comes to its plans, and when it has them made anew.

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "step_library.h"

namespace spillway::runtime {

using profile::OpSequence;
using profile::StepTape;

namespace {

// A forecast is a run of the event model, on the trainer's thread, which gives it this part.
constexpr Duration kForecastPerOp{1000};
constexpr std::int64_t kTimeOverForecasts = 1000;
// A plan is made again when its compute time is off by more than this.
constexpr double kTimeDrift = 0.05;
// And when whole rounds, waits included, are off by more than this.
constexpr double kStepDrift = 0.03;
constexpr std::size_t kCyclesToDecide = 4;
// And when the store moves pages by so much faster or slower.
constexpr double kRateDrift = 0.1;
// By so much only where somebody else has begun to use it, or has ended.
constexpr double kRateJump = 0.3;
constexpr std::uint32_t kCyclesToBear = 8;
constexpr std::uint32_t kRoomDrift = 32;  // A plan uses more room once it is a 32nd more.
constexpr std::uint32_t kMostCyclesToRefresh = 64;

Duration compute_time(const StepTape& tape) {
  Duration sum{0};
  for (const auto& op : tape.ops) sum += op.time;
  return sum;
}

/// Alone or in both directions at once.
bool has_drifted(const planner::TransferRates& from, const planner::TransferRates& to, double by) {
  const auto is_off = [by](TransferRate was, TransferRate is) {
    return std::abs((is - was).bytes_per_second()) > by * was.bytes_per_second();
  };
  return is_off(from.write, to.write) || is_off(from.read, to.read) ||
         is_off(from.write * from.duplex_share, to.write * to.duplex_share);
}

std::uint32_t cycles_to_forecast(const StepTape& tape) {
  const Duration cost = static_cast<std::int64_t>(tape.ops.size()) * kForecastPerOp;
  const Duration cycle = std::max(compute_time(tape), Duration(1));
  return static_cast<std::uint32_t>(1 + cost * kTimeOverForecasts / cycle);
}

}  // namespace

/// Begins a cycle of the plan, which is ordered anew when there is reason to.
PlanPlace StepLibrary::refreshed(LearnedPlan& plan, std::size_t oldest_age) {
  if (!plan.is_given && take_given(oldest_age, plan)) return start(plan, 0, true);
  if (plan.is_given) {
    // The better it is known what the step does, the better its forecast and its bound.
    const bool is_anew = needs_refresh(plan, oldest_age) && take_given(oldest_age, plan);
    return is_anew ? start(plan, 0, true) : begin_cycle(plan);
  }
  // A search that goes on with times of yesterday is given up.
  const bool may_order = plan.draft == nullptr || plan.is_there();
  if (may_order && needs_refresh(plan, oldest_age) && !order_plan(oldest_age, plan)) {
    if (plan.is_there()) return start(plan, 0, false);
    forget(plan);
    return {};
  }
  return begin_cycle(plan);
}

/// How long a step may be held up for a plan.
Duration StepLibrary::patience(const LearnedPlan& plan) const {
  constexpr int kHundredth = 100;
  return typical_time(find_shape(plan.shapes.front())->times, slowdown()) / kHundredth;
}

/// Takes over what has been planned meanwhile. No place while there is nothing yet.
PlanPlace StepLibrary::begin_cycle(LearnedPlan& plan) {
  bool is_new = false;
  if (plan.draft != nullptr) {
    // The first plan is worth a little of the step that it is for; better ones come when they come.
    PlanWork::News news = plan.draft->work->take(plan.is_there() ? Duration{0} : patience(plan));
    if (news.plan && !confirms(plan, *news.plan)) {
      adopt(plan, std::move(*news.plan));
      is_new = true;
    }
    const bool has_failed = !news.failure.empty();
    if (has_failed) tell_failure(plan, news.failure);
    if (news.is_final) plan.draft.reset();
    if (has_failed && !plan.is_there()) {
      forget(plan);
      return {};
    }
  }
  if (!plan.is_there()) return {};
  if (is_new || plan.cycles % cycles_to_forecast(plan.step.tape) == 0) forecast(plan);
  return start(plan, 0, is_new);
}

void StepLibrary::adopt(LearnedPlan& plan, planner::StepPlan made) {
  LearnedPlan::Draft& draft = *plan.draft;
  if (!std::exchange(draft.is_adopted, true)) {
    plan.step = std::move(draft.step);
    plan.slot_begin = std::move(draft.slot_begin);
    plan.slot_ends_by_length = std::move(draft.slot_ends_by_length);
    plan.budget_pages = draft.budget_pages;
    plan.rates = draft.rates;
    plan.sequence = OpSequence(plan.step.tape.ops);
  }
  plan.set(std::move(made));
}

/// Goes on with the plan that is followed where it is no slower than one that was just made for the
/// same step: a search that begins anew begins with simple plans. Returns false for a better one.
bool StepLibrary::confirms(LearnedPlan& plan, const planner::StepPlan& made) const {
  const LearnedPlan::Draft& draft = *plan.draft;
  if (!plan.is_there() || draft.is_adopted ||
      !has_same_lifetimes(plan.step.tape.values, draft.step.tape.values))
    return false;
  std::vector<Duration> times;
  for (const auto& op : draft.step.tape.ops) times.push_back(op.time);
  const planner::StepEstimate now = evaluate(plan, times, draft.budget_pages);
  if (!now.is_complete || now.step_seconds > made.swaps.estimate.step_seconds) return false;
  for (std::size_t op = 0; op < times.size(); ++op) plan.step.tape.ops[op].time = times[op];
  plan.budget_pages = draft.budget_pages;
  plan.rates = draft.rates;
  return true;
}

planner::SwapLimits StepLibrary::limits_of(std::uint32_t budget_pages) const {
  planner::SwapLimits limits = limits_;
  limits.budget_pages = budget_pages;
  return limits;
}

/// The plan with other times of the trainer's operators, at the latest rates.
planner::StepEstimate StepLibrary::evaluate(const LearnedPlan& plan,
                                            const std::vector<Duration>& op_times,
                                            std::uint32_t budget_pages) const {
  StepTape tape = plan.step.tape;
  for (std::size_t op = 0; op < tape.ops.size(); ++op) tape.ops[op].time = op_times[op];
  tape.replay_extra_per_page = replay_extra_per_page();
  tape = planner::retimed(plan.plan.steps, tape);
  return planner::estimate_step(tape, plan.plan.swaps, limits_of(budget_pages));
}

std::vector<Duration> StepLibrary::typical_op_times(const LearnedPlan& plan) const {
  std::vector<Duration> times;
  for (const ShapeId id : plan.shapes) {
    const std::vector<Duration> of_step =
        runtime::typical_op_times(find_shape(id)->times, slowdown());
    times.insert(times.end(), of_step.begin(), of_step.end());
  }
  return times;
}

void StepLibrary::forecast(LearnedPlan& plan) const {
  std::vector<Duration> times = typical_op_times(plan);
  const planner::StepEstimate estimate = evaluate(plan, times, plan.budget_pages);
  if (!estimate.is_complete) return;
  plan.forecast = std::make_shared<const Forecast>(
      Forecast{estimate.step_seconds, plan.tape, std::move(times), replay_extra_per_page(),
               limits_of(plan.budget_pages)});
}

bool StepLibrary::needs_refresh(const LearnedPlan& plan, std::size_t oldest_age) const {
  if (!plan.is_there()) return true;
  if (oldest_age >= records_.size()) return false;
  for (std::uint32_t slot = 0; slot < plan.slots(); ++slot) {
    if (records_[oldest_age - slot]->shape != plan.shapes[slot]) return false;
  }
  // The first cycles still differ: lazy states, caches, measured times. Later ones need a reason,
  // and the more often there was one, the longer the next has to wait.
  if (plan.refreshes < 2) return plan.cycles > 0;
  std::uint32_t patience = std::min(kMostCyclesToRefresh, 1U << std::min(plan.refreshes, 6U));
  if (has_drifted(plan.rates, limits_.rates, kRateJump))
    patience = std::min(patience, kCyclesToBear);
  if (plan.cycles < patience) return false;
  const std::uint32_t room = limits_.budget_pages;
  if (room < plan.budget_pages || room > plan.budget_pages + plan.budget_pages / kRoomDrift)
    return true;
  double measured = 0.0;
  for (const ShapeId id : plan.shapes)
    measured += seconds(typical_time(find_shape(id)->times, slowdown()));
  const double planned = seconds(compute_time(plan.step.tape));
  if (std::abs(measured - planned) > kTimeDrift * planned) return true;
  if (has_drifted(plan.rates, limits_.rates, kRateDrift)) return true;
  const auto forecast = plan.typical_forecast();
  const bool is_known = plan.rounds() >= kCyclesToDecide && forecast != nullptr;
  if (is_known &&
      std::abs(plan.typical_seconds() - forecast->seconds) > kStepDrift * forecast->seconds)
    return true;
  return plan.slots() == 1 &&
         !has_same_lifetimes(plan.step.tape.values, records_[oldest_age]->step.tape.values);
}

/// The one before the record of that age, if it is the last one of such a plan's; else none.
const profile::RecordedStep* StepLibrary::step_before(const LearnedPlan& plan,
                                                      std::size_t oldest_age) const {
  if (oldest_age + 1 >= records_.size()) return nullptr;
  const Record& before = *records_[oldest_age + 1];
  return before.shape == plan.shapes.back() ? &before.step : nullptr;
}

/// What is known of the plan's steps, by the records that begin at that age. None without them.
std::unique_ptr<LearnedPlan::Draft> StepLibrary::draft_of(const LearnedPlan& plan,
                                                          std::size_t oldest_age) const {
  std::vector<const profile::RecordedStep*> steps;
  for (std::uint32_t slot = 0; slot < plan.slots(); ++slot) {
    if (oldest_age - slot >= records_.size()) return nullptr;
    const Record& record = *records_[oldest_age - slot];
    if (record.shape != plan.shapes[slot]) return nullptr;
    steps.push_back(&record.step);
  }
  auto made = std::make_unique<LearnedPlan::Draft>();
  LearnedPlan::Draft& draft = *made;
  draft.step = profile::join_steps(steps, step_before(plan, oldest_age));
  draft.slot_begin.assign(1, 0);
  auto op = draft.step.tape.ops.begin();
  for (const Duration time : typical_op_times(plan)) (op++)->time = time;
  for (const ShapeId id : plan.shapes) {
    const StepShape& shape = *find_shape(id);
    draft.slot_begin.push_back(draft.slot_begin.back() + shape.sequence.size());
    draft.slot_ends_by_length.push_back(shape.is_cut_by_length);
  }
  draft.step.tape.replay_extra_per_page = replay_extra_per_page();
  draft.budget_pages = limits_.budget_pages;
  draft.rates = limits_.rates;
  return made;
}

/// Has the plan for its shapes made from the records that begin at that age. False without them.
bool StepLibrary::order_plan(std::size_t oldest_age, LearnedPlan& plan) {
  auto draft = draft_of(plan, oldest_age);
  if (draft == nullptr) return false;
  PlanMaker::Order order{draft->step.tape, limits_, !plan.is_there()};
  if (plan.is_there() && has_same_lifetimes(plan.step.tape.values, draft->step.tape.values))
    order.known = plan.plan;
  draft->work = maker_.order(std::move(order));
  if (plan.draft != nullptr) plan.draft->work->cancel();
  plan.draft = std::move(draft);
  plan.refreshes += plan.is_there() ? 1 : 0;
  plan.cycles = 0;
  return true;
}

/// Lays the user's plan on the step, if it is for that one, in place of what was planned for it.
/// The step waits for that, so that the plan holds from its first one on.
bool StepLibrary::take_given(std::size_t oldest_age, LearnedPlan& plan) {
  if (!given_.is_there() || plan.slots() != 1) return false;
  const StepShape* shape = find_shape(plan.shapes.front());
  if (shape == nullptr || !given_.is_for(shape->sequence)) return false;
  if (oldest_age >= records_.size()) return false;
  const StepTape& step = records_[oldest_age]->step.tape;
  const bool knows_before = step_before(plan, oldest_age) != nullptr;
  if (!plan.is_given && !given_.may_fit(step, knows_before, limits_)) return false;
  auto draft = draft_of(plan, oldest_age);
  if (draft == nullptr) return false;
  auto made = given_.on(draft->step.tape, limits_);
  if (made || plan.is_given) {
    plan.refreshes += plan.is_there() ? 1 : 0;
    plan.cycles = 0;
  }
  if (!made) {
    given_.note_misfit(step, knows_before, limits_);
    return false;
  }
  draft->budget_pages = given_.limits_in(limits_).budget_pages;
  if (plan.draft != nullptr) plan.draft->work->cancel();
  plan.draft = std::move(draft);
  adopt(plan, std::move(*made));
  plan.draft.reset();
  plan.is_given = true;
  forecast(plan);
  return true;
}

/// Once per shape, since the attempt is repeated at every step, and as a warning only once: a
/// program whose steps differ a little would fill the screen.
void StepLibrary::tell_failure(const LearnedPlan& plan, const std::string& reason) {
  bool is_news = false;
  for (const ShapeId id : plan.shapes)
    is_news |= !std::exchange(find_shape(id)->is_failure_told, true);
  if (!is_news) return;
  const std::string text =
      message("no plan for a step of {}, it runs without advice: {}",
              counted(find_shape(plan.shapes.front())->sequence.size(), "operator"), reason);
  if (std::exchange(is_failure_told_, true)) {
    log_info("{}", text);
  } else {
    log_warning("{}", text);
  }
}

}  // namespace spillway::runtime
