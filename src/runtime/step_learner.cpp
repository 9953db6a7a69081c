#include "spillway/runtime/step_learner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "plan_advice.h"
#include "signature_set.h"
#include "spillway/base/log.h"
#include "spillway/base/median.h"
#include "spillway/runtime/profile_recording.h"
#include "spillway/runtime/runtime.h"
#include "spillway/runtime/step_trace_recorder.h"
#include "step_library.h"
#include "value_stalls.h"

namespace spillway::runtime {

using profile::mix;
using profile::OpIndex;
using profile::OpSequence;

namespace {

constexpr OpIndex kNoOp = planner::kNoOp;
constexpr std::uint32_t kLookAhead = 48;     // Operators that a plan may be skipped by.
constexpr std::uint32_t kEqualToResume = 3;  // Operators in a row that must match after that.
// Operators without a boundary before a period is sought: as long as none was ever announced, and
// after that.
constexpr std::uint32_t kFirstSearch = 1024;
constexpr std::uint32_t kPatientSearch = 4096;
constexpr std::uint32_t kPeriodMisses = 4;  // Strange steps after which a found period is wrong.
constexpr std::size_t kStepTimes = 64;      // For the median.
constexpr std::size_t kStallsTold = 5;
constexpr std::size_t kMostNames = 65536;

/// The operator, its shapes, and how it uses paged storages.
std::uint64_t signature_of(std::uint64_t signature, std::span<const RangeUse> uses) {
  std::uint64_t hash = mix(signature, uses.size());
  for (const RangeUse& use : uses) hash = mix(hash, std::uint64_t{use.pages} * 2 + use.writes);
  return hash;
}

}  // namespace

struct StepLearner::State {
  explicit State(const Options& options)
      : recorder_({}),
        library_({.budget_pages = options.budget_pages, .rates = options.rates}, options.planning,
                 names_),
        recording_(options.recording),
        rates_now_(options.rates_now),
        take_peak_(options.take_peak),
        moved_(options.moved),
        trace_(options.trace),
        room_(options.budget_pages) {}

  void begin_op(std::uint64_t signature, std::span<const RangeUse> uses, TimePoint now,
                Advice& advice, bool is_replayable);
  void end_op(Advice& advice);
  void allocated(RangeId range, std::uint32_t pages, Bytes bytes, bool is_filled);
  bool may_be_due() const;
  std::span<const OpIndex> due_replays(std::uint64_t signature, std::span<const RangeUse> uses);
  void announce_boundary();
  LearnerReport report() const;

  // Steps.
  void finish_step(TimePoint now, Bytes moved, bool is_meaningful, Advice& advice);
  std::uint32_t finished_slot() const;
  void note_round(std::uint32_t next_slot, const LearnedPlan::Round& step);
  bool ends_by_length() const;
  /// Whether the step will be ended by a boundary, as far as can be told. What repeats until then
  /// are its layers, of which deep nets have thousands.
  bool awaits_boundary() const { return is_announced_ && since_boundary_ <= 2 * announced_ops_; }
  void search_period();
  void note_replay(std::size_t position, Duration took, Bytes moved);
  bool is_told_of() const { return plan_->is_given || report_.given_steps == 0; }
  void note_plan();
  static void tell_plan(const LearnedPlan& learned);

  // Following a plan.
  OpIndex follow(std::uint64_t signature, Advice& advice);
  OpIndex find_place(Advice& advice);
  OpIndex skipped_to() const;
  std::uint64_t recent(std::uint32_t age) const {
    return recent_[(seen_ops_ - age) % OpSequence::kGram];
  }
  std::uint64_t gram() const;
  void expect(OpIndex op);
  void adopt(LearnedPlan& plan, OpIndex op, bool is_catching_up, Advice& advice);

  profile::TapeRecorder recorder_;
  OpNames names_{kMostNames};
  StepLibrary library_;
  ProfileRecording* const recording_;
  const std::function<planner::TransferRates()> rates_now_;
  const std::function<Bytes()> take_peak_;
  const std::function<Bytes()> moved_;
  ValueStalls value_stalls_;
  StepTraceRecorder* const trace_;
  std::uint32_t room_;              ///< Follows the least of each step: down at once, up slowly.
  std::uint32_t least_room_ = ~0U;  ///< Of the step so far.
  OpClock clock_ = 0;
  bool is_in_op_ = false;
  std::vector<std::uint32_t> used_;                        ///< Inputs of the latest operator.
  std::uint64_t seen_ops_ = 0;                             ///< Those of the trainer.
  std::array<std::uint64_t, OpSequence::kGram> recent_{};  ///< Signatures by `seen_ops_`.
  SignatureSet unrecordable_{kMostNames};

  // The step so far.
  std::uint64_t step_hash_ = 0;
  std::uint32_t step_ops_ = 0;
  TimePoint step_begin_{};
  LearnedPlan::Round round_;  ///< Of the steps of the plan since its first one.
  bool is_boundary_pending_ = false;
  bool is_worth_learning_ = true;

  // The plan. `conforms_`: the step has followed its slot from the first operator on.
  LearnedPlan* plan_ = nullptr;
  PlanAdvice plan_advice_{recorder_, clock_};
  OpIndex expected_ = 0;        ///< The operator of the plan that should come next.
  OpIndex slot_end_ = 0;        ///< Where the step should end.
  OpIndex current_ = kNoOp;     ///< The operator of the plan that is running or ended last.
  std::uint32_t lost_ops_ = 0;  ///< Operators since the last one that matched.
  bool conforms_ = false;
  std::vector<Advice::NextUse> late_next_uses_;  ///< Of births between operators.

  // Steps that nobody announces.
  std::uint32_t period_ = 0;  ///< 0: steps end at boundaries.
  std::uint32_t next_search_ = kFirstSearch;
  std::uint32_t shortest_period_ = 1;
  bool is_announced_ = false;         ///< A boundary has come at least once.
  std::uint64_t since_boundary_ = 0;  ///< Operators, or since the begin of the program.
  std::uint64_t announced_ops_ = 0;   ///< Most operators before one boundary came.

  LearnerReport report_;
  std::shared_ptr<const Forecast> forecast_;  ///< Behind what the report says is planned.
  std::vector<double> step_times_;
};

// --- Events -----------------------------------------------------------------------------------

void StepLearner::State::begin_op(std::uint64_t signature, std::span<const RangeUse> uses,
                                  TimePoint now, Advice& advice, bool is_replayable) {
  // Another thread has become the trainer while this operator was running elsewhere.
  if (is_in_op_) recorder_.end_op();
  ++clock_;
  ++since_boundary_;
  const Bytes moved = moved_ ? moved_() : Bytes();
  if (is_boundary_pending_ || ends_by_length()) finish_step(now, moved, is_worth_learning_, advice);
  is_boundary_pending_ = false;
  if (step_ops_ == 0) {
    step_begin_ = now;
    is_worth_learning_ = true;
  }
  is_in_op_ = true;
  const std::uint64_t combined = signature_of(signature, uses);
  recent_[++seen_ops_ % OpSequence::kGram] = combined;
  step_hash_ = mix(step_hash_, combined);
  ++step_ops_;
  recorder_.begin_op(combined, now, is_replayable && !unrecordable_.contains(combined), moved);
  used_.clear();
  for (const RangeUse& use : uses) {
    recorder_.use(use.range.value(), use.pages, use.writes);
    used_.push_back(use.range.value());
  }
  advice.next_uses.insert(advice.next_uses.end(), late_next_uses_.begin(), late_next_uses_.end());
  late_next_uses_.clear();
  current_ = follow(combined, advice);
  report_.follows_plan = current_ != kNoOp;
  if (current_ != kNoOp) {
    plan_advice_.begin_op(current_, used_, advice);
  } else if (period_ == 0 && step_ops_ >= next_search_ && !awaits_boundary()) {
    search_period();
  }
}

void StepLearner::State::end_op(Advice& advice) {
  if (!is_in_op_) return;
  is_in_op_ = false;
  recorder_.end_op();
  if (current_ != kNoOp) {
    plan_advice_.end_op(current_, used_, advice);
    return;
  }
  for (const std::uint32_t range : used_) {
    // An operator may free its inputs.
    if (recorder_.is_live(range)) advice.next_uses.push_back({RangeId(range), kUnknownUse});
  }
  for (const std::uint32_t range : recorder_.born_in_op())
    advice.next_uses.push_back({RangeId(range), kUnknownUse});
}

void StepLearner::State::allocated(RangeId range, std::uint32_t pages, Bytes bytes,
                                   bool is_filled) {
  recorder_.allocated(range.value(), pages, bytes, is_filled);
  if (is_in_op_ || current_ == kNoOp) return;
  const OpClock at = plan_advice_.bind_birth(current_, range.value());
  if (at != kUnknownUse) late_next_uses_.push_back({range, at});
}

void StepLearner::State::announce_boundary() {
  is_boundary_pending_ = true;
  is_worth_learning_ = true;
  // What repeated before it were equal layers.
  if (!is_announced_ && recording_ != nullptr) recording_->forget_steps();
  is_announced_ = true;
  announced_ops_ = std::max(announced_ops_, since_boundary_);
  since_boundary_ = 0;
  next_search_ = std::max(next_search_, kPatientSearch);
  period_ = 0;
}

LearnerReport StepLearner::State::report() const {
  LearnerReport report = report_;
  report.shapes = library_.shape_count();
  report.given_misfit = library_.given_misfit();
  std::vector<double> times = step_times_;
  report.step_seconds_median = median(times);
  report.stalls = value_stalls_.largest(kStallsTold);
  report.bound_seconds = forecast_ == nullptr ? 0.0 : forecast_->bound_seconds();
  return report;
}

// --- Steps ------------------------------------------------------------------------------------

void StepLearner::State::finish_step(TimePoint now, Bytes moved, bool is_meaningful,
                                     Advice& advice) {
  if (step_ops_ == 0) return;
  if (step_times_.size() < kStepTimes) step_times_.push_back(0.0);
  step_times_[report_.steps++ % kStepTimes] = seconds(now - step_begin_);
  profile::RecordedStep& record = library_.next_record();
  recorder_.finish_step(now, record, moved);
  if (recording_ != nullptr)
    recording_->note_step(step_hash_, is_meaningful ? record : profile::RecordedStep());
  if (trace_ != nullptr) trace_->note_values(record);
  value_stalls_.settle(record, names_);
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

  const PlanPlace place = library_.choose(conformed, next_slot);
  conforms_ = place.plan != nullptr;
  if (place.plan == nullptr) {
    plan_ = nullptr;
    advice.forgets = true;
  } else if (place.plan == conformed && !place.is_new) {
    if (place.op == 0) {
      plan_advice_.begin_again();
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
  if (!found) return;
  // The steps begin with the next operator; what was recorded so far is no step.
  period_ = *found;
  is_boundary_pending_ = true;
  is_worth_learning_ = false;
}

void StepLearner::State::note_plan() {
  const planner::SwapPlan& plan = plan_->plan.swaps;
  report_.plan_steps = plan_->slots();
  forecast_ = plan_->typical_forecast();
  report_.planned_seconds = forecast_ == nullptr ? 0.0 : forecast_->seconds;
  report_.planned_peak_pages = plan.estimate.peak_pages;
  report_.strategy = plan_->plan.strategy;
  report_.smallest_budget_pages = plan.smallest_budget_pages;
}

/// What a plan that was just made promises, for `--log-level info`.
void StepLearner::State::tell_plan(const LearnedPlan& learned) {
  const planner::SwapPlan& plan = learned.plan.swaps;
  const auto size = [](std::uint64_t pages) { return planner::SwapLimits().page_size * pages; };
  log_info("{} plan for {} operators in {} step{}: {} s predicted, {} out and {} in, {} "
           "operators run again in {} s, peak {} of {}; smallest budget {}",
           learned.refreshes > 0 ? "renewed" : "new", learned.sequence.size(), learned.slots(),
           learned.slots() == 1 ? "" : "s", plan.estimate.step_seconds,
           size(plan.estimate.written_pages), size(plan.estimate.read_pages),
           learned.plan.replays.size(), learned.plan.replay_seconds, size(plan.estimate.peak_pages),
           size(learned.budget_pages), size(plan.smallest_budget_pages));
}

// --- Following a plan -------------------------------------------------------------------------

/// The operator of the plan that this one is, or none.
OpIndex StepLearner::State::follow(std::uint64_t signature, Advice& advice) {
  const bool matches = plan_ != nullptr && lost_ops_ == 0 && expected_ < slot_end_ &&
                       plan_->sequence[expected_] == signature;
  if (matches) return expected_++;
  const bool had_plan = plan_ != nullptr;
  ++lost_ops_;
  conforms_ = false;
  advice.forgets = true;
  const OpIndex op = find_place(advice);
  if (op == kNoOp && had_plan) {
    ++report_.deviations;
    // The first one of a row; those behind it only say that the plan has not been found again.
    if (lost_ops_ == 1)
      log_debug("step {} left its plan at operator {} of it; advice stops until it is recognised",
                report_.steps + 1, expected_);
  }
  return op;
}

OpIndex StepLearner::State::find_place(Advice& advice) {
  PlanPlace place = library_.find_prefix(step_hash_, step_ops_, plan_);
  if (place.plan != nullptr) {
    conforms_ = true;
  } else if (const OpIndex op = skipped_to(); op != kNoOp) {
    place = {plan_, op, false};
  } else if (seen_ops_ >= OpSequence::kGram) {
    place = library_.find_gram(gram(), plan_);
  }
  if (place.plan == nullptr) return kNoOp;
  adopt(*place.plan, place.op, true, advice);
  return expected_++;
}

/// Where the step goes on in the plan when operators were left out or put in.
OpIndex StepLearner::State::skipped_to() const {
  if (plan_ == nullptr || lost_ops_ < kEqualToResume || lost_ops_ > kLookAhead) return kNoOp;
  const OpIndex end = std::min(slot_end_, expected_ + kLookAhead + lost_ops_);
  for (OpIndex op = std::max(expected_, kEqualToResume - 1); op < end; ++op) {
    bool is_equal = true;
    for (std::uint32_t age = 0; age < kEqualToResume && is_equal; ++age)
      is_equal = plan_->sequence[op - age] == recent(age);
    if (is_equal) return op;
  }
  return kNoOp;
}

std::uint64_t StepLearner::State::gram() const {
  std::array<std::uint64_t, OpSequence::kGram> signatures;
  for (std::uint32_t i = 0; i < OpSequence::kGram; ++i)
    signatures[i] = recent(OpSequence::kGram - 1 - i);
  return OpSequence::gram_hash(signatures);
}

void StepLearner::State::expect(OpIndex op) {
  const auto& begins = plan_->slot_begin;
  expected_ = op;
  slot_end_ = *std::upper_bound(begins.begin(), begins.end(), op);
  lost_ops_ = 0;
  current_ = kNoOp;
}

/// Begins to follow a plan before its operator `op`, whatever was followed until now.
void StepLearner::State::adopt(LearnedPlan& plan, OpIndex op, bool is_catching_up, Advice& advice) {
  plan_ = &plan;
  advice.forgets = true;
  expect(op);
  plan_advice_.enter(plan, op, is_catching_up, advice);
  // What was measured belongs to the plan before, until there are rounds under this one.
  if (report_.followed_seconds == 0.0 && is_told_of()) note_plan();
}

// --- Operators that run again -----------------------------------------------------------------

bool StepLearner::State::may_be_due() const {
  return plan_ != nullptr && !is_boundary_pending_ && lost_ops_ == 0 && expected_ < slot_end_ &&
         plan_advice_.has_replays_before(expected_);
}

std::span<const OpIndex> StepLearner::State::due_replays(std::uint64_t signature,
                                                         std::span<const RangeUse> uses) {
  if (!may_be_due() || plan_->sequence[expected_] != signature_of(signature, uses)) return {};
  return plan_advice_.replays_before(expected_);
}

// --- The public face --------------------------------------------------------------------------

StepLearner::StepLearner(const Options& options) : state_(std::make_unique<State>(options)) {}

StepLearner::~StepLearner() = default;

void StepLearner::begin_op(std::uint64_t signature, std::span<const RangeUse> uses, TimePoint now,
                           Advice& advice, bool is_replayable) {
  state_->begin_op(signature, uses, now, advice, is_replayable);
}

bool StepLearner::may_be_due() const { return state_->may_be_due(); }

std::span<const OpIndex> StepLearner::due_replays(std::uint64_t signature,
                                                  std::span<const RangeUse> uses) {
  return state_->due_replays(signature, uses);
}

std::uint64_t StepLearner::seen_ops() const { return state_->seen_ops_; }

void StepLearner::begin_replay(std::size_t position, Advice& advice) {
  ++state_->clock_;
  state_->plan_advice_.begin_replay(position, advice);
}

void StepLearner::end_replay(std::size_t position, Duration took, Bytes moved, Advice& advice) {
  if (took > Duration(0)) state_->note_replay(position, took, moved);
  state_->plan_advice_.end_replay(position, advice);
}

void StepLearner::cannot_record() { state_->unrecordable_.insert(state_->recent(0)); }

void StepLearner::allocated(RangeId range, std::uint32_t pages, Bytes bytes, bool is_filled) {
  state_->allocated(range, pages, bytes, is_filled);
}

void StepLearner::note_class(RangeId range, profile::StorageClass holds) {
  state_->recorder_.note_class(range.value(), holds);
}

std::uint64_t StepLearner::signature() const { return state_->recent(0); }

void StepLearner::freed(RangeId range) { state_->recorder_.freed(range.value()); }

void StepLearner::note_room(std::uint32_t pages) {
  state_->least_room_ = std::min(state_->least_room_, pages);
}

void StepLearner::waited(Duration time, Bytes moved) { state_->recorder_.waited(time, moved); }

void StepLearner::name_op(const OpText& text) { state_->names_.note(state_->recent(0), text); }

void StepLearner::waited_for(RangeId range, StallLedger::Reason reason, Duration time) {
  if (!state_->recorder_.is_live(range.value())) return;
  state_->value_stalls_.note(state_->recorder_.range(range.value()).serial, reason, time);
}

void StepLearner::end_op(Advice& advice) { state_->end_op(advice); }

void StepLearner::step_boundary() { state_->announce_boundary(); }

OpClock StepLearner::clock() const { return state_->clock_; }

std::uint64_t StepLearner::steps() const { return state_->report_.steps; }

LearnerReport StepLearner::report() const { return state_->report(); }

}  // namespace spillway::runtime
