#include "run_links.h"

#include <algorithm>

namespace spillway::planner {
namespace {

double seconds_for(Bytes size, const LinkCosts& link) {
  return static_cast<double>(size.count()) / link.bytes_per_second;
}

}  // namespace

RunLinks::RunLinks(const ScheduleCosts& costs, std::size_t ranks)
    : costs_(costs),
      host_free_(2 * ranks, 0.0),
      reduce_free_(ranks, 0.0),
      sums_passed_(ranks, 0.0) {}

double RunLinks::send(std::uint32_t from, std::uint32_t to, Bytes size, double now) {
  double& free = channel_free_[std::uint64_t{from} << 32U | to];
  free = std::max(now, free) + seconds_for(size, costs_.peer);
  return free + costs_.peer.latency_seconds;
}

RunLinks::Copy RunLinks::copy(std::uint32_t rank, bool is_out, Bytes size, double earliest) {
  double& free = host_free(rank, is_out);
  const double start = std::max(free, earliest);
  free = start + seconds_for(size, costs_.host);
  return {start, free + costs_.host.latency_seconds};
}

RunLinks::Copy RunLinks::reduce(const std::vector<std::uint32_t>& members, std::uint32_t pipelines,
                                Bytes size, double now) {
  double start = now;
  for (const std::uint32_t rank : members) start = std::max(start, reduce_free_[rank]);
  const double ring = static_cast<double>(members.size()) * pipelines;
  const double rounds = 2.0 * (ring - 1.0);
  const double bytes = rounds / ring * count_of(size);
  const double shared = pass_shared(members, bytes / costs_.shared_sums.bytes_per_second, now);
  const double end = rounds * costs_.reduce.latency_seconds +
                     std::max(start + bytes / costs_.reduce.bytes_per_second, shared);
  for (const std::uint32_t rank : members) reduce_free_[rank] = end;
  return {start, end};
}

double RunLinks::pass_shared(const std::vector<std::uint32_t>& members, double seconds,
                             double now) {
  double end = now;
  std::size_t last = sums_passed_.size();
  for (const std::uint32_t rank : members) {
    const std::size_t link = rank / costs_.shared_sums.ranks;
    if (link == last) continue;
    last = link;
    sums_passed_[link] = std::max(sums_passed_[link], now) + seconds;
    end = std::max(end, sums_passed_[link]);
  }
  return end;
}

}  // namespace spillway::planner
