#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan_advice.h"
#include "signature_set.h"
#include "spillway/runtime/learning/step_learner.h"
#include "spillway/runtime/recording/op_names.h"
#include "spillway/runtime/recording/value_stalls.h"
#include "step_library.h"

namespace spillway::runtime {

using profile::OpIndex;
using profile::OpSequence;

/// What the learner knows, and how it follows. step_learner.cpp has the events and the plan that is
/// followed, step_learner_steps.cpp where steps begin and end.
struct StepLearner::State {
  static constexpr OpIndex kNoOp = planner::kNoOp;
  // Operators without a boundary before a period is sought: as long as none was ever announced, and
  // after that.
  static constexpr std::uint32_t kFirstSearch = 1024;
  static constexpr std::uint32_t kPatientSearch = 4096;
  // A loop of more operators than these is no part of a training step.
  static constexpr std::uint32_t kLongestPass = 65536;
  static constexpr std::size_t kMostNames = 65536;

  explicit State(const Options& options)
      : page_size_(options.page_size),
        recorder_({}),
        library_({.budget_pages = options.budget_pages,
                  .page_size = options.page_size,
                  .rates = options.rates,
                  .far = options.far},
                 options.planning, names_, /*is_timed_on_device=*/options.moment != nullptr,
                 options.recording),
        recording_(options.recording),
        rates_now_(options.rates_now),
        take_peak_(options.take_peak),
        moved_(options.moved),
        moment_(options.moment),
        trace_(options.trace),
        storage_of_(options.storage_of),
        room_(options.budget_pages),
        plan_advice_(recorder_, clock_, options.far.has_value()) {}

  void begin_op(std::uint64_t signature, std::span<const PieceUse> uses, TimePoint now,
                Advice& advice, bool is_replayable, const AutogradFacts& autograd,
                std::span<const PieceUse> shared);
  bool measures() const {
    return library_.device_times() != nullptr && library_.device_times()->wants_moments();
  }
  /// What the device has come to; none where nothing is measured.
  std::optional<device::Event> moment() const {
    return measures() ? std::optional(moment_()) : std::nullopt;
  }
  void use_shared(PieceId page, bool writes);
  void end_op(Advice& advice);
  void allocated(PieceId piece, std::uint32_t pages, Bytes bytes, bool is_filled);
  void allocated_shared(PieceId page);
  void bind_late_birth(PieceId piece);
  bool may_be_due() const;
  std::span<const OpIndex> due_replays(std::uint64_t signature, std::span<const PieceUse> uses);
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
  bool is_part_of_step(std::uint32_t latest) const;
  void note_replay(std::size_t position, Duration took, Bytes moved);
  bool is_told_of() const { return plan_->is_given || report_.given_steps == 0; }
  void note_plan();
  void tell_plan(const LearnedPlan& learned) const;

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

  const Bytes page_size_;
  profile::TapeRecorder recorder_;
  OpNames names_{kMostNames};
  StepLibrary library_;
  ProfileRecording* const recording_;
  const std::function<planner::TransferRates()> rates_now_;
  const std::function<Bytes()> take_peak_;
  const std::function<Bytes()> moved_;
  const std::function<device::Event()> moment_;
  ValueStalls value_stalls_;
  StepTraceRecorder* const trace_;
  const std::function<StorageId(PieceId)> storage_of_;  ///< For the trace.
  std::uint32_t room_;              ///< Follows the least of each step: down at once, up slowly.
  std::uint32_t least_room_ = ~0U;  ///< Of the step so far.
  OpClock clock_ = 0;
  bool is_in_op_ = false;
  std::vector<std::uint32_t> used_;                        ///< Inputs of the latest operator.
  std::vector<std::uint32_t> used_shared_;                 ///< Shared pages that it touches.
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
  PlanAdvice plan_advice_;
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

}  // namespace spillway::runtime
