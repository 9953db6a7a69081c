#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "search_share.h"
#include "spillway/base/clock.h"
#include "spillway/planner/step_plan.h"
#include "spillway/runtime/learning/planning_options.h"

namespace spillway::runtime {

/// What becomes of an order to the plan maker. Plans appear as they get better.
class PlanWork {
 public:
  struct News {
    std::optional<planner::StepPlan> plan;  ///< Better than what was told before.
    bool is_final = false;                  ///< Nothing more will come.
    std::string failure;                    ///< Why there is no plan at all; empty: there is one.
  };
  /// What is new since the last call. Waits for a first plan, but no longer than that.
  News take(Duration patience);
  /// Nobody wants the plan any more.
  void cancel() { is_cancelled_.store(true); }

 private:
  friend class PlanMaker;
  /// True for the first one.
  bool put(const planner::StepPlan& plan);
  /// Nothing more will come, because of that or, when it is empty, because all is said.
  void end(std::string failure);

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  bool has_plan_ = false;  ///< There was one, be it taken or not.
  std::atomic<bool> is_cancelled_{false};
};

/// Makes plans, each on a thread of its own: a first one as fast as it can where there is none yet,
/// better ones with a hundredth of a processor. Or at once on the caller's thread, where the
/// clock must not matter. Whatever goes wrong becomes a failure of the work, also that no thread
/// can be started.
class PlanMaker {
 public:
  struct Order {
    profile::StepTape tape;
    planner::SwapLimits limits;
    bool is_urgent = true;                                  ///< The step has no plan so far.
    std::optional<planner::StepPlan> known = std::nullopt;  ///< That is followed, of the same step.
  };

  /// How searches see time pass, and how they let it pass.
  struct Pace {
    std::shared_ptr<const Clock> clock;
    std::function<double()> processor_seconds;  ///< That the calling thread has used.
    std::function<void(Duration)> rest;
  };
  static Pace real_pace();

  explicit PlanMaker(const PlanningOptions& options, Pace pace = real_pace());
  /// Tells the plans in work to end and waits until they have: milliseconds, for steps of a hundred
  /// thousand operators up to a second. Of no matter to a trainer, whose process ends without it.
  ~PlanMaker();
  PlanMaker(const PlanMaker&) = delete;
  PlanMaker& operator=(const PlanMaker&) = delete;

  std::shared_ptr<PlanWork> order(Order order);

 private:
  struct Task {
    std::thread thread;
    std::shared_ptr<PlanWork> work;
  };
  /// What a thread that makes a plan needs.
  struct Planning {
    Planning(const PlanningOptions& chosen, Pace chosen_pace)
        : options(chosen), pace(std::move(chosen_pace)) {}
    void make(const Order& order, PlanWork& work) noexcept;
    class Search;
    void search(const Order& order, const planner::PlanEffort& effort);

    const PlanningOptions options;
    const Pace pace;
    SearchShare share{*pace.clock, options.processors};
    std::atomic<bool> is_ending{false};
  };
  void begin(Order order, const std::shared_ptr<PlanWork>& work);
  void join_finished();

  Planning planning_;
  std::vector<Task> tasks_;
};

}  // namespace spillway::runtime
