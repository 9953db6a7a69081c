#include "planning/job_comparison.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "planning/progress_line.h"
#include "spillway/base/error.h"
#include "spillway/planner/machine/machine_search.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::cli {

using planner::Cluster;
using planner::JobChoice;
using planner::JobPlan;
using planner::JobRequest;
using planner::MachineAttempt;
using planner::Partitioner;

namespace {

class Comparison {
 public:
  Comparison(const JobRequest& request, const std::optional<Cluster>& machine, const Clock& clock)
      : request_(request), machine_(machine), clock_(clock) {}

  std::vector<ComparedJob> run() {
    const Partitioner& asked = planner::partitioner_named(request_.partitioner);
    std::vector<ComparedJob> rows = schedules(asked);
    if (best_) {
      const JobChoice choice = planner::choice_of(*best_);
      for (const Partitioner& each : planner::partitioners()) {
        if (each.name == asked.name) continue;
        MachineAttempt made;
        rows.push_back(planned(each, choice, made));
        run_on_machine(made, rows.back());
      }
    }
    progress_.clear();
    sort_fastest_first(rows);
    return rows;
  }

 private:
  /// Each as it is fastest, and the fastest of all as `best_`.
  std::vector<ComparedJob> schedules(const Partitioner& asked) {
    std::vector<ComparedJob> rows;
    std::map<std::string, MachineAttempt> fastest;  // By schedule.
    planner::try_choices(with_times_of_machine(), [&](const JobChoice& choice) {
      MachineAttempt made;
      rows.push_back(planned(asked, choice, made));
      if (machine_ && made.attempt.is_possible()) keep_faster(fastest, std::move(made));
      return rows.back().attempt;
    });
    rows = fastest_of_each(rows);
    if (!machine_) return rows;
    for (ComparedJob& row : rows)
      if (row.attempt.is_possible()) run_on_machine(fastest.at(row.attempt.schedule), row);
    sort_fastest_first(rows);
    if (!rows.empty() && rows.front().attempt.is_possible())
      best_ = std::move(fastest.at(rows.front().attempt.schedule).plan);
    return rows;
  }

  /// By links of its own for each rank. With a machine `made` is the plan, else `best_` may be.
  ComparedJob planned(const Partitioner& partitioner, const JobChoice& choice,
                      MachineAttempt& made) {
    progress_.show(message("{} with cuts by {}",
                           planner::schedule_text(choice.generator->name, choice.variant),
                           partitioner.name));
    const TimePoint begin = clock_.now();
    if (machine_)
      made = planner::try_choice_on(request_, *machine_, partitioner, choice);
    else
      made.attempt = planner::try_choice(request_, partitioner, choice, best_);
    return {made.attempt, seconds(clock_.now() - begin)};
  }

  void run_on_machine(const MachineAttempt& made, ComparedJob& row) {
    if (!machine_ || !row.attempt.is_possible()) return;
    progress_.show(message("{} with cuts by {} on {}", row.attempt.schedule,
                           row.attempt.partitioner, machine_->name));
    const TimePoint begin = clock_.now();
    const planner::JobTiming timing =
        planner::simulate_job(planner::job_of(made.plan, made.swap_target), *machine_);
    row.search_seconds += seconds(clock_.now() - begin);
    row.on_machine = MachineStep{timing.step_seconds, made.swap_target};
  }

  /// The one that `fastest_of_each` takes.
  static void keep_faster(std::map<std::string, MachineAttempt>& fastest, MachineAttempt made) {
    const std::string schedule = made.attempt.schedule;
    const auto known = fastest.find(schedule);
    if (known == fastest.end())
      fastest.emplace(schedule, std::move(made));
    else if (made.attempt.step_seconds < known->second.attempt.step_seconds)
      known->second = std::move(made);
  }

  /// For the bound.
  JobRequest with_times_of_machine() const {
    if (!machine_) return request_;
    return planner::request_on(request_, *machine_, std::max(1U, request_.groups),
                               planner::SwapTarget::kHost);
  }

  const JobRequest& request_;
  const std::optional<Cluster>& machine_;
  const Clock& clock_;
  ProgressLine progress_;
  std::optional<JobPlan> best_;
};

}  // namespace

std::vector<ComparedJob> compared_jobs(const JobRequest& request,
                                       const std::optional<Cluster>& machine, const Clock& clock) {
  return Comparison(request, machine, clock).run();
}

}  // namespace spillway::cli
