#include "planning/job_contradictions.h"

#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_request.h"

namespace spillway::cli {

namespace {

std::vector<GivenWord> words_of_ranks(const JobWords& job) {
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
std::string beside_what(const JobWords& job) {
  if (job.compare) return " beside --compare";
  std::vector<GivenWord> all = words_of_ranks(job);
  all.insert(all.end(), {{"--partitioner", &job.partitioner}, {"--costs", &job.costs}});
  for (const GivenWord& each : all)
    if (!each.text->empty()) return message(" beside {} {}", each.option, *each.text);
  return {};
}

}  // namespace

void refuse_any(const std::vector<GivenWord>& words, const char* reason) {
  for (const GivenWord& each : words)
    if (!each.text->empty()) throw ConfigError("{} {} {}", each.option, *each.text, reason);
}

std::vector<GivenWord> words_of_one_device(const PlanWords& words) {
  const PlanningWords& common = words.common;
  return {{"--budget", &common.budget}, {"--strategy", &common.strategy},
          {"--effort", &common.effort}, {"--bound", &common.bound},
          {"--points", &words.points},  {"--frontier", &words.picture}};
}

/// All that says something about a plan which is made.
std::vector<GivenWord> words_of_job(const PlanWords& words) {
  const RateWords& rates = words.common.rates;
  std::vector<GivenWord> all = words_of_ranks(words.job);
  all.insert(all.end(), {{"--out", &words.out},
                         {"--link-out", &rates.link_out},
                         {"--link-in", &rates.link_in},
                         {"--duplex", &rates.duplex},
                         {"--host-memory", &rates.host_memory},
                         {"--rates", &rates.rates},
                         {"--nvme", &rates.nvme},
                         {"--disk-out", &rates.disk_out},
                         {"--disk-in", &rates.disk_in}});
  return all;
}

std::uint32_t ranks_in(const JobWords& words) {
  if (words.ranks.empty())
    throw ConfigError("--ranks is missing{}: on how many devices is the model to run?",
                      beside_what(words));
  return count_in("--ranks", words.ranks, 1, planner::kMostRanksOfJob);
}

}  // namespace spillway::cli
