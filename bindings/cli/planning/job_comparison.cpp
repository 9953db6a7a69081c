#include "planning/job_comparison.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/planner/machine/machine_search.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::cli {

using planner::Cluster;
using planner::JobAttempt;
using planner::JobChoice;
using planner::JobRequest;
using planner::MachineAttempt;
using planner::Partitioner;

namespace {

bool is_shown_before(const ComparedJob& a, const ComparedJob& b) {
  if (a.attempt.is_possible() != b.attempt.is_possible()) return a.attempt.is_possible();
  return a.attempt.is_possible() && a.step_seconds() < b.step_seconds();
}

/// What was tried, without what was to beat then.
JobChoice again(const JobAttempt& attempt) {
  const JobChoice& choice = attempt.choice;
  return {choice.generator, attempt.data_parallel, choice.variant, choice.micro_batches};
}

/// Whether each rank has one stage, and each stage one rank.
bool has_plain_stages(const JobAttempt& attempt, std::uint32_t ranks) {
  const auto [data_parallel, replicas, stages, actions] = attempt.work;
  return replicas == 1 && stages * data_parallel == ranks;
}

class Comparison {
 public:
  Comparison(JobRequest request, const std::optional<Cluster>& machine, const Clock& clock)
      : request_(std::move(request)), machine_(machine), clock_(clock) {}

  JobComparison run() {
    const JobRequest asked = request_;
    const Partitioner& partitioner = planner::partitioner_named(asked.partitioner);
    std::set<std::uint32_t> data_parallel;  // As few as possible.
    for (const JobChoice& choice : planner::job_choices(asked))
      data_parallel.insert(choice.data_parallel);
    JobComparison compared;
    for (const std::uint32_t count : data_parallel) {
      compared.data_parallel = request_.data_parallel = count;
      request_.cut_effort = planner::kFirstLook;
      compared.rows = schedules(partitioner);
      if (compared.rows.front().attempt.is_possible()) break;
    }
    request_.cut_effort = asked.cut_effort;
    for (const JobChoice& choice : choices_of_partitioners(compared.rows)) {
      row_of(choice, compared.rows) = made(partitioner, choice).row;
      for (const Partitioner& each : planner::partitioners())
        if (each.name != partitioner.name) compared.rows.push_back(made(each, choice).row);
    }
    std::stable_sort(compared.rows.begin(), compared.rows.end(), is_shown_before);
    if (data_parallel.size() > 1) compared.best = best_of_any_data_parallel(asked);
    progress_.clear();
    return compared;
  }

 private:
  struct Made {
    ComparedJob row;
    MachineAttempt on_machine{};  ///< With a machine alone.
  };

  /// Each as it is best.
  std::vector<ComparedJob> schedules(const Partitioner& partitioner) {
    std::vector<Made> best;
    const JobRequest request = with_times_of_machine();
    planner::CandidateList candidates(request);
    while (const std::optional<JobChoice> choice = candidates.next()) {
      Made tried = planned(partitioner, *choice);
      candidates.add(tried.row.attempt);
      if (!tried.row.attempt.is_given_up()) keep_better(best, std::move(tried));
    }
    std::vector<ComparedJob> rows;
    for (Made& each : best) {
      run_on_machine(each);
      rows.push_back(std::move(each.row));
    }
    std::stable_sort(rows.begin(), rows.end(), is_shown_before);
    return rows;
  }

  /// Of each schedule the better one, as `planner::best_of_each` has it.
  static void keep_better(std::vector<Made>& best, Made tried) {
    const auto known = std::find_if(best.begin(), best.end(), [&](const Made& other) {
      return other.row.attempt.schedule == tried.row.attempt.schedule;
    });
    if (known == best.end())
      best.push_back(std::move(tried));
    else if (planner::is_better(tried.row.attempt, known->row.attempt))
      *known = std::move(tried);
  }

  /// The fastest, and the fastest with plain stages, if that is another one.
  std::vector<JobChoice> choices_of_partitioners(const std::vector<ComparedJob>& rows) const {
    std::vector<JobChoice> choices;
    for (const ComparedJob& row : rows) {
      if (!row.attempt.is_possible()) break;
      const bool is_plain = has_plain_stages(row.attempt, request_.ranks);
      if (choices.empty() || is_plain) choices.push_back(again(row.attempt));
      if (is_plain) break;
    }
    return choices;
  }

  /// Of the partitioner that all schedules were tried with.
  static ComparedJob& row_of(const JobChoice& choice, std::vector<ComparedJob>& rows) {
    return *std::find_if(rows.begin(), rows.end(), [&](const ComparedJob& row) {
      return row.attempt.schedule == choice.generator->name;
    });
  }

  Made made(const Partitioner& partitioner, const JobChoice& choice) {
    Made tried = planned(partitioner, choice);
    run_on_machine(tried);
    return tried;
  }

  /// By links of its own for each rank.
  Made planned(const Partitioner& partitioner, const JobChoice& choice) {
    progress_.show(message("{} with cuts by {}",
                           planner::schedule_text(choice.generator->name, choice.variant),
                           partitioner.name));
    const TimePoint begin = clock_.now();
    Made tried;
    if (machine_) {
      tried.on_machine = planner::try_choice_on(request_, *machine_, partitioner, choice);
      tried.row.attempt = tried.on_machine.attempt;
    } else {
      planner::PlanMemo memo;
      tried.row.attempt = planner::attempt_of(
          request_, partitioner, choice, planner::plan_choice(request_, partitioner, choice, memo));
    }
    tried.row.search_seconds = seconds(clock_.now() - begin);
    return tried;
  }

  void run_on_machine(Made& tried) {
    ComparedJob& row = tried.row;
    if (!machine_ || !row.attempt.is_possible()) return;
    progress_.show(message("{} with cuts by {} on {}", row.attempt.schedule,
                           row.attempt.partitioner, machine_->name));
    const TimePoint begin = clock_.now();
    const MachineAttempt& plan = tried.on_machine;
    const planner::JobTiming timing =
        planner::simulate_job(planner::job_of(plan.plan, plan.swap_target), *machine_);
    row.search_seconds += seconds(clock_.now() - begin);
    row.on_machine = MachineStep{timing.step_seconds, plan.swap_target};
  }

  std::optional<ComparedJob> best_of_any_data_parallel(const JobRequest& asked) {
    const TimePoint begin = clock_.now();
    const planner::ShowChoice show = [&](const JobChoice& choice) {
      progress_.show(message("{} in {} data-parallel replicas",
                             planner::schedule_text(choice.generator->name, choice.variant),
                             choice.data_parallel));
    };
    ComparedJob best;
    // The rows say why there is none.
    if (machine_) {
      const auto found = planner::search_job_on(asked, *machine_, show);
      if (!found) return std::nullopt;
      best.attempt = planner::figures_of(found->search.plan);
      best.on_machine = MachineStep{found->timing.step_seconds, found->swap_target};
    } else {
      const auto found = planner::search_job(asked, show);
      if (!found) return std::nullopt;
      best.attempt = planner::figures_of(found->plan);
    }
    best.search_seconds = seconds(clock_.now() - begin);
    return best;
  }

  /// For the bound.
  JobRequest with_times_of_machine() const {
    if (!machine_) return request_;
    return planner::request_on(request_, *machine_, std::max(1U, request_.data_parallel),
                               planner::SwapTarget::kHost);
  }

  JobRequest request_;  ///< With the data-parallel replicas that are being compared.
  const std::optional<Cluster>& machine_;
  const Clock& clock_;
  ProgressLine progress_;
};

}  // namespace

JobComparison compared_jobs(const JobRequest& request, const std::optional<Cluster>& machine,
                            const Clock& clock) {
  return Comparison(request, machine, clock).run();
}

}  // namespace spillway::cli
