#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "spillway/planner/step_plan.h"

namespace spillway::runtime {

/// What becomes of an order to the plan maker. Plans appear as they get better.
class PlanWork {
 public:
  struct News {
    std::optional<planner::StepPlan> plan;  ///< Better than what was told before.
    bool is_final = false;                  ///< Nothing more will come.
    std::string failure;                    ///< Why there is no plan at all; empty: there is one.
  };
  /// What is new since the last call.
  News take();
  /// Nobody wants the plan any more.
  void cancel() { is_cancelled_.store(true); }

 private:
  friend class PlanMaker;
  std::mutex mutex_;
  News news_;
  std::atomic<bool> is_cancelled_{false};
};

/// Makes plans on a thread of its own, which takes what the trainer's threads leave of the
/// processors; or at once on the caller's thread, where the clock must not matter.
class PlanMaker {
 public:
  enum class Moment : std::uint8_t { kAtOnce, kInBackground };
  struct Order {
    profile::StepTape tape;
    planner::SwapLimits limits;
    bool recomputes = false;
  };

  explicit PlanMaker(Moment moment);
  /// Waits until the plan in work is given up.
  ~PlanMaker();
  PlanMaker(const PlanMaker&) = delete;
  PlanMaker& operator=(const PlanMaker&) = delete;

  std::shared_ptr<PlanWork> order(Order order);

 private:
  struct Task {
    Order order;
    std::shared_ptr<PlanWork> work;
  };
  void work_through();
  void make(const Task& task);

  const Moment moment_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::atomic<bool> is_ending_{false};
  std::thread worker_;
};

}  // namespace spillway::runtime
