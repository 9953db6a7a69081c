#include "planning/job_command.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exit_codes.h"
#include "planning/check_command.h"
#include "planning/cost_command.h"
#include "planning/job_contradictions.h"
#include "planning/job_json.h"
#include "planning/job_picture.h"
#include "planning/job_report.h"
#include "planning/plan_report.h"
#include "planning/progress_line.h"
#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/transfer_rate.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::JobAttempt;
using planner::JobChoice;
using planner::JobRequest;
using planner::Partitioner;

namespace {

double rate_in(const char* option, const std::string& text) {
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end)
    throw ConfigError("{}: '{}' is no number (GB/s)", option, shown_text(text));
  if (const std::string problem = rate_problem(option, value * 1e9); !problem.empty())
    throw ConfigError("{}", problem);
  return value * 1e9;
}

/// The slower direction of the link to the host while both are busy; 0 where none is named.
double swap_rate(const RateWords& words, const profile::StepProfile& profile) {
  RateWords link = words;
  link.host_memory.clear();
  if ((link.link_out + link.link_in + link.duplex + link.rates + link.nvme).empty()) return 0.0;
  const profile::TransferRates rates = choose_rates(link, profile).rates;
  return std::min(rates.write_bytes_per_second, rates.read_bytes_per_second) * rates.duplex_share;
}

JobRequest request_of(const PlanWords& words, const profile::StepProfile& profile) {
  const JobWords& job = words.job;
  JobRequest request;
  request.ranks = ranks_in(job);
  request.micro_batches = request.ranks;
  if (!job.micro_batches.empty())
    request.micro_batches =
        count_in("--micro-batches", job.micro_batches, 1, planner::kMostRanksOfJob);
  if (!job.groups.empty())
    request.groups = count_in("--groups", job.groups, 1, planner::kMostRanksOfJob);
  if (!job.schedule.empty()) request.schedule = job.schedule;
  if (!job.partitioner.empty()) request.partitioner = job.partitioner;
  if (!job.device_memory.empty())
    request.device_memory = size_in("--device-memory", job.device_memory);
  if (!job.link.empty()) request.link.bytes_per_second = rate_in("--link", job.link);
  const RateWords& rates = words.common.rates;
  request.swap_bytes_per_second = swap_rate(rates, profile);
  if (!rates.host_memory.empty()) {
    if (request.swap_bytes_per_second == 0.0)
      throw ConfigError("--host-memory {} is for what is swapped, and no link to the host is named "
                        "(add --link-out and --link-in)",
                        rates.host_memory);
    request.host_memory = size_in("--host-memory", rates.host_memory);
  }
  planner::MeasuredModel model = planner::measured_model(profile);
  request.chain = std::move(model.chain);
  request.update_seconds = model.update_seconds;
  request.reserved = model.reserved;
  check(request);
  return request;
}

/// Every schedule with the partitioner that is asked for, then every partitioner with the best of
/// these.
std::vector<ComparedJob> compare(const JobRequest& request, const Clock& clock) {
  std::vector<ComparedJob> rows;
  planner::JobPlan best;
  bool has_best = false;
  ProgressLine progress;
  const auto attempt = [&](const Partitioner& partitioner, const JobChoice& choice) {
    progress.show(message("{} with cuts by {}", choice.generator->name, partitioner.name));
    const TimePoint begin = clock.now();
    JobAttempt tried = planner::try_choice(request, partitioner, choice, best, has_best);
    return ComparedJob{std::move(tried), seconds(clock.now() - begin)};
  };
  const Partitioner& asked = planner::partitioner_named(request.partitioner);
  for (const JobChoice& choice : planner::job_choices(request)) {
    ComparedJob row = attempt(asked, choice);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const ComparedJob& other) {
      return other.attempt.schedule == row.attempt.schedule;
    });
    if (same == rows.end())
      rows.push_back(std::move(row));
    else if (row.attempt.is_possible() && (!same->attempt.is_possible() ||
                                           row.attempt.step_seconds < same->attempt.step_seconds))
      *same = std::move(row);
  }
  if (has_best) {
    const JobChoice choice{&planner::schedule_generator_named(best.schedule), best.groups};
    for (const Partitioner& each : planner::partitioners())
      if (each.name != asked.name) rows.push_back(attempt(each, choice));
  }
  progress.clear();
  std::stable_sort(rows.begin(), rows.end(), [](const ComparedJob& a, const ComparedJob& b) {
    if (a.attempt.is_possible() != b.attempt.is_possible()) return a.attempt.is_possible();
    return a.attempt.is_possible() && a.attempt.step_seconds < b.attempt.step_seconds;
  });
  return rows;
}

int compare_jobs(const PlanWords& words, const JobRequest& request, std::ostream& out,
                 const Clock& clock) {
  refuse_any({{"--out", &words.out}, {"--svg", &words.job.picture}},
             "is for one plan, and --compare makes many");
  const std::vector<ComparedJob> rows = compare(request, clock);
  if (!words.common.json) {
    out << job_comparison_text(request, words.common.profile, rows);
    return kDone;
  }
  auto list = ordered_json::array();
  for (const ComparedJob& row : rows) list.push_back(compared_json(request, row));
  out << json_text(list);
  return kDone;
}

int plan_model(const PlanWords& words, std::ostream& out, const Clock& clock) {
  const std::string& path = words.common.profile;
  if (path.empty())
    throw ConfigError("PROFILE is missing: the step of one micro-batch, as `spillway profile` "
                      "recorded it (see spillway plan --help)");
  ranks_in(words.job);
  check_outputs(files_read(words.common), {{"--out", words.out}, {"--svg", words.job.picture}});
  FoundJob job;
  job.path = path;
  job.request = request_of(words, load_step(path).profile);
  if (words.job.compare) return compare_jobs(words, job.request, out, clock);
  const TimePoint begin = clock.now();
  {
    ProgressLine progress;
    progress.show(message("planning {} layers on {} ranks", job.request.chain.layers.size(),
                          job.request.ranks));
    job.search = planner::search_job(job.request);
    progress.clear();
  }
  job.search_seconds = seconds(clock.now() - begin);
  if (!words.out.empty())
    topology::write_file_at_once(
        words.out, planner::to_text(planner::describe_job(job.search.plan, job.request.chain)));
  if (!words.job.picture.empty())
    topology::write_file_at_once(words.job.picture, job_picture(job.search.plan, path));
  if (words.common.json) {
    out << json_text(job_json(job));
    return kDone;
  }
  out << job_text(job);
  if (!words.out.empty())
    out << "\nplan stored in " << words.out << "; check it with: spillway plan --check "
        << words.out << '\n';
  if (!words.job.picture.empty()) out << "\ndrawn in " << words.job.picture << '\n';
  return kDone;
}

}  // namespace

int plan_for_ranks(const PlanWords& words, std::ostream& out, const Clock& clock) {
  refuse_any(words_of_one_device(words),
             "is about one device; plans for many have --ranks, --device-memory and --schedule");
  if (words.frontier)
    throw ConfigError("--frontier is about one device; compare schedules with --compare");
  if (!words.job.check.empty()) return check_plan(words, out);
  if (!words.job.costs.empty()) return cut_costs(words, out, clock);
  return plan_model(words, out, clock);
}

}  // namespace spillway::cli
