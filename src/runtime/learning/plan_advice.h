#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "learned_plan.h"
#include "spillway/runtime/learning/step_learner.h"

namespace spillway::runtime {

/// Turns the plan that is being followed into advice: knows which storage is which value of the
/// plan, and what starts before and after each operator. Not thread-safe.
class PlanAdvice {
 public:
  /// Both belong to the learner and outlive this. `has_tiers`: plans say what stays in host memory.
  PlanAdvice(const profile::TapeRecorder& recorder, const OpClock& clock, bool has_tiers)
      : recorder_(recorder), clock_(clock), has_tiers_(has_tiers) {}

  /// Begins with a plan before its operator `op`, whatever was followed until now.
  /// `is_catching_up`: nobody has fetched ahead for it, so the next round does it for what may be
  /// missing.
  void enter(const LearnedPlan& plan, profile::OpIndex op, bool is_catching_up, Advice& advice);
  /// The plan begins again: survivors go by the numbers that they have in the next round.
  void begin_anew();

  /// Around an operator of the trainer, by its number in the plan's step; `used` are its inputs.
  void begin_op(profile::OpIndex op, std::span<const std::uint32_t> used, Advice& advice);
  void end_op(profile::OpIndex op, std::span<const std::uint32_t> used,
              std::span<const std::uint32_t> shared, Advice& advice);
  /// Binds a storage born in or after that operator to the next birth of its size; returns its next
  /// use.
  OpClock bind_birth(profile::OpIndex op, std::uint32_t range);

  bool has_replays_before(profile::OpIndex op) const { return first_place(op) < plan_->at[op]; }
  /// Numbers of the operators that run again before that one. The next two go by them.
  std::span<const profile::OpIndex> replays_before(profile::OpIndex op);
  /// Among the plan's operators.
  profile::OpIndex place_of_replay(std::size_t position) const {
    return due_begin_ + static_cast<profile::OpIndex>(position);
  }
  void begin_replay(std::size_t position, Advice& advice);
  void end_replay(std::size_t position, Advice& advice);

 private:
  void bind(profile::ValueIndex value, std::uint32_t range) {
    bound_[value] = {range, recorder_.range(range).serial};
  }
  bool is_bound(profile::ValueIndex value) const {
    return value != profile::kNoValue && bound_[value].serial != 0 &&
           recorder_.is_live(bound_[value].range, bound_[value].serial);
  }
  PieceId piece_of(profile::ValueIndex value) const { return PieceId(bound_[value].range); }
  void bind_live(profile::OpIndex op);
  void bind_by_birth();

  void advise_fetches(profile::OpIndex place, Advice& advice);
  void advise_leaving(profile::OpIndex place, Advice& advice);
  void advise_next_uses(profile::OpIndex from, Advice& advice);
  void advise_pending_transfers(profile::OpIndex from, Advice& advice);
  OpClock bind_shared_birth(std::uint32_t range);
  void advise_next_uses_of_shared(profile::OpIndex op, std::span<const std::uint32_t> shared,
                                  Advice& advice) const;
  OpClock moment(std::uint32_t distance) const;
  Advice::WriteOut write_out(profile::ValueIndex value, const planner::PlannedSwap& swap) const;

  /// As the trainer runs it, and with what runs again; the values of a storage go by the first.
  const profile::StepTape& plan_tape() const { return plan_->step.tape; }
  const planner::RewrittenTape& rewritten() const { return plan_->plan.steps; }
  /// Of an operator of the trainer among the plan's, with what runs again before it.
  profile::OpIndex first_place(profile::OpIndex op) const {
    return op == 0 ? 0 : plan_->at[op - 1] + 1;
  }

  struct Binding {
    std::uint32_t range = 0;
    std::uint64_t serial = 0;  ///< 0: not bound.
  };
  struct Identity {
    std::uint64_t birth_key;
    std::uint64_t serial;
    std::uint32_t index;  ///< A range, or a value of the plan.
    bool operator<(const Identity& other) const {
      return std::tie(birth_key, serial, index) <
             std::tie(other.birth_key, other.serial, other.index);
    }
  };

  const profile::TapeRecorder& recorder_;
  const OpClock& clock_;
  const bool has_tiers_;
  const LearnedPlan* plan_ = nullptr;
  OpClock catch_up_until_ = 0;
  profile::OpIndex due_begin_ = 0;  ///< First of the due replays, among the plan's operators.
  profile::OpIndex last_replay_ = planner::kNoOp;  ///< Among the same; after it nothing runs again.
  std::uint32_t birth_cursor_ = 0;                 ///< Next birth of the current operator.
  std::vector<profile::ValueIndex> shared_births_;  ///< Shared pages of the plan, by their age.
  std::size_t shared_cursor_ = 0;                   ///< The next of these.
  std::vector<Binding> bound_;                      ///< Per value of the plan.
  std::vector<Binding> previously_bound_;
  std::vector<Identity> live_;  ///< Scratch, as the next four.
  std::vector<Identity> wanted_;
  std::vector<bool> is_marked_;
  std::vector<std::pair<std::uint32_t, Advice::Fetch>> pending_;
  std::vector<std::pair<std::uint32_t, Advice::WriteOut>> late_leaves_;
};

}  // namespace spillway::runtime
