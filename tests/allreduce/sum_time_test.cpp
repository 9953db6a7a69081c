#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "spillway/allreduce/sum.h"
#include "spillway/transport/in_process.h"

namespace spillway::allreduce {
namespace {

using std::chrono::nanoseconds;
using transport::InProcessRanks;
using transport::Transport;

/// Of messages alone: additions take no time on the clock of ranks in one process. A byte takes a
/// nanosecond.
class SumTime : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  /// From the moment at which all begin to the one at which the last has ended. One round.
  static Duration time_of(std::uint32_t ranks, std::uint64_t bytes, Duration latency,
                          SumOptions options) {
    options.piece = Bytes(bytes);
    InProcessRanks job({.ranks = ranks, .latency = latency, .bytes_per_second = 1e9});
    job.run([&](Transport& group) {
      std::vector<std::byte> array(bytes);
      const auto notifier = group.make_notifier(transport::Stream::kSums);
      const auto sum = begin_sum(group, 0, Element::kFloat32, {std::span(array)}, options);
      while (!sum->advance()) notifier->wait();
    });
    return job.clock().now().time_since_epoch();
  }

  static Duration step(Duration latency, std::uint64_t bytes) {
    return latency + nanoseconds(bytes);
  }

  /// From rank i's array to rank j's result it is a message for each bit in which they differ, and
  /// one more where a rank beyond the power of two stands behind either.
  static Duration tree(std::uint32_t ranks, Duration latency, std::uint64_t bytes) {
    const std::uint32_t power = std::bit_floor(ranks);
    int most = 0;
    for (std::uint32_t i = 0; i < power; ++i)
      for (std::uint32_t j = 0; j < power; ++j)
        most = std::max(most, std::popcount(i ^ j) + (i + power < ranks) + (j + power < ranks));
    return most * step(latency, bytes);
  }

  static std::vector<std::string> even_hosts(std::uint32_t ranks, std::uint32_t hosts) {
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < ranks; ++i) names.push_back(std::to_string(i * hosts / ranks));
    return names;
  }
};

constexpr Duration kLatencies[] = {nanoseconds(0), nanoseconds(70), nanoseconds(100'000)};

TEST_P(SumTime, OfTheOrderedSumIsThatOfTwoSlices) {
  const std::uint32_t ranks = GetParam();
  for (const Duration latency : kLatencies)
    EXPECT_EQ(time_of(ranks, 4000 * ranks, latency, {}), 2 * step(latency, 4000));
}

TEST_P(SumTime, OfTheRingIsThatOfItsSteps) {
  const std::uint32_t ranks = GetParam();
  for (const Duration latency : kLatencies)
    EXPECT_EQ(time_of(ranks, 4000 * ranks, latency, {.order = Order::kFast, .small = 0_B}),
              2 * (ranks - 1) * step(latency, 4000));
}

TEST_P(SumTime, OfTheTreeIsThatOfItsDepth) {
  const std::uint32_t ranks = GetParam();
  for (const Duration latency : kLatencies)
    EXPECT_EQ(time_of(ranks, 4000, latency, {.order = Order::kFast}), tree(ranks, latency, 4000));
}

TEST_P(SumTime, OfTwoLevelsIsThatOfBoth) {
  const std::uint32_t ranks = GetParam();
  for (std::uint32_t hosts = 2; 2 * hosts <= ranks; ++hosts) {
    if (ranks % hosts != 0) continue;
    for (const Duration latency : kLatencies) {
      SumOptions options{.order = Order::kFast, .hosts = even_hosts(ranks, hosts)};
      EXPECT_EQ(time_of(ranks, 4000, latency, options),
                2 * step(latency, 4000) + tree(hosts, latency, 4000));
      options.small = 0_B;
      const std::uint64_t slice = 4000;
      EXPECT_EQ(time_of(ranks, slice * hosts, latency, options),
                step(latency, slice * hosts) + (2 * hosts - 1) * step(latency, slice))
          << ranks << " " << hosts << " " << latency.count();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfRanks, SumTime, ::testing::Range(2u, 17u));

}  // namespace
}  // namespace spillway::allreduce
