#include "job_choices.h"

#include <algorithm>

#include "spillway/planner/job/job_search.h"

namespace spillway::planner {

std::vector<std::uint32_t> divisors_of(std::uint32_t number) {
  std::vector<std::uint32_t> divisors;
  for (std::uint32_t each = number; each > 0; --each)
    if (number % each == 0) divisors.push_back(each);
  return divisors;
}

std::uint64_t passes_of(const JobRequest& request, const JobChoice& choice) {
  const std::uint32_t ranks = request.ranks / choice.data_parallel;
  const std::uint32_t all =
      choice.micro_batches != 0 ? choice.micro_batches : most_micro_batches(request);
  const std::uint32_t own = all / choice.data_parallel;
  const std::uint64_t stages = choice.generator->stage_count(
      schedule_request_for(*choice.generator, choice.variant, ranks, own));
  return stages > request.chain.layers.size() ? 0 : stages * own;
}

std::vector<JobChoice> job_choices(const JobRequest& request) {
  check(request);
  const bool is_open = request.schedule == kAnySchedule;
  const std::uint32_t micro_batches = most_micro_batches(request);
  std::vector<std::uint32_t> data_parallel;
  if (request.data_parallel != 0)
    data_parallel = {request.data_parallel};
  else if (!is_open)
    data_parallel = {1};
  else
    for (std::uint32_t count = 1; count <= std::min(request.ranks, micro_batches); ++count)
      if (request.ranks % count == 0 && micro_batches % count == 0) data_parallel.push_back(count);
  std::vector<JobChoice> choices;
  for (const std::uint32_t count : data_parallel) {
    if (!is_open) {
      choices.push_back({&schedule_generator_named(request.schedule), count, request.variant});
      continue;
    }
    for (const ScheduleGenerator& generator : schedule_generators())
      choices.push_back({&generator, count});
  }
  return choices;
}

}  // namespace spillway::planner
