#include "plan_maker.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <exception>
#include <system_error>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::runtime {

namespace {

// Of processor time, for one plan in the background: what a longer search still finds is little.
constexpr double kMostSeconds = 10.0;
// A search that rests sees that late that nobody wants its plan any more.
constexpr Duration kLongestSleep = std::chrono::milliseconds(20);
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

PlanMaker::Pace PlanMaker::real_pace() {
  return {std::make_shared<SteadyClock>(), &processor_seconds_of_thread,
          [](Duration time) { std::this_thread::sleep_for(time); }};
}

PlanMaker::PlanMaker(const PlanningOptions& options, Pace pace)
    : planning_(options, std::move(pace)) {}

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
  } catch (const std::system_error&) {
    work->end(message("no thread could be started to plan it: {}", memory::why_no_thread()));
  } catch (const std::exception& error) {
    work->end(message("no plan could be ordered ({})", error.what()));
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
      throw PlanError("strategy {} runs {} again, which --recompute off forbids",
                      options.strategy->name, counted(plan.replays.size(), "operator"));
    effort.on_better(plan);
  } else if (options.recomputes) {
    planner::SwapLimits limits = order.limits;
    if (options.moment == PlanningMoment::kAtOnce) limits.refinement_ops /= kHastyPart;
    planner::plan_step(order.tape, limits, effort);
  } else {
    effort.on_better(planner::plan_with_replays(order.tape, {}, order.limits, effort.should_stop));
  }
}

/// One search on its thread: how urgent it is, and when it ends.
class PlanMaker::Planning::Search {
 public:
  Search(Planning& planning, const Order& order, PlanWork& work)
      : planning_(planning), order_(order), work_(work) {
    // A strategy by name has one plan, at its end: the user has asked for just that one.
    if (!order.is_urgent && planning.options.strategy == nullptr) calm_down();
  }

  planner::PlanEffort effort() {
    return {.should_stop = [this] { return should_stop(); },
            .on_better =
                [this](const planner::StepPlan& plan) {
                  if (work_.put(plan)) calm_down();
                },
            .known = order_.known ? &*order_.known : nullptr};
  }

 private:
  /// What is left to win can wait.
  void calm_down() {
    if (std::exchange(is_calm_, true)) return;
    // Of this thread only, as Linux has it.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowestPriority));
    counted_ = used();
  }

  double used() const { return planning_.pace.processor_seconds(); }

  bool is_over() const {
    return planning_.is_ending.load() || work_.is_cancelled_.load() ||
           used() - start_ > kMostSeconds;
  }

  bool should_stop() {
    if (is_calm_) rest();
    return is_over();
  }

  void rest() {
    const double now = used();
    const double since = now - std::exchange(counted_, now);
    Duration left = planning_.share.rest_after(Duration(std::llround(1e9 * since)));
    for (; left > Duration(0) && !is_over(); left -= kLongestSleep)
      planning_.pace.rest(std::min(left, kLongestSleep));
  }

  Planning& planning_;
  const Order& order_;
  PlanWork& work_;
  const double start_ = used();
  double counted_ = start_;
  bool is_calm_ = false;
};

void PlanMaker::Planning::make(const Order& order, PlanWork& work) noexcept {
  try {
    if (options.moment == PlanningMoment::kAtOnce) {
      // Not by the clock where steps wait: equal times of operators are to give equal plans, first
      // ones and, from equal ones before, renewed ones.
      search(order, {.should_stop = {},
                     .on_better = [&work](const planner::StepPlan& plan) { work.put(plan); },
                     .known = order.known ? &*order.known : nullptr});
    } else {
      Search running(*this, order, work);
      search(order, running.effort());
    }
    work.end({});
  } catch (const std::exception& error) {
    work.end(error.what());
  }
}

}  // namespace spillway::runtime
