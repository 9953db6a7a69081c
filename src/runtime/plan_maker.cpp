#include "plan_maker.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"

namespace spillway::runtime {

namespace {

// A sixty-eighth of the share that a thread of the trainer gets where both want one processor.
constexpr int kLowestPriority = 19;

}  // namespace

PlanWork::News PlanWork::take() {
  const std::lock_guard lock(mutex_);
  News news = std::move(news_);
  news_ = {std::nullopt, news.is_final, {}};
  return news;
}

PlanMaker::PlanMaker(Moment moment) : moment_(moment) {
  if (moment == Moment::kAtOnce) return;
  const SignalsBlocked blocked;
  worker_ = std::thread([this] { work_through(); });
}

PlanMaker::~PlanMaker() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_.store(true);
    changed_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

std::shared_ptr<PlanWork> PlanMaker::order(Order order) {
  Task task{std::move(order), std::make_shared<PlanWork>()};
  auto work = task.work;
  if (moment_ == Moment::kAtOnce) {
    make(task);
    return work;
  }
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return work;
}

void PlanMaker::work_through() {
  ::pthread_setname_np(::pthread_self(), "spillway-plan");
  // Of this thread only, as Linux has it; the plan comes later where that is not allowed.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowestPriority));
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_ending_.load() || !tasks_.empty(); });
      if (is_ending_.load()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    make(task);
  }
}

void PlanMaker::make(const Task& task) {
  PlanWork& work = *task.work;
  planner::PlanEffort effort;
  effort.should_stop = [&] { return is_ending_.load() || work.is_cancelled_.load(); };
  effort.on_better = [&](const planner::StepPlan& plan) {
    const std::lock_guard lock(work.mutex_);
    work.news_.plan = plan;
  };
  std::string failure;
  try {
    const Order& order = task.order;
    if (work.is_cancelled_.load()) return;
    if (order.recomputes) {
      planner::plan_step(order.tape, order.limits, effort);
    } else {
      effort.on_better(planner::plan_with_replays(order.tape, {}, order.limits));
    }
  } catch (const Error& error) {
    failure = error.what();
  }
  const std::lock_guard lock(work.mutex_);
  work.news_.is_final = true;
  work.news_.failure = failure;
}

}  // namespace spillway::runtime
