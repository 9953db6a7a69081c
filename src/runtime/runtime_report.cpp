// What the runtime tells of the run.

#include "last_uses.h"
#include "runtime_parts.h"
#include "shared_pages.h"
#include "spillway/base/median.h"
#include "spillway/runtime/recomputing/recomputer.h"
#include "spillway/runtime/recording/op_names.h"

namespace spillway::runtime {

std::optional<profile::ProgramNeeds> Runtime::program_needs() const {
  const swap::SwapStatistics memory = engine_->statistics();
  const std::lock_guard lock(step_mutex_);
  if (largest_need_pages_.load() == 0) return std::nullopt;
  return profile::ProgramNeeds{smallest_budget_locked(memory), op_kind(largest_op_),
                               is_largest_op_early_};
}

std::uint64_t Runtime::steps_locked() const {
  const std::uint64_t told = boundaries_ + (is_updated_ && !trainer_tells_steps_.load() ? 1 : 0);
  // Where nobody told where steps begin, the repetition of operators did.
  return told == 0 && guide_ != nullptr ? guide_->steps() : told;
}

/// Also while it has not begun.
bool Runtime::is_in_first_step_locked() const {
  return boundaries_ <= (trainer_tells_steps_.load() ? 1U : 0U) &&
         (guide_ == nullptr || guide_->steps() == 0);
}

RuntimeCounts Runtime::counts() const {
  RuntimeCounts counts{engine_->statistics(), ops_.load(), 0};
  const std::lock_guard lock(step_mutex_);
  counts.steps = steps_locked();
  return counts;
}

RuntimeReport Runtime::report(Duration patience) const {
  RuntimeReport report;
  report.memory = engine_->statistics();
  constexpr std::size_t kCausesTold = 5;
  report.stalls = stalls_.largest(kCausesTold);
  if (recomputer_ != nullptr) {
    const RecomputationCounts counts = recomputer_->counts();
    report.replays = counts.replays;
    report.unplanned_replays = counts.unplanned_replays;
    report.refused_drops = counts.refused_drops;
    report.replay_seconds = static_cast<double>(replay_ns_.load()) * 1e-9;
  }
  if (guide_ != nullptr) {
    auto learned = guide_->report(patience);
    if (!learned)
      report.not_reported =
          "what was learned of the steps, since it was in use at the end: a step was "
          "waiting for its plan, or an exception came there";
    report.learned = std::move(learned).value_or(LearnerReport());
  }
  report.sent_to_host = last_uses_->sent();
  std::lock_guard lock(step_mutex_);
  report.ops = ops_.load();
  report.intercept_seconds =
      static_cast<double>(sampled_intercept_ns_.load()) * kSampleEvery * 1e-9;
  report.steps = steps_locked();
  // A program that ends by itself, refused nothing, does so after its last step, which no boundary
  // follows. Others may end within the optimizer's update.
  const bool is_last_whole = has_ended_by_itself_ && is_updated_ && !is_refused_.load();
  report.has_whole_step = !is_in_first_step_locked() || is_last_whole;
  std::vector<float> times = step_seconds_;
  const bool are_told = boundaries_ > 0 || is_updated_;
  report.step_seconds_median = are_told ? median(times) : report.learned.step_seconds_median;
  report.shared_peak = shared_peak();
  report.plans_know_shared = learns_shared_;
  if (largest_need_pages_.load() > 0)
    report.smallest_budget = smallest_budget_locked(report.memory);
  report.largest_op = largest_op_;
  report.oversize = oversize_;
  report.refusal = refusal_;
  return report;
}

}  // namespace spillway::runtime
