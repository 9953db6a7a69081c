#include "spillway/planner/job/job_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::job {
namespace {

void check_count(const char* what, std::uint32_t count) {
  if (count == 0 || count > kMostRanksOfJob)
    throw ConfigError("a job needs between 1 and {} {}, not {}", kMostRanksOfJob, what, count);
}

/// Each replica gets as many micro-batches.
void check_shares(const JobRequest& request) {
  const std::uint32_t replicas = request.data_parallel;
  const std::uint32_t micro_batches = most_micro_batches(request);
  if (replicas == 0 || micro_batches % replicas == 0) return;
  const auto rounded_up = [](std::uint32_t count, std::uint32_t unit) {
    return (count + unit - 1) / unit * unit;
  };
  const std::uint32_t batch = batch_of(request);
  const auto distance = [&](std::uint32_t count) {
    return std::max(count, micro_batches) - std::min(count, micro_batches);
  };
  std::uint32_t nearest = 0;
  for (std::uint32_t count = replicas; count <= batch; count += replicas)
    if (batch % count == 0 && (nearest == 0 || distance(count) < distance(nearest)))
      nearest = count;
  std::string fixed = message("--micro-batches {}", nearest);
  if (nearest == 0) {
    // Another batch is another training, so only where this one has no such share. Either may have
    // been given, and both have to go together.
    const std::uint32_t enough = rounded_up(micro_batches, replicas);
    fixed = request.micro_batches == 0 ? "" : message("--micro-batches {} ", enough);
    fixed += message("--batch {}", rounded_up(batch, enough));
  }
  throw ConfigError("{} do not split evenly over {} data-parallel replicas (use {})",
                    counted(micro_batches, "micro-batch"), replicas, fixed);
}

}  // namespace

void check(const JobRequest& request) {
  partition::check(request.chain);
  check_count("ranks", request.ranks);
  check_count("micro-batches", batch_of(request));
  // Their best number depends on the schedule, and only the search compares plans.
  if (request.micro_batches == 0 && request.schedule != kAnySchedule)
    throw ConfigError("{} has no number of micro-batches; say how many, or leave the schedule to "
                      "the chooser, too",
                      request.schedule);
  if (request.micro_batches != 0 && batch_of(request) % request.micro_batches != 0)
    throw ConfigError(
        "--batch {} is the work of a step, in micro-batches of the profile's size, and "
        "does not split into {} equal ones (name a divisor of {} with "
        "--micro-batches)",
        batch_of(request), request.micro_batches, batch_of(request));
  if (request.data_parallel != 0 && request.ranks % request.data_parallel != 0)
    throw ConfigError("{} do not split into {} equal data-parallel replicas (name a divisor of {} "
                      "with --replicas)",
                      counted(request.ranks, "rank"), request.data_parallel, request.ranks);
  check_shares(request);
  if (!(request.update_seconds >= 0.0) || std::isinf(request.update_seconds))
    throw ConfigError("the optimizer takes {} s; times are finite and at least 0",
                      request.update_seconds);
  if (request.link.rate.is_none())
    throw ConfigError("the link between ranks carries {} bytes/s; give more than 0",
                      request.link.rate.bytes_per_second());
  if (request.reduce_link && request.reduce_link->rate.is_none())
    throw ConfigError("the link for sums of gradients carries {} bytes/s; give more than 0",
                      request.reduce_link->rate.bytes_per_second());
  if (request.shared_sums.ranks == 0 || request.shared_sums.rate.is_none())
    throw ConfigError("the link that sums of {} ranks share carries {} bytes/s; give more than 0",
                      request.shared_sums.ranks, request.shared_sums.rate.bytes_per_second());
  if (!(request.swap_rate >= TransferRate()))
    throw ConfigError("the link to the host carries {} bytes/s; give 0 where nothing is swapped",
                      request.swap_rate.bytes_per_second());
  if (request.schedule != kAnySchedule)
    check(planner_schedule::schedule_generator_named(request.schedule), request.variant);
  partition::partitioner_named(request.partitioner);
}

std::uint32_t batch_of(const JobRequest& request) {
  return request.batch != 0 ? request.batch : request.micro_batches;
}

std::uint32_t most_micro_batches(const JobRequest& request) {
  return request.micro_batches != 0 ? request.micro_batches : batch_of(request);
}

JobRequest with_micro_batches(JobRequest request, std::uint32_t micro_batches) {
  const std::uint32_t share = batch_of(request) / micro_batches;
  request.micro_batches = request.batch = micro_batches;
  // The chain is of one micro-batch, which now does the work of several.
  if (share > 1) request.chain = partition::scaled(std::move(request.chain), share);
  return request;
}

}  // namespace spillway::job
