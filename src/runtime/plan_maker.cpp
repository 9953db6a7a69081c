#include "plan_maker.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"

namespace spillway::runtime {

namespace {

// Of processor time, for one plan in the background: what a longer search still finds is little.
constexpr double kMostSeconds = 10.0;
// While a step waits for its plan, the search goes through this part of what it would otherwise.
constexpr std::size_t kHastyPart = 10;

double processor_seconds_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A sixty-eighth of the share that a thread of the trainer gets where both want one processor.
constexpr int kLowestPriority = 19;

}  // namespace

PlanWork::News PlanWork::take(Duration patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return has_plan_ || news_.is_final; });
  News news = std::move(news_);
  news_ = {std::nullopt, news.is_final, {}};
  return news;
}

bool PlanWork::put(const planner::StepPlan& plan) {
  // Copied and destroyed without the mutex, which the trainer asks for: this thread may run at the
  // lowest priority.
  std::optional<planner::StepPlan> better(plan);
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    std::swap(news_.plan, better);
    is_first = !std::exchange(has_plan_, true);
  }
  changed_.notify_all();
  return is_first;
}

void PlanWork::end(std::string failure) {
  {
    const std::lock_guard lock(mutex_);
    news_.is_final = true;
    news_.failure = std::move(failure);
  }
  changed_.notify_all();
}

PlanMaker::PlanMaker(const PlanningOptions& options) : planning_(options) {}

PlanMaker::~PlanMaker() {
  planning_.is_ending.store(true);
  for (Task& task : tasks_) task.thread.join();
}

std::shared_ptr<PlanWork> PlanMaker::order(Order order) {
  auto work = std::make_shared<PlanWork>();
  if (planning_.options.moment == PlanningMoment::kAtOnce) {
    planning_.make(order, *work);
    return work;
  }
  join_finished();
  try {
    begin(std::move(order), work);
  } catch (const std::exception& error) {
    work->end(message("no thread could be started to plan it ({})", error.what()));
  }
  return work;
}

void PlanMaker::begin(Order order, const std::shared_ptr<PlanWork>& work) {
  tasks_.reserve(tasks_.size() + 1);
  const SignalsBlocked blocked;
  tasks_.push_back({std::thread([this, work, order = std::move(order)] {
                      ::pthread_setname_np(::pthread_self(), "spillway-plan");
                      planning_.make(order, *work);
                    }),
                    work});
}

void PlanMaker::join_finished() {
  std::erase_if(tasks_, [](Task& task) {
    {
      const std::lock_guard lock(task.work->mutex_);
      if (!task.work->news_.is_final) return false;
    }
    task.thread.join();
    return true;
  });
}

void PlanMaker::Planning::search(const Order& order, const planner::PlanEffort& effort) {
  if (options.strategy != nullptr) {
    const planner::StepPlan plan =
        options.strategy->plan(order.tape, order.limits, effort.should_stop);
    if (!options.recomputes && !plan.replays.empty())
      throw PlanError("strategy {} runs {} operators again, which --recompute off forbids",
                      options.strategy->name, plan.replays.size());
    effort.on_better(plan);
  } else if (options.recomputes) {
    planner::SwapLimits limits = order.limits;
    if (options.moment == PlanningMoment::kAtOnce) limits.refinement_ops /= kHastyPart;
    planner::plan_step(order.tape, limits, effort);
  } else {
    effort.on_better(planner::plan_with_replays(order.tape, {}, order.limits, effort.should_stop));
  }
}

planner::PlanEffort PlanMaker::Planning::effort_for(PlanWork& work) const {
  planner::PlanEffort effort;
  // Not by the clock where steps wait: equal times of operators are to give equal plans.
  if (options.moment == PlanningMoment::kInBackground)
    effort.should_stop = [this, &work, start = processor_seconds_of_thread()] {
      return is_ending.load() || work.is_cancelled_.load() ||
             processor_seconds_of_thread() - start > kMostSeconds;
    };
  effort.on_better = [this, &work](const planner::StepPlan& plan) {
    const bool is_first = work.put(plan);
    // Of this thread only, as Linux has it. What is left to win can wait.
    if (is_first && options.moment == PlanningMoment::kInBackground)
      static_cast<void>(
          ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowestPriority));
  };
  return effort;
}

void PlanMaker::Planning::make(const Order& order, PlanWork& work) noexcept {
  try {
    search(order, effort_for(work));
    work.end({});
  } catch (const std::exception& error) {
    work.end(error.what());
  }
}

}  // namespace spillway::runtime
