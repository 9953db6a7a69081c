#include "spillway/planner/job/job_request.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {
namespace {

void check_count(const char* what, std::uint32_t count) {
  if (count == 0 || count > kMostRanksOfJob)
    throw ConfigError("a job needs between 1 and {} {}, not {}", kMostRanksOfJob, what, count);
}

}  // namespace

void check(const JobRequest& request) {
  check(request.chain);
  check_count("ranks", request.ranks);
  check_count("micro-batches", request.micro_batches);
  if (request.groups != 0 && request.ranks % request.groups != 0)
    throw ConfigError("{} ranks do not split into {} equal groups; name a divisor of {}",
                      request.ranks, request.groups, request.ranks);
  if (request.groups != 0 && request.micro_batches % request.groups != 0)
    throw ConfigError("{} micro-batches do not split evenly over {} groups; name a multiple of {}",
                      request.micro_batches, request.groups, request.groups);
  if (!(request.update_seconds >= 0.0) || std::isinf(request.update_seconds))
    throw ConfigError("the optimizer takes {} s; times are finite and at least 0",
                      request.update_seconds);
  if (!(request.link.bytes_per_second > 0.0))
    throw ConfigError("the link between ranks carries {} bytes/s; give more than 0",
                      request.link.bytes_per_second);
  if (!(request.swap_bytes_per_second >= 0.0))
    throw ConfigError("the link to the host carries {} bytes/s; give 0 where nothing is swapped",
                      request.swap_bytes_per_second);
  if (request.schedule != kAnySchedule) schedule_generator_named(request.schedule);
  partitioner_named(request.partitioner);
}

double job_bound(const JobRequest& request) {
  const LayerIndex trained = first_trained(request.chain);
  double work = 0.0;
  double way = 0.0;
  double largest = 0.0;
  for (LayerIndex i = 0; i < request.chain.layers.size(); ++i) {
    const ModelLayer& layer = request.chain.layers[i];
    const double backward = i < trained ? 0.0 : layer.backward_seconds;
    work += layer.forward_seconds + backward;
    way += layer.forward_seconds + backward / 2;
    largest = std::max(largest, layer.forward_seconds + backward);
  }
  const std::uint32_t most_groups =
      request.groups != 0 ? request.groups : std::gcd(request.ranks, request.micro_batches);
  const double all = work * request.micro_batches + request.update_seconds;
  const std::uint32_t copies = std::min(request.ranks, 2 * most_groups);
  const double in_turn = largest * ((request.micro_batches + copies - 1) / copies);
  return std::max({all / request.ranks, way, in_turn});
}

}  // namespace spillway::planner
