#include "planning/job_comparison.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "planning/job_report.h"
#include "progress_line.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/machine/machine_search.h"
#include "spillway/planner/machine/machine_share.h"

namespace spillway::cli {

using cluster::Cluster;
using job::JobAttempt;
using job::JobChoice;
using job::JobRequest;
using machine::MachineAttempt;
using partition::Partitioner;

namespace {

/// Step time of a plan on a machine whose links its ranks share.
struct MachineStep {
  double step_seconds = 0.0;
  cluster::SwapTarget swap_target = cluster::SwapTarget::kHost;
};

/// One row of a comparison.
struct ComparedJob {
  job::JobAttempt attempt;
  double search_seconds = 0.0;
  std::optional<MachineStep> on_machine{};  ///< Step of a plan that was simulated there.

  /// What rows are put in order by.
  double step_seconds() const {
    return on_machine ? on_machine->step_seconds : attempt.step_seconds;
  }
};

struct JobComparison {
  std::uint32_t data_parallel = 1;  ///< Data-parallel replicas of all rows.
  std::vector<ComparedJob> rows;    ///< Fastest first, those that are refused last.
  /// One more row: of any number of data-parallel replicas, if none is named.
  bool has_best = false;

  bool is_best(std::size_t row) const { return has_best && row + 1 == rows.size(); }
  bool has_plan() const { return rows.front().attempt.is_possible(); }
};

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
  const job::PlanSize& size = attempt.size;
  return size.replicas == 1 && size.stages * size.data_parallel == ranks;
}

class Comparison {
 public:
  Comparison(JobRequest request, const std::optional<Cluster>& machine, const Clock& clock)
      : request_(std::move(request)), machine_(machine), clock_(clock), progress_(clock) {}

  JobComparison run() {
    const JobRequest asked = request_;
    const Partitioner& partitioner = partition::partitioner_named(asked.partitioner);
    std::set<std::uint32_t> data_parallel;  // As few as possible.
    for (const JobChoice& choice : job::job_choices(asked))
      data_parallel.insert(choice.data_parallel);
    JobComparison compared;
    for (const std::uint32_t count : data_parallel) {
      compared.data_parallel = request_.data_parallel = count;
      request_.cut_effort = job::kFirstLook;
      request_.cut_effort = job::useful_cuts(with_times_of_machine());
      compared.rows = schedules(partitioner);
      if (compared.has_plan()) break;
    }
    request_.cut_effort = asked.cut_effort;
    for (const JobChoice& choice : choices_of_partitioners(compared.rows)) {
      row_of(choice, compared.rows) = made(partitioner, choice).row;
      for (const Partitioner& each : partition::partitioners())
        if (each.name != partitioner.name) compared.rows.push_back(made(each, choice).row);
    }
    std::stable_sort(compared.rows.begin(), compared.rows.end(), is_shown_before);
    // Whose refusal says what would do, where no row has a plan.
    if (data_parallel.size() > 1 || !compared.has_plan())
      add_best_of_any_data_parallel(asked, compared);
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
    job::CandidateList candidates(request);
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

  /// Of each schedule the better one, as `job::best_of_each` has it.
  static void keep_better(std::vector<Made>& best, Made tried) {
    const auto known = std::find_if(best.begin(), best.end(), [&](const Made& other) {
      return other.row.attempt.schedule == tried.row.attempt.schedule;
    });
    if (known == best.end())
      best.push_back(std::move(tried));
    else if (job::is_better(tried.row.attempt, known->row.attempt))
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
                           job::schedule_text(choice.generator->name, choice.variant),
                           partitioner.name));
    const TimePoint begin = clock_.now();
    Made tried;
    if (machine_) {
      tried.on_machine = machine::try_choice_on(request_, *machine_, partitioner, choice);
      tried.row.attempt = tried.on_machine.attempt;
    } else {
      job::PlanMemo memo;
      tried.row.attempt = job::attempt_of(request_, partitioner, choice,
                                          job::plan_choice(request_, partitioner, choice, memo));
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
    const cluster::JobTiming timing =
        cluster::simulate_job(machine::job_of(plan.plan, plan.swap_target), *machine_);
    row.search_seconds += seconds(clock_.now() - begin);
    row.on_machine = MachineStep{timing.step_seconds, plan.swap_target};
  }

  void add_best_of_any_data_parallel(const JobRequest& asked, JobComparison& compared) {
    const TimePoint begin = clock_.now();
    const job::ShowChoice show = [&](const JobChoice& choice, Bytes) {
      progress_.show(message("{} in {}", job::schedule_text(choice.generator->name, choice.variant),
                             counted(choice.data_parallel, "data-parallel replica")));
    };
    ComparedJob best;
    if (machine_) {
      const auto found = machine::search_job_on(asked, *machine_, show);
      if (!found) return require_plan(compared, found.refusal());
      best.attempt = job::figures_of(found->search.plan);
      best.on_machine = MachineStep{found->timing.step_seconds, found->swap_target};
    } else {
      const auto found = job::search_job(asked, show);
      if (!found) return require_plan(compared, found.refusal());
      best.attempt = job::figures_of(found->plan);
    }
    best.search_seconds = seconds(clock_.now() - begin);
    compared.rows.push_back(std::move(best));
    compared.has_best = true;
  }

  /// A table without a plan is as little help as no table.
  static void require_plan(const JobComparison& compared, const job::Refusal& refusal) {
    if (!compared.has_plan()) raise(refusal);
  }

  /// For the bounds.
  JobRequest with_times_of_machine() const {
    if (!machine_) return request_;
    return machine::request_on(request_, *machine_, std::max(1U, request_.data_parallel),
                               cluster::SwapTarget::kHost);
  }

  JobRequest request_;  ///< With the data-parallel replicas that are being compared.
  const std::optional<Cluster>& machine_;
  const Clock& clock_;
  ProgressLine progress_;
};

JobRequest with_data_parallel(JobRequest request, std::uint32_t data_parallel) {
  request.data_parallel = data_parallel;
  return request;
}

/// What the rows have in common.
std::string pipelines_text(const JobRequest& request, const JobComparison& compared) {
  const std::uint32_t ranks = request.ranks / compared.data_parallel;
  std::string text = compared.data_parallel == 1
                         ? message("one pipeline over all {}", counted(ranks, "rank"))
                         : message("{} data-parallel replicas of {}", compared.data_parallel,
                                   counted(ranks, "rank"));
  if (!compared.has_best) return text;
  if (compared.data_parallel > 1) text += ", since no longer pipeline works";
  return text + "; the last row is the best with any number of data-parallel replicas";
}

/// Those of the attempts, with the step on the machine behind the step by links of its own.
Table compared_table(const JobRequest& request, const JobComparison& compared,
                     std::span<const JobAttempt> attempts) {
  const std::vector<ComparedJob>& rows = compared.rows;
  const auto shared = [&](std::size_t i) -> std::optional<Figure> {
    if (!rows[i].on_machine) return std::nullopt;
    const auto& [step_seconds, swap_target] = *rows[i].on_machine;
    return Figure{
        seconds_text(step_seconds),
        {{"step_seconds", step_seconds}, {"swaps_to", name_in(kSwapTargets, swap_target)}}};
  };
  const auto target = [&](std::size_t i) -> std::optional<Figure> {
    if (!rows[i].on_machine) return std::nullopt;
    return name_in(kSwapTargets, rows[i].on_machine->swap_target);
  };
  const auto bound = [&](std::size_t i) {
    return Figure::duration(job::job_bound(
        compared.is_best(i) ? request : with_data_parallel(request, compared.data_parallel)));
  };
  const auto is_best = [&](std::size_t i) { return compared.is_best(i); };
  Table table = attempt_table(attempts);
  table.columns.insert(
      table.columns.end(),
      {{"shared", "machine", shared},
       {"swaps to", "", target},
       {"", "bound", bound},
       {"", "has_any_data_parallel", is_best},
       {"planned", "search_seconds", of(rows, &ComparedJob::search_seconds, Figure::duration)}});
  return table;
}

/// `machine`: on which the rows were run; empty without one, where swaps go to `target`.
std::string comparison_text(const JobRequest& request, const std::string& path,
                            cluster::SwapTarget target, const JobComparison& compared,
                            std::span<const JobAttempt> attempts, const std::string& machine) {
  std::string text = request_text(
      request, path,
      machine.empty() ? links_text(request, target, machine)
                      : message("step: those that {} leaves a rank; shared: on the machine, where "
                                "ranks share them",
                                machine));
  text += line("bound", "{}: no plan is faster on pipelines like these",
               seconds_text(job::job_bound(with_data_parallel(request, compared.data_parallel))));
  text += line("compared", pipelines_text(request, compared));
  std::vector<std::string_view> titles{"schedule", "partitioner", "data-parallel", "micro-batches",
                                       "step"};
  if (!machine.empty()) titles.emplace_back("shared");
  titles.insert(titles.end(), {"bubble", "waits", "gap", "peak"});
  if (!machine.empty()) titles.emplace_back("swaps to");
  titles.emplace_back("planned");
  text += '\n';
  text += table_text(compared_table(request, compared, attempts), titles, kAllRows);
  std::vector<NoPlan> refused;
  for (const JobAttempt& each : attempts)
    if (!each.is_possible())
      refused.push_back({each.schedule, message(" with {}", each.partitioner), each.refusal});
  return refused.empty() ? text : text + '\n' + reasons_text(refused);
}

}  // namespace

void compare_jobs(const JobOptions& options, JobRequest request,
                  const std::optional<Cluster>& machine, std::ostream& out, const Clock& clock) {
  const JobComparison compared = Comparison(request, machine, clock).run();
  // One bound for all rows, whatever data-parallel replicas they have.
  if (machine)
    request =
        machine::request_on(request, *machine, compared.data_parallel, cluster::SwapTarget::kHost);
  std::vector<JobAttempt> attempts;
  for (const ComparedJob& row : compared.rows) attempts.push_back(row.attempt);
  if (options.json)
    out << json_text(table_json(compared_table(request, compared, attempts)));
  else
    out << comparison_text(
        request, options.profile,
        options.rates.swaps_to_disks() ? cluster::SwapTarget::kDisk : cluster::SwapTarget::kHost,
        compared, attempts, machine ? machine->name : "");
}

}  // namespace spillway::cli
