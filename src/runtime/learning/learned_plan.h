#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "plan_maker.h"
#include "spillway/planner/step_plan.h"
#include "spillway/profile/op_sequence.h"
#include "spillway/profile/step_joining.h"
#include "spillway/profile/tape_recorder.h"
#include "spillway/runtime/recording/typical_times.h"

namespace spillway::runtime {

/// Names a sequence of operators that some step had. Never reused.
using ShapeId = std::uint32_t;
inline constexpr ShapeId kNoShape = 0;

/// One known step.
struct StepShape {
  void note_times(OpTimes of_step);

  ShapeId id = kNoShape;
  profile::OpSequence sequence;
  /// Of the latest steps, newest first, waits left out. Those of a device come later than the step.
  StepTimes times;
  std::uint32_t unmeasured = 0;   ///< Steps since the latest one that was measured on the device.
  std::uint64_t seen = 0;         ///< Steps.
  std::uint64_t last_seen = 0;    ///< Step count.
  bool is_cut_by_length = false;  ///< No boundary was announced: the step ends where it repeats.
  bool is_failure_told = false;   ///< That there is no plan for it.
};

/// What the event model says a round of a plan takes, and what it was told.
struct Forecast {
  /// What no plan can beat with these times, rates and budget, and so never above `seconds`. Takes
  /// milliseconds, for a hundred thousand operators a second: for the end of a run.
  double bound_seconds() const;

  double seconds = 0.0;
  /// As the trainer runs it; its times do not count.
  std::shared_ptr<const profile::StepTape> tape;
  std::vector<Duration> op_times;
  Duration replay_extra_per_page{0};
  planner::SwapLimits limits;
};

/// The plan for a cycle of one or more steps that follow each other. It is made in the background:
/// until there is a first one nothing of it but `shapes` and `draft` holds.
struct LearnedPlan {
  ~LearnedPlan();
  bool is_there() const { return sequence.size() > 0; }

  std::vector<ShapeId> shapes;
  std::vector<profile::OpIndex> slot_begin;  ///< First operator of each step, and the end.
  std::vector<bool> slot_ends_by_length;
  profile::OpSequence sequence;  ///< Of all steps, joined.
  profile::RecordedStep step;    ///< Of all steps, joined.
  planner::StepPlan plan;
  std::vector<profile::OpIndex> at;  ///< Per operator of `step`: its place among the plan's.
  planner::PerOp drops;            ///< Values of `step` by the plan's operator after which they go.
  std::vector<bool> is_replayed;   ///< Per operator of `step`: it runs again somewhere.
  std::uint32_t budget_pages = 0;  ///< That it was made for.
  planner::TransferRates rates;    ///< The same.
  std::uint64_t last_used = 0;
  bool is_given = false;        ///< It is the user's.
  std::uint32_t refreshes = 0;  ///< How often a new one has been ordered.
  std::uint32_t cycles = 0;     ///< Finished since then.
  /// Of the next round, by the latest times and rates; null: none yet.
  std::shared_ptr<const Forecast> forecast;
  std::shared_ptr<const profile::StepTape> tape;  ///< Of `step`, for forecasts.

  /// How it went once, from its first step to its last.
  struct Round {
    double seconds = 0.0;                      ///< Waits included.
    Bytes peak;                                ///< The most in memory at once.
    std::shared_ptr<const Forecast> forecast;  ///< What it was to take, as known when it began.
  };
  void note_round(Round round);
  double typical_seconds() const;  ///< Of the latest rounds; 0 without any.
  /// Their median forecast; that of the next one where there are none; null without any.
  std::shared_ptr<const Forecast> typical_forecast() const;
  Bytes highest_peak() const;
  std::size_t rounds() const { return latest_.size(); }

  /// Pages that one of the plan's operators makes, be it a second run or not.
  std::uint32_t pages_made(profile::OpIndex place) const;
  std::uint32_t slots() const { return static_cast<std::uint32_t>(shapes.size()); }

  /// What is being planned, as above.
  struct Draft {
    std::vector<profile::OpIndex> slot_begin;
    std::vector<bool> slot_ends_by_length;
    profile::RecordedStep step;
    std::uint32_t budget_pages = 0;
    planner::TransferRates rates;
    bool is_adopted = false;  ///< A first plan for it has come.
    std::shared_ptr<PlanWork> work;
  };
  std::unique_ptr<Draft> draft;
  /// The plan for the operators of `step`, and what follows from it.
  void set(planner::StepPlan made);

 private:
  std::deque<Round> latest_;
  bool is_settled_ = false;  ///< The first round still had to do with what was there before.
};

}  // namespace spillway::runtime
