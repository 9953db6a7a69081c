#include "planning/job_contradictions.h"

#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_request.h"

namespace spillway::cli {

namespace {

std::vector<GivenOption> options_of_ranks(const JobOptions& job) {
  return {{"--device-memory", &job.device_memory},
          {"--micro-batches", &job.micro_batches},
          {"--batch", &job.batch},
          {"--data-parallel", &job.data_parallel},
          {"--schedule", &job.schedule},
          {"--order", &job.order},
          {"--link", &job.link},
          {"--topology", &job.topology},
          {"--ranks-per-host", &job.ranks_per_host},
          {"--svg", &job.picture}};
}

/// What was said about ranks, so that nobody wonders why a plan is to be for some.
std::string beside_what(const JobOptions& job) {
  if (job.compare) return " beside --compare";
  std::vector<GivenOption> all = options_of_ranks(job);
  all.insert(all.end(), {{"--partitioner", &job.partitioner}, {"--costs", &job.costs}});
  for (const GivenOption& each : all)
    if (!each.text->empty()) return message(" beside {} {}", each.option, *each.text);
  return {};
}

}  // namespace

void refuse_any(const std::vector<GivenOption>& options, const char* reason) {
  for (const GivenOption& each : options)
    if (!each.text->empty()) throw ConfigError("{} {} {}", each.option, *each.text, reason);
}

std::vector<GivenOption> options_of_one_device(const PlanOptions& options) {
  const CommonOptions& common = options.common;
  return {{"--budget", &common.budget},  {"--strategy", &common.strategy},
          {"--effort", &common.effort},  {"--bound", &common.bound},
          {"--points", &options.points}, {"--frontier", &options.picture}};
}

/// All that says something about a plan which is made.
std::vector<GivenOption> options_of_job(const PlanOptions& options) {
  const RateOptions& rates = options.common.rates;
  std::vector<GivenOption> all = options_of_ranks(options.job);
  all.insert(all.end(), {{"--out", &options.out},
                         {"--link-out", &rates.link_out},
                         {"--link-in", &rates.link_in},
                         {"--duplex", &rates.duplex},
                         {"--host-memory", &rates.host_memory},
                         {"--rates", &rates.rates},
                         {"--nvme", &rates.nvme},
                         {"--disk-out", &rates.disk_out},
                         {"--disk-in", &rates.disk_in},
                         {"--gpu", &rates.gpu}});
  return all;
}

std::uint32_t ranks_in(const JobOptions& options) {
  if (options.ranks.empty())
    throw ConfigError("--ranks is missing{}: on how many devices is the model to run?",
                      beside_what(options));
  return count_in("--ranks", options.ranks, 1, planner::kMostRanksOfJob);
}

}  // namespace spillway::cli
