#include "program_steps.h"

#include <ATen/Parallel.h>
#include <signal.h>

#include <exception>
#include <utility>

#include "absent_reads.h"
#include "first_rank.h"
#include "spillway/base/log.h"
#include "spillway/runtime/endings.h"

namespace spillway::split {

ProgramSteps::ProgramSteps(runtime::Runtime& runtime, RuntimeOfGpu runtime_of_gpu,
                           transport::Transport& transport, pipeline::Job& job,
                           pipeline::Ownership& ownership, Executor& executor, ActionLists& lists,
                           const ReplicatedOperators& replicated, GradientMeans* means)
    : runtime_(runtime),
      runtime_of_gpu_(runtime_of_gpu),
      transport_(transport),
      job_(job),
      ownership_(ownership),
      executor_(executor),
      lists_(lists),
      replicated_(replicated),
      means_(means),
      signals_(transport, job) {}

void ProgramSteps::rebalance(const std::vector<std::string>& hosts, std::vector<double> in_flight) {
  rebalancing_.emplace(transport_, job_, hosts, ownership_.placement(), std::move(in_flight),
                       runtime_);
}

/// Its budgets are those of the model, and its moments tell what operators take.
void ProgramSteps::measure_on_gpu() {
  runtime::Runtime* const gpu = runtime_of_gpu_();
  if (gpu != nullptr) executor_.unit_times().measure(*gpu);
  const Bytes budget = gpu != nullptr ? gpu->budget() : Bytes();
  or_end([&] { rebalancing_->train_on_gpus(count_, budget); });
}

void ProgramSteps::end() {
  lists_.end_step();
  job_.compare();
  keep_watching_absent_reads();
  if (count_++ == 0 && transport_.rank() == kFirst)
    for (const std::string& text : replicated_.unmatched()) log_warning("{}", text);
  is_between_ = true;
  runtime_.step_updated();
  if (runtime::Runtime* const gpu = runtime_of_gpu_()) gpu->step_updated();
}

void ProgramSteps::begin(bool uses_gpu) {
  if (!is_between_) end();
  // Operators that all ranks compute add up in another order.
  job_.control().begin_call("the begin of a step");
  job_.control().add(static_cast<std::uint64_t>(at::get_num_threads()));
  job_.control().end_call();
  keep_watching_absent_reads();
  if (count_ == 1) look_at_signal();
  is_between_ = false;
  if (means_ != nullptr) means_->begin_step(count_);
  const std::size_t units = ownership_.units().count();
  const bool rebalances = rebalancing_ && units > 0;
  if (rebalances && uses_gpu && !rebalancing_->times_come_late()) measure_on_gpu();
  // Before the executor measures: the first rank expects that from here on.
  if (rebalances)
    or_end([&] {
      if (const auto cuts = rebalancing_->begin_step(count_, ownership_)) ownership_.recut(*cuts);
    });
  const auto timed = rebalances && rebalancing_->times_come_late() ? UnitTimes::Step::kTheOneBefore
                                                                   : UnitTimes::Step::kThatEnds;
  executor_.add_barrier(count_ + 1, [this, units, rebalances, timed, step = count_] {
    if (runtime::Runtime* const gpu = runtime_of_gpu_()) gpu->step_boundary();
    runtime_.step_boundary();
    if (rebalances) rebalancing_->measured(step, executor_.unit_times().end_step(units, timed));
  });
  // Shards are at different steps.
  if (means_ == nullptr) or_end([&] { signals_.begin_step(count_); });
}

/// The programs of other ranks go on.
template <typename Act>
void ProgramSteps::or_end(const Act& act) {
  try {
    act();
  } catch (const std::exception& error) {
    job_.abort(error.what());
  }
}

/// By now the program has set up what it wants.
void ProgramSteps::look_at_signal() const {
  if (transport_.rank() == kFirst && log_enabled(LogLevel::kWarning) &&
      !runtime::is_answered(SIGUSR2))
    log_line(LogLevel::kInfo,
             "the program takes SIGUSR2 for itself, which would else tell what each "
             "rank does: that is told only where a rank does not answer");
}

runtime::LayerMoves ProgramSteps::layer_moves() const {
  return rebalancing_ ? rebalancing_->moves() : runtime::LayerMoves();
}

}  // namespace spillway::split
