#include "cut_trials.h"

#include <algorithm>
#include <utility>

#include "job_choices.h"
#include "job_memory_reduction.h"

namespace spillway::planner {
namespace {

constexpr std::uint64_t kMostPassesAgain = 2048;

/// Whether other cuts may help, by what the first ones say.
bool may_win(const JobAttempt& attempt, double best) {
  if (!attempt.is_possible()) return attempt.missing > Bytes(0);
  return is_faster(attempt.step_seconds / kMostGainOfCuts, best);
}

/// Plans first, the fastest of them before others; then what lacks the least memory.
bool is_likelier(const JobAttempt& a, const JobAttempt& b) {
  if (a.is_possible() != b.is_possible()) return a.is_possible();
  return a.is_possible() ? a.step_seconds < b.step_seconds : a.missing < b.missing;
}

}  // namespace

void try_all_cuts(const JobRequest& request, const Partitioner& partitioner, PlanMemo& memo,
                  std::vector<JobAttempt>& attempts, std::optional<JobPlan>& best) {
  if (partitioner.reading != Reading::kOurs) return;
  JobRequest thorough = request;
  thorough.cut_effort = CutEffort::kAll;
  std::vector<JobAttempt> likeliest = attempts;
  std::stable_sort(likeliest.begin(), likeliest.end(), is_likelier);
  std::uint64_t passes = 0;
  for (const JobAttempt& attempt : likeliest) {
    const double seconds = best ? best->step_seconds : kNoTime;
    if (!may_win(attempt, seconds)) continue;
    JobChoice choice = attempt.choice;
    const std::uint64_t own = passes_of(request, choice);
    if (own > kMostPassesAgain - passes) continue;
    passes += own;
    choice.incumbent = {seconds, seconds, seconds};
    std::optional<JobPlan> found;
    const JobAttempt again = try_choice(thorough, partitioner, choice, memo, found);
    if (!found || !is_faster(again.step_seconds, seconds)) continue;
    attempts.push_back(again);
    best = std::move(found);
  }
}

}  // namespace spillway::planner
