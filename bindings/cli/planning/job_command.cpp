#include "planning/job_command.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "exit_codes.h"
#include "planning/job_picture.h"
#include "planning/job_report.h"
#include "planning/plan_report.h"
#include "planning/progress_line.h"
#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"
#include "spillway/base/transfer_rate.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/planner/schedule/schedule_csv.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

using nlohmann::ordered_json;
using planner::JobAttempt;
using planner::JobChoice;
using planner::JobRequest;
using planner::Partitioner;

namespace {

/// An option with what was written behind it.
struct GivenWord {
  const char* option;
  const std::string* text;
};

void refuse_any(const std::vector<GivenWord>& words, const char* reason) {
  for (const GivenWord& each : words)
    if (!each.text->empty()) throw ConfigError("{} {} {}", each.option, *each.text, reason);
}

std::vector<GivenWord> words_of_one_device(const PlanWords& words) {
  const PlanningWords& common = words.common;
  return {{"--budget", &common.budget},
          {"--strategy", &common.strategy},
          {"--effort", &common.effort},
          {"--bound", &common.bound},
          {"--points", &words.points},
          {"--frontier", &words.picture},
          {"--disk-out", &common.rates.disk_out},
          {"--disk-in", &common.rates.disk_in}};
}

/// All that says something about a plan which is made.
std::vector<GivenWord> words_of_job(const PlanWords& words) {
  const JobWords& job = words.job;
  const RateWords& rates = words.common.rates;
  return {{"--device-memory", &job.device_memory},
          {"--micro-batches", &job.micro_batches},
          {"--groups", &job.groups},
          {"--schedule", &job.schedule},
          {"--link", &job.link},
          {"--svg", &job.picture},
          {"--out", &words.out},
          {"--link-out", &rates.link_out},
          {"--link-in", &rates.link_in},
          {"--duplex", &rates.duplex},
          {"--host-memory", &rates.host_memory},
          {"--rates", &rates.rates},
          {"--nvme", &rates.nvme}};
}

std::uint32_t ranks_in(const JobWords& words) {
  if (words.ranks.empty())
    throw ConfigError("--ranks is missing: on how many devices is the model to run?");
  return count_in("--ranks", words.ranks, 1, planner::kMostRanksOfJob);
}

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

CostCuts cut_with(const Partitioner& partitioner, const planner::SegmentCosts& costs,
                  double best_seconds, const Clock& clock) {
  CostCuts result;
  result.partitioner = partitioner.name;
  result.bound_seconds = best_seconds;
  const TimePoint begin = clock.now();
  try {
    const planner::Cuts cuts = partitioner.cut(costs);
    result.search_seconds = seconds(clock.now() - begin);
    const planner::PartitionEstimate estimate = planner::judge(costs, cuts);
    result.stages = estimate.stages;
    result.worst_seconds = estimate.seconds;
    result.all_seconds = costs.layer_seconds(0, costs.units());
  } catch (const PlanError& error) {
    result.refusal = error.what();
  }
  return result;
}

int cut_costs(const PlanWords& words, std::ostream& out, const Clock& clock) {
  const JobWords& job = words.job;
  refuse_any(words_of_job(words), "has no place beside --costs, which is about time alone");
  refuse_any({{"PROFILE", &words.common.profile}}, "has no place beside --costs: name one of both");
  const std::uint32_t ranks = ranks_in(job);
  const Partitioner& asked = job.partitioner.empty() ? planner::partitioners().front()
                                                     : planner::partitioner_named(job.partitioner);
  const std::string text = topology::text_of_file(job.costs);
  planner::PartitionProblem problem;
  try {
    problem.chain = planner::chain_of_costs(costs_in(text, job.costs));
    problem.devices.resize(ranks);
    check(problem);
  } catch (const ConfigError& error) {
    const std::string_view sentence = error.what();
    throw ConfigError("{}{}", sentence.starts_with(job.costs) ? "" : job.costs + ": ", sentence);
  }
  const planner::SegmentCosts costs(std::move(problem));
  const auto best = planner::least_time_cuts(costs);
  std::vector<CostCuts> cuts;
  for (const Partitioner& each : planner::partitioners())
    if (job.compare || each.name == asked.name)
      cuts.push_back(cut_with(each, costs, best ? best->worst : 0.0, clock));
  if (!job.compare && !cuts.front().refusal.empty())
    throw PlanError("{}: {}", asked.name, cuts.front().refusal);
  if (!words.common.json) {
    out << cost_cuts_text(cuts);
    return kDone;
  }
  auto list = ordered_json::array();
  for (const CostCuts& each : cuts) list.push_back(cost_cuts_json(each));
  out << json_text(job.compare ? list : list.front());
  return kDone;
}

/// What is told of a plan that passed.
struct CheckedPlan {
  planner::Schedule actions;
  std::optional<planner::JobFile> file;
};

CheckedPlan checked(const std::string& path) {
  const std::string text =
      topology::text_of_file(path, message("spillway plan PROFILE --ranks COUNT --out {}", path));
  const auto first = text.find_first_not_of(" \t\r\n");
  CheckedPlan plan;
  if (first == std::string::npos || text[first] != '{') {
    plan.actions = planner::read_schedule_csv(text, path);
    if (const auto fault = planner::first_fault(plan.actions))
      throw PlanError("{}: {}", path, to_string(*fault));
    return plan;
  }
  plan.file = planner::parse_job_file(text, path);
  plan.actions = plan.file->actions;
  if (const auto fault = planner::job_fault(*plan.file)) throw PlanError("{}: {}", path, *fault);
  return plan;
}

int check_plan(const PlanWords& words, std::ostream& out) {
  const std::string& path = words.job.check;
  refuse_any(words_of_job(words), "has no place beside --check, which looks at a plan as it is");
  refuse_any({{"PROFILE", &words.common.profile},
              {"--ranks", &words.job.ranks},
              {"--partitioner", &words.job.partitioner},
              {"--costs", &words.job.costs}},
             "has no place beside --check, which looks at a plan as it is");
  if (words.job.compare) throw ConfigError("--compare has no place beside --check");
  const CheckedPlan plan = checked(path);
  std::uint64_t actions = 0;
  for (const auto& list : plan.actions.ranks) actions += list.size();
  if (words.common.json) {
    ordered_json json = {{"path", path},
                         {"ranks", plan.actions.rank_count()},
                         {"stages", plan.actions.stages},
                         {"micro_batches", plan.actions.all_micro_batches()},
                         {"actions", actions},
                         {"knows_memory", plan.file.has_value()}};
    if (plan.file) json["step_seconds"] = plan.file->step_seconds;
    out << json_text(json);
    return kDone;
  }
  out << message("{}: {} actions of {} ranks, {} stages and {} micro-batches: nothing is missing, "
                 "both sides of each message are in one order, and no deadlock even if every send "
                 "waits for its receive\n",
                 path, actions, plan.actions.rank_count(), plan.actions.stages,
                 plan.actions.all_micro_batches());
  if (!plan.file)
    out << "it says nothing of memory and time; plans that `spillway plan --out` wrote do\n";
  else
    out << message("{}; a step takes {}\n",
                   plan.file->device_memory == planner::kNoLimit
                       ? std::string("memory has no limit in it")
                       : message("every rank stays within {}", plan.file->device_memory),
                   seconds_text(plan.file->step_seconds));
  return kDone;
}

}  // namespace

std::vector<double> costs_in(std::string_view text, const std::string& file) {
  std::vector<double> costs;
  std::size_t line = 1;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto is_between = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == ','; };
  while (at != end) {
    if (*at == '\n') {
      ++line;
      ++at;
    } else if (*at == '#') {
      at = std::find(at, end, '\n');
    } else if (is_between(*at)) {
      ++at;
    } else {
      const char* const stop =
          std::find_if(at, end, [&](char c) { return c == '\n' || c == '#' || is_between(c); });
      double value = 0.0;
      const auto [parsed, status] = std::from_chars(at, stop, value);
      if (status != std::errc() || parsed != stop)
        throw ConfigError("{}, line {}: '{}' is no number (one cost for each layer, between blanks "
                          "or commas)",
                          file, line, shown_text({at, static_cast<std::size_t>(stop - at)}));
      costs.push_back(value);
      at = stop;
    }
  }
  if (costs.empty()) throw ConfigError("{}: there is no number in it (one for each layer)", file);
  return costs;
}

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
