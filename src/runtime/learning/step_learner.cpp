#include "spillway/runtime/learning/step_learner.h"

#include <algorithm>
#include <array>

#include "spillway/base/log.h"
#include "spillway/base/median.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "step_learner_state.h"

namespace spillway::runtime {

namespace {

constexpr std::uint32_t kLookAhead = 48;     // Operators that a plan may be skipped by.
constexpr std::uint32_t kEqualToResume = 3;  // Operators in a row that must match after that.
constexpr std::size_t kStallsTold = 5;

/// The operator, its shapes, and how it uses paged storages.
std::uint64_t signature_of(std::uint64_t signature, std::span<const PieceUse> uses) {
  std::uint64_t hash = mix(signature, uses.size());
  for (const PieceUse& use : uses) hash = mix(hash, std::uint64_t{use.pages} * 2 + use.writes);
  return hash;
}

}  // namespace

// --- Events -----------------------------------------------------------------------------------

void StepLearner::State::begin_op(std::uint64_t signature, std::span<const PieceUse> uses,
                                  TimePoint now, Advice& advice, bool is_replayable,
                                  const AutogradFacts& autograd, std::span<const PieceUse> shared) {
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
  recorder_.begin_op(combined, now, is_replayable && !unrecordable_.contains(combined), moved,
                     autograd);
  used_.clear();
  for (const PieceUse& use : uses) {
    recorder_.use(use.piece.value(), use.pages, use.writes);
    used_.push_back(use.piece.value());
  }
  used_shared_.clear();
  for (const PieceUse& use : shared) use_shared(use.piece, use.writes);
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
    plan_advice_.end_op(current_, used_, used_shared_, advice);
    return;
  }
  for (const auto* const used : {&used_, &used_shared_}) {
    for (const std::uint32_t range : *used) {
      // An operator may free its inputs.
      if (recorder_.is_live(range)) advice.next_uses.push_back({PieceId(range), kUnknownUse});
    }
  }
  for (const std::uint32_t range : recorder_.born_in_op())
    advice.next_uses.push_back({PieceId(range), kUnknownUse});
}

void StepLearner::State::allocated(PieceId piece, std::uint32_t pages, Bytes bytes,
                                   bool is_filled) {
  recorder_.allocated(piece.value(), pages, bytes, is_filled);
  bind_late_birth(piece);
}

void StepLearner::State::allocated_shared(PieceId page) {
  recorder_.allocated_shared(page.value());
  bind_late_birth(page);
}

void StepLearner::State::use_shared(PieceId page, bool writes) {
  if (!is_in_op_) return;
  recorder_.use_shared(page.value(), writes);
  if (std::find(used_shared_.begin(), used_shared_.end(), page.value()) == used_shared_.end())
    used_shared_.push_back(page.value());
}

/// What is born between two operators gets its next use with the one that comes.
void StepLearner::State::bind_late_birth(PieceId piece) {
  if (is_in_op_ || current_ == kNoOp) return;
  const OpClock at = plan_advice_.bind_birth(current_, piece.value());
  if (at != kUnknownUse) late_next_uses_.push_back({piece, at});
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
                                                         std::span<const PieceUse> uses) {
  if (!may_be_due() || plan_->sequence[expected_] != signature_of(signature, uses)) return {};
  return plan_advice_.replays_before(expected_);
}

// --- The public face --------------------------------------------------------------------------

StepLearner::StepLearner(const Options& options) : state_(std::make_unique<State>(options)) {}

StepLearner::~StepLearner() = default;

void StepLearner::begin_op(std::uint64_t signature, std::span<const PieceUse> uses, TimePoint now,
                           Advice& advice, bool is_replayable, const AutogradFacts& autograd,
                           std::span<const PieceUse> shared) {
  state_->begin_op(signature, uses, now, advice, is_replayable, autograd, shared);
}

bool StepLearner::may_be_due() const { return state_->may_be_due(); }

std::span<const OpIndex> StepLearner::due_replays(std::uint64_t signature,
                                                  std::span<const PieceUse> uses) {
  return state_->due_replays(signature, uses);
}

std::uint64_t StepLearner::seen_ops() const { return state_->seen_ops_; }

void StepLearner::begin_replay(std::size_t position, Advice& advice) {
  ++state_->clock_;
  state_->plan_advice_.begin_replay(position, advice);
}

void StepLearner::end_replay(std::size_t position, Duration took, Bytes moved, Advice& advice) {
  // Where only the device knows what an operator takes, nobody knows it of a second run.
  const bool is_known = took > Duration(0) && state_->library_.device_times() == nullptr;
  if (is_known) state_->note_replay(position, took, moved);
  state_->plan_advice_.end_replay(position, advice);
}

void StepLearner::cannot_record() { state_->unrecordable_.insert(state_->recent(0)); }

void StepLearner::allocated(PieceId piece, std::uint32_t pages, Bytes bytes, bool is_filled) {
  state_->allocated(piece, pages, bytes, is_filled);
}

void StepLearner::allocated_shared(PieceId page) { state_->allocated_shared(page); }

void StepLearner::use_shared(PieceId page) { state_->use_shared(page, /*writes=*/true); }

void StepLearner::note_class(PieceId piece, profile::StorageClass holds) {
  state_->recorder_.note_class(piece.value(), holds);
}

std::uint64_t StepLearner::signature() const { return state_->recent(0); }

void StepLearner::freed(PieceId piece) { state_->recorder_.freed(piece.value()); }

void StepLearner::note_room(std::uint32_t pages) {
  state_->least_room_ = std::min(state_->least_room_, pages);
}

void StepLearner::waited(Duration time, Bytes moved) { state_->recorder_.waited(time, moved); }

void StepLearner::name_op(const OpText& text) { state_->names_.note(state_->recent(0), text); }

void StepLearner::waited_for(PieceId piece, StallLedger::Reason reason, Duration time) {
  if (!state_->recorder_.is_live(piece.value())) return;
  state_->value_stalls_.note(state_->recorder_.range(piece.value()).serial, reason, time);
}

bool StepLearner::measures() const { return state_->measures(); }

void StepLearner::note_begin() {
  if (measures()) state_->library_.device_times()->note_begin(state_->moment_());
}

void StepLearner::note_apart(const device::Event& from) {
  if (measures()) state_->library_.device_times()->note_apart(from, state_->moment_());
}

void StepLearner::end_op(Advice& advice) { state_->end_op(advice); }

void StepLearner::step_boundary() { state_->announce_boundary(); }

OpClock StepLearner::clock() const { return state_->clock_; }

std::uint64_t StepLearner::steps() const { return state_->report_.steps; }

bool StepLearner::follows_plan() const { return state_->report_.follows_plan; }

LearnerReport StepLearner::report() const { return state_->report(); }

}  // namespace spillway::runtime
