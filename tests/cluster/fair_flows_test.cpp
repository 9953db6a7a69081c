#include "spillway/planner/cluster/fair_flows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace spillway::cluster {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Rates by the definition, for a handful of flows: raise all that are not held yet by the same
/// amount until a link is full.
std::vector<double> slow_rates(const std::vector<double>& links,
                               const std::vector<std::vector<LinkUse>>& routes) {
  std::vector<double> rates(routes.size(), 0.0);
  std::vector<bool> is_held(routes.size(), false);
  for (std::size_t round = 0; round <= routes.size(); ++round) {
    std::vector<double> left = links;
    std::vector<double> streams(links.size(), 0.0);
    for (std::size_t i = 0; i < routes.size(); ++i)
      for (const LinkUse& use : routes[i]) {
        left[use.link] -= rates[i] * use.streams;
        if (!is_held[i]) streams[use.link] += use.streams;
      }
    double raise = kInfinite;
    for (std::size_t link = 0; link < links.size(); ++link)
      if (streams[link] > 0.0) raise = std::min(raise, left[link] / streams[link]);
    if (raise == kInfinite) break;
    for (std::size_t i = 0; i < routes.size(); ++i)
      if (!is_held[i]) rates[i] += raise;
    for (std::size_t i = 0; i < routes.size(); ++i)
      for (const LinkUse& use : routes[i])
        if (!is_held[i] && left[use.link] / streams[use.link] <= raise * (1.0 + 1e-9))
          is_held[i] = true;
  }
  return rates;
}

struct Flow {
  std::vector<LinkUse> route;
  double start = 0.0;
  double bytes = 0.0;
};

/// When each flow ends, with all rates from the definition after every start and end.
std::vector<double> slow_ends(const std::vector<double>& links, const std::vector<Flow>& flows) {
  std::vector<double> left(flows.size());
  std::vector<double> ends(flows.size(), kInfinite);
  for (std::size_t i = 0; i < flows.size(); ++i) left[i] = flows[i].bytes;
  double now = 0.0;
  while (true) {
    std::vector<std::size_t> active;
    std::vector<std::vector<LinkUse>> routes;
    double next = kInfinite;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].start > now) next = std::min(next, flows[i].start);
      if (flows[i].start > now || ends[i] != kInfinite) continue;
      active.push_back(i);
      routes.push_back(flows[i].route);
    }
    const std::vector<double> rates = slow_rates(links, routes);
    for (std::size_t i = 0; i < active.size(); ++i)
      next = std::min(next, now + left[active[i]] / rates[i]);
    if (next == kInfinite) return ends;
    for (std::size_t i = 0; i < active.size(); ++i) {
      left[active[i]] -= rates[i] * (next - now);
      if (left[active[i]] <= 1e-9 * flows[active[i]].bytes) ends[active[i]] = next;
    }
    now = next;
  }
}

std::vector<double> fast_ends(const std::vector<double>& links, const std::vector<Flow>& flows) {
  FairFlows fair(links);
  std::vector<double> ends(flows.size(), kInfinite);
  std::vector<std::uint32_t> order(flows.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return flows[a].start < flows[b].start;
  });
  std::size_t started = 0;
  double now = 0.0;
  while (true) {
    for (; started < order.size() && flows[order[started]].start <= now; ++started)
      fair.start(flows[order[started]].route, flows[order[started]].bytes, order[started], now);
    fair.settle(now);
    const double start = started < order.size() ? flows[order[started]].start : kInfinite;
    const double next = std::min(start, fair.next_end());
    if (next == kInfinite) return ends;
    now = next;
    std::vector<std::uint32_t> tags;
    fair.take_ended(now, tags);
    for (const std::uint32_t tag : tags) ends[tag] = now;
  }
}

std::vector<Flow> random_flows(std::mt19937_64& random, std::size_t links, std::size_t count) {
  std::vector<Flow> flows(count);
  for (Flow& flow : flows) {
    flow.start = static_cast<double>(random() % 8);
    flow.bytes = static_cast<double>(1 + random() % 50);
    for (std::uint32_t link = 0; link < links; ++link)
      if (random() % 3 == 0) flow.route.push_back({link, random() % 4 == 0 ? 2.0 : 1.0});
    if (flow.route.empty()) flow.route.push_back({0, 1.0});
  }
  return flows;
}

TEST(FairFlows, EndWhereTheDefinitionSays) {
  std::mt19937_64 random(11);
  for (int instance = 0; instance < 2000; ++instance) {
    const std::size_t links = 1 + random() % 7;
    std::vector<double> rates(links);
    for (double& rate : rates) rate = static_cast<double>(1 + random() % 10);
    const std::vector<Flow> flows = random_flows(random, links, 1 + random() % 12);
    const std::vector<double> expected = slow_ends(rates, flows);
    const std::vector<double> ends = fast_ends(rates, flows);
    for (std::size_t i = 0; i < flows.size(); ++i)
      ASSERT_NEAR(ends[i], expected[i], 1e-6 * expected[i]) << "instance " << instance;
  }
}

/// The rate of each of these routes beside the others: what one byte of it takes while they go on.
std::vector<double> rates_beside_each_other(const std::vector<double>& links,
                                            const std::vector<std::vector<LinkUse>>& routes) {
  std::vector<double> rates;
  for (std::size_t asked = 0; asked < routes.size(); ++asked) {
    FairFlows fair(links);
    for (std::size_t i = 0; i < routes.size(); ++i)
      fair.start(routes[i], i == asked ? 1.0 : 1e9, static_cast<std::uint32_t>(i), 0.0);
    fair.settle(0.0);
    rates.push_back(1.0 / fair.next_end());
  }
  return rates;
}

// The example of Bertsekas and Gallager: one long flow, and one short one on each link.
TEST(FairFlows, LeavesToOthersWhatAFlowCannotUse) {
  const std::vector<LinkUse> all{{0, 1.0}, {1, 1.0}, {2, 1.0}};
  const std::vector<LinkUse> first{{0, 1.0}};
  const std::vector<LinkUse> second{{1, 1.0}};
  const std::vector<LinkUse> third{{2, 1.0}};
  EXPECT_THAT(rates_beside_each_other({1.0, 2.0, 10.0}, {all, first, second, third}),
              ::testing::Pointwise(::testing::DoubleEq(), {0.5, 0.5, 1.5, 9.5}));
}

TEST(FairFlows, CountsAStreamLikeAFlow) {
  FairFlows fair({12.0});
  const std::vector<LinkUse> two{{0, 2.0}};
  const std::vector<LinkUse> one{{0, 1.0}};
  fair.start(two, 8.0, 0, 0.0);
  fair.start(one, 100.0, 1, 0.0);
  fair.settle(0.0);
  EXPECT_THAT(rates_beside_each_other({12.0}, {two, one}),
              ::testing::Each(::testing::DoubleEq(4.0)));
  std::vector<std::uint32_t> ended;
  EXPECT_DOUBLE_EQ(fair.next_end(), 2.0);
  fair.take_ended(2.0, ended);
  EXPECT_THAT(ended, ::testing::ElementsAre(0));
  EXPECT_DOUBLE_EQ(fair.carried(0), 16.0);
  fair.settle(2.0);
  EXPECT_DOUBLE_EQ(fair.next_end(), 2.0 + (100.0 - 8.0) / 12.0);
}

TEST(FairFlows, EndAtOnceWithoutLinksOrBytes) {
  FairFlows fair({1.0});
  const std::vector<LinkUse> one{{0, 1.0}};
  fair.start({}, 5.0, 7, 3.0);
  fair.start(one, 0.0, 8, 3.0);
  fair.settle(3.0);
  EXPECT_DOUBLE_EQ(fair.next_end(), 3.0);
  std::vector<std::uint32_t> ended;
  fair.take_ended(3.0, ended);
  EXPECT_THAT(ended, ::testing::ElementsAre(7, 8));
  EXPECT_EQ(fair.next_end(), kInfinite);
}

}  // namespace
}  // namespace spillway::cluster
