#include <gmock/gmock.h>

#include <functional>

#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::partition {
namespace {

/// Four layers on two devices, nothing wrong with any of them.
PartitionProblem sound() {
  PartitionProblem problem;
  for (int i = 0; i < 4; ++i) {
    ModelLayer layer;
    layer.name = "conv" + std::to_string(i);
    layer.forward_seconds = 1.0;
    layer.backward_seconds = 2.0;
    layer.parameters = Bytes(10);
    layer.static_ratio = 4.0;
    layer.stash = Bytes(100);
    layer.recompute = {{1.0, Bytes(0)}};
    problem.chain.layers.push_back(layer);
  }
  problem.devices.resize(2);
  problem.links.resize(1);
  return problem;
}

std::string error_of(const PartitionProblem& problem) {
  return error_text<ConfigError>([&] { const SegmentCosts costs(problem); });
}

struct Wrong {
  const char* what;
  std::function<void(PartitionProblem&)> make;
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

const std::vector<Wrong> kWrongs{
    {"no layers", [](auto& p) { p.chain.layers.clear(); }},
    {"no time", [](auto& p) { p.chain.layers[1].forward_seconds = kNotMeasured; }},
    {"negative time", [](auto& p) { p.chain.layers[2].backward_seconds = -1; }},
    {"endless time", [](auto& p) { p.chain.layers[2].backward_seconds = kInfinite; }},
    {"longer than any search looks", [](auto& p) { p.chain.layers[2].forward_seconds = 1e31; }},
    {"negative recompute time", [](auto& p) { p.chain.layers[0].recompute[0].seconds = -2; }},
    {"recompute point that keeps more",
     [](auto& p) { p.chain.layers[0].recompute[0].stash = Bytes(101); }},
    {"static ratio below weights", [](auto& p) { p.chain.layers[0].static_ratio = 0.5; }},
    {"border backwards",
     [](auto& p) {
       p.chain.borders = {{2, {1}, Bytes(1)}};
     }},
    {"border to nowhere",
     [](auto& p) {
       p.chain.borders = {{2, {9}, Bytes(1)}};
     }},
    {"tie of one",
     [](auto& p) {
       p.chain.ties = {{{1}, Bytes(1)}};
     }},
    {"tie twice",
     [](auto& p) {
       p.chain.ties = {{{1, 1}, Bytes(1)}};
     }},
    {"tie of more than there is",
     [](auto& p) {
       p.chain.ties = {{{1, 2}, Bytes(11)}};
     }},
    {"tie of a frozen layer",
     [](auto& p) {
       p.chain.ties = {{{1, 2}, Bytes(5)}};
       p.chain.layers[2].is_frozen = true;
     }},
    {"group backwards",
     [](auto& p) {
       p.chain.together = {{2, 1}};
     }},
    {"group to nowhere",
     [](auto& p) {
       p.chain.together = {{2, 4}};
     }},
    {"no devices", [](auto& p) { p.devices.clear(); }},
    {"more stages than layers", [](auto& p) { p.devices.resize(5); }},
    {"more stages than groups",
     [](auto& p) {
       p.devices.resize(3);
       p.chain.together = {{0, 2}};
     }},
    {"still device", [](auto& p) { p.devices[1].slowdown = 0; }},
    {"reserved too much",
     [](auto& p) {
       p.devices[0].memory = Bytes(10);
       p.devices[0].reserved = Bytes(11);
     }},
    {"reserved a byte too much",
     [](auto& p) {
       p.devices[0].memory = 2_GiB;
       p.devices[0].reserved = 2_GiB + 1_B;
     }},
    {"free swaps", [](auto& p) { p.devices[0].swap_rate = TransferRate::unlimited(); }},
    {"swaps backwards", [](auto& p) { p.devices[0].swap_rate = TransferRate(-1); }},
    {"swaps that never end", [](auto& p) { p.devices[0].swap_rate = TransferRate(1e-310); }},
    {"slower than counts", [](auto& p) { p.devices[0].slowdown = 1e300; }},
    {"links missing", [](auto& p) { p.links.resize(2); }},
    {"negative link", [](auto& p) { p.links[0].latency_seconds = -1; }},
    {"link without a rate", [](auto& p) { p.links[0].rate = TransferRate(); }},
    {"nothing in flight", [](auto& p) { p.devices[1].held.in_flight = 0; }},
    {"layer too large while nothing is swapped, nearest to the last stage",
     [](auto& p) {
       for (StageDevice& device : p.devices) device.memory = Bytes(100);
       p.devices[0].held.in_flight = 2;
       for (ModelLayer& layer : p.chain.layers) layer.recompute = {{1.0, Bytes(90)}};
     }},
    {"layer too large for any device",
     [](auto& p) { p.devices[0].memory = p.devices[1].memory = Bytes(30); }},
};

TEST(BadInput, IsRefusedInOneSentenceThatNamesIt) {
  GoldenPart golden;
  EXPECT_EQ(error_of(sound()), "accepted");
  for (const Wrong& wrong : kWrongs) {
    PartitionProblem problem = sound();
    wrong.make(problem);
    const std::string error = error_of(problem);
    EXPECT_EQ(error.find('\n'), std::string::npos);
    golden.add(wrong.what, error);
  }
}

TEST(BadInput, UpToWhatIsRefusedEveryPartitionerFindsCuts) {
  PartitionProblem problem = sound();
  for (ModelLayer& layer : problem.chain.layers) layer.backward_seconds = 1e9;
  for (StageDevice& device : problem.devices) device.slowdown = 1e9;
  const SegmentCosts costs(problem);
  for (const Partitioner& each : partitioners()) {
    SCOPED_TRACE(each.name);
    EXPECT_EQ(evaluate(costs, each.cut(costs)).stages.size(), 2U);
  }
}

TEST(BadInput, ManyGroupsAndTiesAreCountedAtOnce) {
  // 20,000 overlapping groups of up to 20,000 layers, all of them one unit; as many ties inside it.
  PartitionProblem problem = sound();
  problem.chain.layers.resize(20'000, problem.chain.layers.front());
  for (LayerIndex i = 0; i + 2 < 20'000; ++i) {
    problem.chain.together.push_back({i % 5, 19'998});
    if (i > 0) problem.chain.ties.push_back({{i - 1, i}, Bytes(1)});
  }
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.units(), 2U);
  EXPECT_EQ(costs.held_parameter_bytes(0, 1), 19'999 * 10 - 19'997);
  EXPECT_EQ(costs.static_bytes(0, 1), 4 * (19'999 * 10 - 19'997));
}

TEST(BadInput, WhatDoesNotFitSaysHowMuchIsMissing) {
  PartitionProblem problem = sound();
  // Each layer fits alone, two do not.
  problem.devices.assign(2, {.memory = Bytes(60)});
  const SegmentCosts costs(problem);
  EXPECT_FALSE(least_time_cuts(costs));
  GoldenPart golden;
  golden.add(error_text<PlanError>([&] { partitioner_named("spillway").cut(costs); }));
}

TEST(BadInput, OfInterleavingIsRefused) {
  EXPECT_THROW(interleaved(sound(), 0), ConfigError);
  EXPECT_THROW(interleaved(sound(), 3), ConfigError);  // 4 layers.
  EXPECT_EQ(interleaved(sound(), 2).devices.size(), 4U);
}

}  // namespace
}  // namespace spillway::partition
