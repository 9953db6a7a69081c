#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// The links between ranks and to their hosts. Each carries one transfer at a time, in the order in
/// which they are asked for; latency comes on top and does not occupy them.
class RunLinks {
 public:
  RunLinks(const ScheduleCosts& costs, std::size_t ranks);

  /// When a message has arrived that is ready now.
  double send(std::uint32_t from, std::uint32_t to, Bytes size, double now);

  struct Copy {
    double start_seconds = 0.0;
    double end_seconds = 0.0;
  };
  /// A copy out of the device of a rank or into it, not before `earliest`.
  Copy copy(std::uint32_t rank, bool is_out, Bytes size, double earliest);

  /// A ring over `members`, in the order of ranks, and as many ranks of each further pipeline. Sums
  /// of one rank come one after the other.
  Copy reduce(const std::vector<std::uint32_t>& members, std::uint32_t pipelines, Bytes size,
              double now);

 private:
  /// When what all sums share has carried another one of these members.
  double pass_shared(const std::vector<std::uint32_t>& members, double seconds, double now);

  double& host_free(std::uint32_t rank, bool is_out) {
    return host_free_[2 * std::size_t{rank} + (is_out ? 0 : 1)];
  }

  const ScheduleCosts& costs_;
  std::unordered_map<std::uint64_t, double> channel_free_;  // By sender and receiver.
  std::vector<double> host_free_;                           // By rank, out and in.
  std::vector<double> reduce_free_;
  std::vector<double> sums_passed_;  // By `shared_sums`: all that were asked for.
};

}  // namespace spillway::planner
