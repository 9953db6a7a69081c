// What happens when an operator does not fit: the run goes on, slowly, until the largest is known.

#include "runtime_parts.h"
#include "spillway/base/log.h"

namespace spillway::runtime {

namespace {

// Beyond this many times the budget an operator is not run to measure it: it would take hours.
constexpr std::uint64_t kSurveyReach = 2;
// Where no step begins: how often what was refused comes again, with nothing larger in between,
// before that is taken for the largest. Equal layers follow each other inside of a step too.
constexpr std::uint32_t kSurveyReturns = 24;

std::string in_mebibytes(Bytes size) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  return std::to_string((size.count() + kMebibyte - 1) / kMebibyte) + "MiB";
}

}  // namespace

void Runtime::start_survey(OpContext& op, const swap::NoRoomError& error) {
  const std::string name = name_of(op);
  const Bytes need = error.wanted + error.held;
  std::unique_lock lock(step_mutex_);
  if (survey_ != nullptr) return;
  survey_ = std::make_unique<Survey>(Survey{.first_op = name,
                                            .start = clock_.now(),
                                            .boundary = boundaries_,
                                            .signature = op.place(),
                                            .allocation = error.wanted.count()});
  // What is small is added where the result is told.
  const Bytes small = std::min(need, engine_->statistics().small_peak);
  note_need_locked(pages_of((need - small).count()), name);
  if (need.count() > kSurveyReach * options_.budget.count()) {
    lock.unlock();
    end_survey(Finding::kSoFar);
  }
  survey_->alarm = std::make_unique<Alarm>(2 * options_.survey_time, [this] {
    if (on_endless_survey) on_endless_survey();
  });
  surveying_.store(true);
  engine_->set_oversize(swap::Oversize::kPageThrough);
  lock.unlock();
  log_error("{} does not fit: it needs at least {}, the budget is {}. Running on slowly to the end "
            "of the step, to find the smallest budget that would do.",
            name, need, options_.budget);
}

/// What the largest operator so far needs, with all that is too small to leave, and a page to
/// spare.
Bytes Runtime::smallest_budget_locked(const swap::SwapStatistics& memory) const {
  return memory::kPageSize * (largest_need_pages_.load() + 1) + memory.small_peak;
}

std::string Runtime::survey_result_locked(const swap::SwapStatistics& memory,
                                          Finding finding) const {
  const std::string& name = survey_->first_op;
  return message(
      "{} does not fit into the budget of {}. smallest budget: {}{} (needed at once by {})", name,
      options_.budget, in_mebibytes(smallest_budget_locked(memory)),
      finding == Finding::kSoFar ? " or more" : "", largest_op_.empty() ? name : largest_op_);
}

void Runtime::end_survey(Finding finding) {
  const swap::SwapStatistics memory = engine_->statistics();
  std::string told;
  {
    // Not held by the exception: nobody may catch it, and the summary needs the mutex.
    std::lock_guard lock(step_mutex_);
    surveying_.store(false);
    engine_->set_oversize(swap::Oversize::kRefuse);
    if (survey_ != nullptr) {  // Else another thread was faster, and told it.
      survey_result_ = survey_result_locked(memory, finding);
      refuse_locked({RefusalCause::kBudget, survey_result_}, survey_->signature);
      survey_.reset();
      log_error("{}", survey_result_);
    }
    told = survey_result_;
  }
  throw BudgetError("Spillway: {}", told);
}

/// Ends the survey when nothing larger is to be expected. `allocation`: bytes that the trainer asks
/// for outside of operators; 0: an operator begins.
void Runtime::look_after_survey(const OpContext& op, std::size_t allocation) {
  bool is_over = false;
  {
    std::lock_guard lock(step_mutex_);
    if (survey_ == nullptr) return;
    Survey& survey = *survey_;
    const std::uint64_t largest = largest_need_pages_.load();
    if (largest > survey.largest_pages) {
      survey.largest_pages = largest;
      survey.returns = 0;
    }
    const bool returns = survey.signature != 0 ? allocation == 0 && op.signature == survey.signature
                                               : allocation != 0 && allocation == survey.allocation;
    if (returns) ++survey.returns;
    is_over = clock_.now() - survey.start > options_.survey_time;
    if (!is_over && survey.returns < kSurveyReturns) return;
  }
  end_survey(is_over ? Finding::kSoFar : Finding::kWhole);
}

void Runtime::finish(Ending ending) {
  const swap::SwapStatistics memory = engine_->statistics();
  std::lock_guard lock(step_mutex_);
  if (survey_ == nullptr) return;
  const bool is_whole = ending == Ending::kByItself;
  refusal_ = {RefusalCause::kBudget,
              survey_result_locked(memory, is_whole ? Finding::kWhole : Finding::kSoFar)};
  log_warning("{}: {}",
              is_whole ? "The program ran slowly to its end, with right results"
                       : "Stopped before the largest operator was known",
              refusal_.text);
}

}  // namespace spillway::runtime
