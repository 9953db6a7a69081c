#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device_times.h"
#include "given_plan.h"
#include "learned_plan.h"
#include "plan_maker.h"

namespace spillway::runtime {

class ProfileRecording;

/// Where a plan is to be followed from.
struct PlanPlace {
  LearnedPlan* plan = nullptr;
  profile::OpIndex op = 0;
  bool is_new = false;
};

/// Remembers the steps of one thread, tells which one comes next, and makes plans for them.
/// Bounded: a few shapes, a few plans, and the tapes of the newest steps.
class StepLibrary {
 public:
  static constexpr std::uint32_t kMaxShapes = 8;
  static constexpr std::uint32_t kMaxPlans = 8;
  static constexpr std::uint32_t kMaxSlots = 8;  ///< Steps of the longest cycle.

  /// `names`: see GivenPlan. `is_timed_on_device`: see StepLearner. `recording`: is told of all
  /// that is measured there; may be null.
  StepLibrary(const planner::SwapLimits& limits, const PlanningOptions& planning,
              const OpNames& names, bool is_timed_on_device, ProfileRecording* recording)
      : limits_(limits), given_(planning, names), maker_(planning), recording_(recording) {
    if (is_timed_on_device) device_times_.emplace();
  }

  /// Pages that plans made from now on may fill.
  void set_budget(std::uint32_t pages) { limits_.budget_pages = pages; }
  /// What plans made from now on reckon with.
  void set_rates(const planner::TransferRates& rates) { limits_.rates = rates; }

  /// An operator that ran again: what it took, what moved meanwhile, and what it takes at first.
  struct ReplayTimes {
    Duration took{0};
    Bytes moved;
    Duration first_run{0};
  };
  /// `pages`: what it made.
  void note_replay(const ReplayTimes& replay, std::uint32_t pages);

  /// Where the next finished step is to be recorded: the memory of the oldest one.
  profile::RecordedStep& next_record();

  /// Takes over what has been recorded there. Returns its shape, or kNoShape when it was not whole
  /// or `is_meaningful` is false.
  ShapeId learn(std::uint64_t identity, bool is_meaningful, bool is_cut_by_length);

  /// Null: operators are timed on the host.
  DeviceTimes* device_times() { return device_times_ ? &*device_times_ : nullptr; }
  const DeviceTimes* device_times() const { return device_times_ ? &*device_times_ : nullptr; }

  /// Where to go on after a step; `current` is the plan that the step conformed to, or null, and
  /// `next_slot` its next step. `is_new` tells that the plan has been made or made again.
  PlanPlace choose(LearnedPlan* current, std::uint32_t next_slot);

  /// A plan with a step that begins with these operators; `preferred` first.
  PlanPlace find_prefix(std::uint64_t hash, std::uint32_t length, const LearnedPlan* preferred);
  /// A plan with a unique place that these latest operators lead to; `preferred` first.
  PlanPlace find_gram(std::uint64_t hash, LearnedPlan* preferred);

  std::uint32_t shape_count() const { return static_cast<std::uint32_t>(shapes_.size()); }
  std::uint32_t longest_step() const;
  /// Consecutive steps, up to now, none of which had been seen before.
  std::uint32_t strangers_in_a_row() const { return strangers_; }
  /// See GivenPlan.
  std::string given_misfit() const { return given_.misfit(); }

 private:
  struct Record {
    profile::RecordedStep step;
    ShapeId shape = kNoShape;
  };

  StepShape* find_shape(ShapeId id) const;
  void settle_device_times(const Record& record);
  bool lacks_times() const;
  bool have_times(std::span<const ShapeId> shapes) const;
  ShapeId predict() const;
  std::uint32_t find_cycle() const;
  LearnedPlan* find_rotation(std::uint32_t cycle, std::uint32_t& next_slot);
  PlanPlace find_neighbours(ShapeId previous, ShapeId next);
  PlanPlace follow_single(ShapeId shape);
  PlanPlace refreshed(LearnedPlan& plan, std::size_t oldest_age);
  bool needs_refresh(const LearnedPlan& plan, std::size_t oldest_age) const;
  void adopt(LearnedPlan& plan, planner::StepPlan made);
  bool confirms(LearnedPlan& plan, const planner::StepPlan& made) const;
  planner::SwapLimits limits_of(std::uint32_t budget_pages) const;
  planner::StepEstimate evaluate(const LearnedPlan& plan, const std::vector<Duration>& op_times,
                                 std::uint32_t budget_pages) const;
  std::vector<Duration> typical_op_times(const LearnedPlan& plan) const;
  void forecast(LearnedPlan& plan) const;
  const profile::RecordedStep* step_before(const LearnedPlan& plan, std::size_t oldest_age) const;
  std::unique_ptr<LearnedPlan::Draft> draft_of(const LearnedPlan& plan,
                                               std::size_t oldest_age) const;
  bool order_plan(std::size_t oldest_age, LearnedPlan& plan);
  bool take_given(std::size_t oldest_age, LearnedPlan& plan);
  const StepShape& most_frequent() const;
  PlanPlace begin_cycle(LearnedPlan& plan);
  Duration patience(const LearnedPlan& plan) const;
  void tell_failure(const LearnedPlan& plan, const std::string& reason);
  LearnedPlan& new_plan();
  PlanPlace start(LearnedPlan& plan, std::uint32_t slot, bool is_new);
  void forget_one_shape();
  void forget(const LearnedPlan& plan);

  Duration replay_extra_per_page() const;
  /// Seconds that operators lose to each byte that moves beside them.
  double slowdown() const { return limits_.rates.slowdown_seconds_per_byte(); }

  planner::SwapLimits limits_;
  GivenPlan given_;
  PlanMaker maker_;
  std::optional<DeviceTimes> device_times_;
  ProfileRecording* const recording_;
  Duration replay_extra_{0};  ///< Of the latest replays, which made so many pages.
  std::int64_t replay_pages_ = 0;
  std::vector<std::unique_ptr<StepShape>> shapes_;
  std::vector<std::unique_ptr<LearnedPlan>> plans_;
  std::vector<std::unique_ptr<Record>> records_;  ///< Of the latest steps, newest first.
  std::deque<ShapeId> history_;                   ///< Of the latest steps, newest first.
  ShapeId next_id_ = kNoShape + 1;
  std::uint64_t step_count_ = 0;
  std::uint32_t strangers_ = 0;
  bool is_failure_told_ = false;  ///< Of any step.
};

}  // namespace spillway::runtime
