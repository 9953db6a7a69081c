// The program that plans, simulates and imports traces: the command becomes it.
#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "exit_codes.h"
#include "output_files.h"
#include "planning/planning_options.h"
#include "planning/stored_job.h"
#include "profile_options.h"
#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/runtime/reporting/profile_summary.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

/// Reads the options of a command and carries it out.
template <auto kLineOf, auto kCarryOut, typename Options>
int carried_out(const Words& words) {
  Options options;
  CommandLine line = kLineOf(options);
  if (!line.parse(words)) return kDone;
  if constexpr (requires { options.asked; }) options.asked = line.given_outside(kOutput);
  kCarryOut(options, std::cout, SteadyClock());
  return kDone;
}

/// The picture stood behind --frontier once.
void refuse_picture_of_frontier(const Words& words) {
  constexpr std::string_view kFrontier = "--frontier";
  for (std::size_t at = 0; at < words.size(); ++at) {
    std::string picture;
    if (words[at].starts_with(std::string(kFrontier) + "="))
      picture = words[at].substr(kFrontier.size() + 1);
    else if (words[at] == kFrontier && at + 1 < words.size() &&
             (words[at + 1].ends_with(".svg") || words[at + 1].ends_with(".png")))
      picture = words[at + 1];
    if (!picture.empty())
      throw ConfigError("--frontier takes no picture (use --frontier --picture {})", picture);
  }
}

int plan(const Words& words) {
  refuse_picture_of_frontier(words);
  return carried_out<&plan_line, &plan_from_profile, PlanOptions>(words);
}

/// Options of one device beside options or a plan of many: the file says which are out of place.
[[noreturn]] void refuse_mixture(const std::string& of_step, const std::string& of_jobs,
                                 const std::string& file, bool is_job) {
  if (is_job)
    throw ConfigError("{} is for a step of one device, and {} is a plan for many ranks, whose "
                      "machine (--cluster) has the rates (leave it out)",
                      of_step, file);
  throw ConfigError(
      "{} is for plans for many ranks, and {} is none (leave it out, or make one with: "
      "spillway plan-job {} --ranks COUNT --out FILE)",
      of_jobs, file, shell_word(file));
}

int simulate(const Words& words) {
  SimulateOptions step;
  ClusterOptions job;
  CommandLine line = simulate_line(step, job);
  if (!line.parse(words)) return kDone;
  job.plan = step.common.profile;
  const std::string of_jobs = line.given_in(kOptionsOfJobs);
  const bool is_job = is_stored_job(job.plan);
  if (of_jobs.empty() && !is_job) {
    simulate_plan(step, std::cout, SteadyClock());
    return kDone;
  }
  for (const char* group : {kOptionsOfSteps, kLinksAndDisks})
    if (const std::string given = line.given_in(group); !given.empty())
      refuse_mixture(given, of_jobs, job.plan, is_job);
  job.trace = step.trace;
  job.json = step.common.json;
  simulate_on_cluster(job, std::cout, SteadyClock());
  return kDone;
}

profile::StepProfile read_as(TraceFormat format, const std::string& file,
                             const profile::PiperOptions& degrees) {
  const std::string text = topology::text_of_file(file);
  switch (format) {
    case TraceFormat::kDtr: return profile::import_dtr(text, file);
    case TraceFormat::kPipedream: return profile::import_pipedream(text, file);
    case TraceFormat::kPiper: break;
  }
  return profile::import_piper(text, file, degrees);
}

/// What an importer says names file and place; this adds what to do.
profile::StepProfile imported(TraceFormat format, const std::string& file,
                              const profile::PiperOptions& degrees) {
  try {
    return read_as(format, file, degrees);
  } catch (const ConfigError& error) {
    throw ConfigError("{} (spillway profile --help says what each format is; name another one with "
                      "--import {})",
                      error.what(), alternatives(kTraceFormats));
  }
}

/// Makes a profile of a published trace.
int import(const Words& words) {
  ProfileOptions options;
  CommandLine line = profile_command_line(options);
  if (!line.parse(words)) return kDone;
  const TraceFormat format = *options.format;
  const std::string_view name = name_in(kTraceFormats, format);
  if (options.trace.empty())
    throw ConfigError("the trace to import is missing (spillway profile --import {} TRACE --out "
                      "FILE)",
                      name);
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (--out FILE.profile.json)");
  profile::PiperOptions degrees;
  degrees.tensor_parallel = options.tensor_parallel;
  degrees.micro_batches = options.micro_batches;
  if (format != TraceFormat::kPiper && (degrees.tensor_parallel > 1 || degrees.micro_batches > 1))
    throw ConfigError("--tensor-parallel and --micro-batches are for piper, whose layers have "
                      "several costs; those of {} have one (leave them out)",
                      name);
  check_outputs({{"TRACE", options.trace}}, {{"--out", options.out}});
  const profile::StepProfile profile = imported(format, options.trace, degrees);
  topology::write_file_at_once(options.out, profile::to_text(profile));
  std::cout << options.out << ": " << runtime::describe(profile) << "; pages of "
            << profile.page_size << '\n';
  return kDone;
}

struct Command {
  std::string_view name;
  int (*carry_out)(const Words& words);
};

/// Beside the import of profiles.
constexpr std::array<Command, 6> kCommands{
    {{"plan", &plan},
     {"plan-job", &carried_out<&plan_job_line, &plan_job, JobOptions>},
     {"check", &carried_out<&check_line, &check_plan, CheckOptions>},
     {"rebalance", &carried_out<&rebalance_line, &rebalance_plan, RebalanceOptions>},
     {"costs", &carried_out<&costs_line, &cut_costs, CostOptions>},
     {"simulate", &simulate}}};

int dispatch(const Words& words) {
  const std::string command = words.empty() ? "" : words.front();
  const Words rest(words.empty() ? words.end() : words.begin() + 1, words.end());
  std::string all;
  for (const Command& each : kCommands) {
    if (command == each.name) return each.carry_out(rest);
    all += message("`spillway {}`, ", each.name);
  }
  if (command == "profile") return import(rest);
  throw ConfigError("this program serves {}and `spillway profile --import` (see spillway --help)",
                    all);
}

}  // namespace
}  // namespace spillway::cli

int main(int count, char** words) {
  return spillway::cli::exit_code_of(&spillway::cli::dispatch, count, words);
}
