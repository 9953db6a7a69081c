#include "trial_record.h"

#include <algorithm>
#include <utility>

namespace spillway::planner {

void TrialRecord::add(const JobChoice& choice, JobAttempt made) {
  if (made.is_possible()) best_seconds_ = std::min(best_seconds_, made.step_seconds);
  attempts_.push_back(std::move(made));
  choices_.push_back(choice);
}

double TrialRecord::best_seconds_of(const ScheduleGenerator& generator) const {
  double best = kNoTime;
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (choices_[i].generator == &generator && attempts_[i].is_possible())
      best = std::min(best, attempts_[i].step_seconds);
  return best;
}

const JobAttempt* TrialRecord::known(const JobChoice& choice) const {
  const std::string variant = to_string(choice.variant);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const JobChoice& other = choices_[i];
    // What was left open may have become just this.
    const bool is_same = other.variant == choice.variant || attempts_[i].variant == variant;
    if (is_same && other.generator == choice.generator &&
        other.data_parallel == choice.data_parallel && other.micro_batches == choice.micro_batches)
      return &attempts_[i];
  }
  return nullptr;
}

std::vector<JobChoice> TrialRecord::fastest_of_each() const {
  std::vector<std::size_t> best = best_of_each(attempts_);
  std::erase_if(best, [&](std::size_t each) { return !attempts_[each].is_possible(); });
  std::stable_sort(best.begin(), best.end(), [&](std::size_t a, std::size_t b) {
    return attempts_[a].step_seconds < attempts_[b].step_seconds;
  });
  std::vector<JobChoice> choices;
  for (const std::size_t each : best) choices.push_back(choices_[each]);
  return choices;
}

std::vector<std::uint32_t> TrialRecord::data_parallel_by_time() const {
  std::vector<std::pair<double, std::uint32_t>> best;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const auto same = std::find_if(best.begin(), best.end(), [&](const auto& other) {
      return other.second == choices_[i].data_parallel;
    });
    const double seconds = attempts_[i].is_possible() ? attempts_[i].step_seconds : kNoTime;
    if (same == best.end())
      best.emplace_back(seconds, choices_[i].data_parallel);
    else
      same->first = std::min(same->first, seconds);
  }
  std::sort(best.begin(), best.end());  // Of equals the fewest.
  std::vector<std::uint32_t> data_parallel;
  for (const auto& each : best) data_parallel.push_back(each.second);
  return data_parallel;
}

}  // namespace spillway::planner
