// Where steps begin and end, what they took, and what is told of their plans.

#include <algorithm>

#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "step_learner_state.h"

namespace spillway::runtime {

namespace {

constexpr std::uint32_t kPeriodMisses = 4;  // Strange steps after which a found period is wrong.
constexpr std::size_t kStepTimes = 64;      // For the median.

}  // namespace

void StepLearner::State::finish_step(TimePoint now, Bytes moved, bool is_meaningful,
                                     Advice& advice) {
  if (step_ops_ == 0) return;
  if (step_times_.size() < kStepTimes) step_times_.push_back(0.0);
  step_times_[report_.steps++ % kStepTimes] = seconds(now - step_begin_);
  profile::RecordedStep& record = library_.next_record();
  recorder_.finish_step(now, record, moved);
  if (recording_ != nullptr)
    recording_->note_step(step_hash_, is_meaningful ? record : profile::RecordedStep());
  if (trace_ != nullptr) trace_->note_values(record, storage_of_);
  value_stalls_.settle(record, page_size_, names_);
  if (least_room_ != ~0U) room_ = std::min(least_room_, room_ + 1);
  least_room_ = ~0U;
  library_.set_budget(room_);
  if (rates_now_) library_.set_rates(rates_now_());

  const std::uint32_t next_slot = conforms_ ? finished_slot() : 0;
  note_round(next_slot, {seconds(now - step_begin_), take_peak_ ? take_peak_() : Bytes(), {}});
  // A step that does not conform may be new and push other shapes out, with their plans.
  LearnedPlan* conformed = next_slot > 0 ? plan_ : nullptr;
  library_.learn(step_hash_, is_meaningful, period_ > 0);
  if (period_ > 0 && library_.strangers_in_a_row() > kPeriodMisses) {
    // What looked like the step was a loop inside of it.
    shortest_period_ = 2 * period_;
    period_ = 0;
  }
  next_search_ =
      std::max(is_announced_ ? kPatientSearch : kFirstSearch, 2 * library_.longest_step());
  step_hash_ = 0;
  step_ops_ = 0;
  step_begin_ = now;
  lost_ops_ = 0;

  const std::optional<device::Event> before_plan = moment();
  const PlanPlace place = library_.choose(conformed, next_slot);
  if (before_plan) library_.device_times()->note_apart(*before_plan, moment_());
  conforms_ = place.plan != nullptr;
  if (place.plan == nullptr) {
    plan_ = nullptr;
    advice.forgets = true;
  } else if (place.plan == conformed && !place.is_new) {
    if (place.op == 0) {
      plan_advice_.begin_anew();
      advice.forgets = true;
    }
    expect(place.op);
  } else {
    if (place.is_new) ++report_.plans;
    if (place.is_new) tell_plan(*place.plan);
    adopt(*place.plan, place.op, place.plan != conformed, advice);
  }
}

/// How the plan's steps go, when all of them go as planned.
void StepLearner::State::note_round(std::uint32_t next_slot, const LearnedPlan::Round& step) {
  const bool is_first = next_slot <= 1;
  round_ = {step.seconds + (is_first ? 0.0 : round_.seconds),
            is_first ? step.peak : std::max(step.peak, round_.peak),
            {}};
  if (next_slot == 0 || next_slot != plan_->slots()) return;
  if (plan_->is_given && ++report_.given_steps == 1) {
    report_.followed_seconds = 0.0;
    report_.followed_peak = Bytes();
    note_plan();
  }
  plan_->note_round(round_);
  if (plan_->rounds() == 0 || !is_told_of()) return;
  note_plan();
  report_.followed_seconds = plan_->typical_seconds();
  report_.followed_peak = plan_->highest_peak();
}

/// What a second run takes beyond the first one.
void StepLearner::State::note_replay(std::size_t position, Duration took, Bytes moved) {
  const OpIndex place = plan_advice_.place_of_replay(position);
  const OpIndex op = plan_->plan.steps.op_of[place];
  library_.note_replay({took, moved, plan_->step.tape.ops[op].time}, plan_->pages_made(place));
}

/// One more than the number of the slot that the step has just completed, or 0.
std::uint32_t StepLearner::State::finished_slot() const {
  if (plan_ == nullptr || expected_ != slot_end_) return 0;
  const auto& begins = plan_->slot_begin;
  return static_cast<std::uint32_t>(std::find(begins.begin() + 1, begins.end(), slot_end_) -
                                    begins.begin());
}

/// Whether the step that nobody announces is complete.
bool StepLearner::State::ends_by_length() const {
  if (awaits_boundary()) return false;
  const bool is_following = plan_ != nullptr && lost_ops_ == 0;
  if (!is_following) return period_ > 0 && step_ops_ >= period_;
  if (expected_ != slot_end_) return false;
  if (period_ > 0) return true;
  const auto& begins = plan_->slot_begin;
  const auto slot = std::find(begins.begin() + 1, begins.end(), slot_end_) - begins.begin() - 1;
  return plan_->slot_ends_by_length[static_cast<std::size_t>(slot)];
}

void StepLearner::State::search_period() {
  next_search_ = step_ops_ + step_ops_ / 4;
  const auto found = profile::find_period(recorder_.tape().ops, shortest_period_);
  if (!found || is_part_of_step(*found)) return;
  // The steps begin with the next operator; what was recorded so far is no step.
  period_ = *found;
  is_boundary_pending_ = true;
  is_worth_learning_ = false;
}

/// What repeats in forward alone, or in backward alone, are layers of a step that is to end later.
bool StepLearner::State::is_part_of_step(std::uint32_t latest) const {
  const auto phases = recorder_.autograd().last(latest);
  const auto is_in = [&](OpPhase phase) {
    return std::any_of(phases.begin(), phases.end(),
                       [phase](const AutogradFacts& facts) { return facts.phase == phase; });
  };
  return step_ops_ < kLongestPass && is_in(OpPhase::kForward) != is_in(OpPhase::kBackward);
}

void StepLearner::State::note_plan() {
  const planner::SwapPlan& plan = plan_->plan.swaps;
  report_.plan_steps = plan_->slots();
  forecast_ = plan_->typical_forecast();
  report_.planned_seconds = forecast_ == nullptr ? 0.0 : forecast_->seconds;
  report_.planned_peak = page_size_ * plan.estimate.peak_pages;
  report_.strategy = plan_->plan.strategy;
  report_.smallest_budget_pages = plan.smallest_budget_pages;
}

/// What a plan that was just made promises, for `--log-level info`.
void StepLearner::State::tell_plan(const LearnedPlan& learned) const {
  const planner::SwapPlan& plan = learned.plan.swaps;
  const auto size = [this](std::uint64_t pages) { return page_size_ * pages; };
  log_info(
      "{} plan for {} in {}: {} s predicted, {} out and {} in, {} run again in {} s, peak {} of "
      "{}; smallest budget {}",
      learned.refreshes > 0 ? "renewed" : "new", counted(learned.sequence.size(), "operator"),
      counted(learned.slots(), "step"), plan.estimate.step_seconds,
      size(plan.estimate.written_pages), size(plan.estimate.read_pages),
      counted(learned.plan.replays.size(), "operator"), learned.plan.replay_seconds,
      size(plan.estimate.peak_pages), size(learned.budget_pages), size(plan.smallest_budget_pages));
}

}  // namespace spillway::runtime
