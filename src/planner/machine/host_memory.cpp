#include "spillway/planner/machine/host_memory.h"

#include <algorithm>
#include <numeric>

namespace spillway::planner {

std::vector<Bytes> host_peaks(const JobPlan& plan, std::uint32_t ranks_per_host) {
  const std::uint64_t pipeline = plan.memory.size();
  const std::uint64_t ranks =
      std::min(std::uint64_t{plan.ranks}, std::lcm(pipeline, std::uint64_t{ranks_per_host}));
  std::vector<Bytes> peaks((ranks + ranks_per_host - 1) / ranks_per_host);
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    peaks[rank / ranks_per_host] += plan.memory[rank % pipeline].host;
  return peaks;
}

Bytes fullest_host(const JobPlan& plan, std::uint32_t ranks_per_host) {
  Bytes most;
  for (const Bytes peak : host_peaks(plan, ranks_per_host)) most = std::max(most, peak);
  return most;
}

}  // namespace spillway::planner
