#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/planner/step_plan.h"
#include "spillway/runtime/planning_options.h"

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
  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  bool has_plan_ = false;  ///< There was one, be it taken or not.
  std::atomic<bool> is_cancelled_{false};
};

/// Makes plans, each on a thread of its own: a first one as fast as it can, better ones from what
/// the trainer's threads leave of the processors. Or at once on the caller's thread, where the
/// clock must not matter.
class PlanMaker {
 public:
  struct Order {
    profile::StepTape tape;
    planner::SwapLimits limits;
  };

  explicit PlanMaker(const PlanningOptions& options);
  /// Waits until the plan in work is given up.
  ~PlanMaker();
  PlanMaker(const PlanMaker&) = delete;
  PlanMaker& operator=(const PlanMaker&) = delete;

  std::shared_ptr<PlanWork> order(Order order);

 private:
  struct Task {
    std::thread thread;
    std::shared_ptr<PlanWork> work;
  };
  void make(const Order& order, PlanWork& work);
  std::optional<planner::StepPlan> stored_plan(const Order& order);
  void search(const Order& order, const planner::PlanEffort& effort);
  void join_finished();

  const PlanningOptions options_;
  std::atomic<bool> is_misfit_told_{false};
  std::vector<Task> tasks_;
  std::atomic<bool> is_ending_{false};
};

}  // namespace spillway::runtime
