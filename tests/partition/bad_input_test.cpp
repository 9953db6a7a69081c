#include <gmock/gmock.h>

#include <functional>

#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::planner {
namespace {

using ::testing::HasSubstr;

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
  try {
    const SegmentCosts costs(problem);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Wrong {
  const char* what;
  std::function<void(PartitionProblem&)> make;
  const char* sentence;
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

const std::vector<Wrong> kWrongs{
    {"no layers", [](auto& p) { p.chain.layers.clear(); }, "a model without layers"},
    {"no time", [](auto& p) { p.chain.layers[1].forward_seconds = kNotMeasured; },
     "layer 1 ('conv1') has no forward time; measure it"},
    {"negative time", [](auto& p) { p.chain.layers[2].backward_seconds = -1; },
     "layer 2 ('conv2') has backward time of -1 s"},
    {"endless time", [](auto& p) { p.chain.layers[2].backward_seconds = kInfinite; }, "of inf s"},
    {"longer than any search looks", [](auto& p) { p.chain.layers[2].forward_seconds = 1e31; },
     "forward time of 1e+31 s; measure it again, times are at least 0 and at most 1e+09 s"},
    {"negative recompute time", [](auto& p) { p.chain.layers[0].recompute[0].seconds = -2; },
     "recompute time of -2 s"},
    {"recompute point that keeps more",
     [](auto& p) { p.chain.layers[0].recompute[0].stash = Bytes(101); }, "more than its stash"},
    {"static ratio below weights", [](auto& p) { p.chain.layers[0].static_ratio = 0.5; },
     "static ratio of 0.5"},
    {"border backwards",
     [](auto& p) {
       p.chain.borders = {{2, {1}, Bytes(1)}};
     },
     "from layer 2 back to layer 1"},
    {"border to nowhere",
     [](auto& p) {
       p.chain.borders = {{2, {9}, Bytes(1)}};
     },
     "border tensor 0 names layer 9, and there are 4"},
    {"tie of one",
     [](auto& p) {
       p.chain.ties = {{{1}, Bytes(1)}};
     },
     "tie 0 names 1 layers"},
    {"tie twice",
     [](auto& p) {
       p.chain.ties = {{{1, 1}, Bytes(1)}};
     },
     "names layer 1 twice"},
    {"tie of more than there is",
     [](auto& p) {
       p.chain.ties = {{{1, 2}, Bytes(11)}};
     },
     "makes layer 1 ('conv1') share 11 B, and its parameters are 10 B"},
    {"tie of a frozen layer",
     [](auto& p) {
       p.chain.ties = {{{1, 2}, Bytes(5)}};
       p.chain.layers[2].is_frozen = true;
     },
     "which are trained differently"},
    {"group backwards",
     [](auto& p) {
       p.chain.together = {{2, 1}};
     },
     "swap its ends"},
    {"group to nowhere",
     [](auto& p) {
       p.chain.together = {{2, 4}};
     },
     "names layer 4"},
    {"no devices", [](auto& p) { p.devices.clear(); }, "there are no devices"},
    {"more stages than layers", [](auto& p) { p.devices.resize(5); },
     "more stages than layers: 5 for 4"},
    {"more stages than groups",
     [](auto& p) {
       p.devices.resize(3);
       p.chain.together = {{0, 2}};
     },
     "more stages than groups of layers that may be cut apart: 3 for 2"},
    {"still device", [](auto& p) { p.devices[1].slowdown = 0; }, "device 1 has a slowdown of 0"},
    {"reserved too much",
     [](auto& p) {
       p.devices[0].memory = Bytes(10);
       p.devices[0].reserved = Bytes(11);
     },
     "stage 0 needs 11 B for what is reserved and for transients, and has 10 B of its device"},
    {"free swaps", [](auto& p) { p.devices[0].swap_rate = TransferRate::unlimited(); },
     "device 0 swaps inf bytes/s"},
    {"swaps backwards", [](auto& p) { p.devices[0].swap_rate = TransferRate(-1); },
     "device 0 swaps -1 bytes/s"},
    {"swaps that never end", [](auto& p) { p.devices[0].swap_rate = TransferRate(1e-310); },
     "device 0 swaps 1e-310 bytes/s"},
    {"slower than counts", [](auto& p) { p.devices[0].slowdown = 1e300; },
     "device 0 has a slowdown of 1e+300"},
    {"links missing", [](auto& p) { p.links.resize(2); }, "2 stages have 2 links"},
    {"negative link", [](auto& p) { p.links[0].latency_seconds = -1; },
     "behind stage 0 takes -1 s"},
    {"link without a rate", [](auto& p) { p.links[0].rate = TransferRate(); },
     "behind stage 0 carries 0 bytes/s"},
    {"nothing in flight", [](auto& p) { p.devices[1].held.in_flight = 0; }, "stage 1 holds 0"},
    {"layer too large for any device",
     [](auto& p) { p.devices[0].memory = p.devices[1].memory = Bytes(30); },
     "layer 0 ('conv0') fits on no device"},
    {"layer too large for all that is there",
     [](auto& p) { p.devices[0].memory = p.devices[1].memory = Bytes(30); },
     "and a stage may hold 30 B"},
};

TEST(BadInput, IsRefusedInOneSentenceThatNamesIt) {
  EXPECT_EQ(error_of(sound()), "");
  for (const Wrong& wrong : kWrongs) {
    SCOPED_TRACE(wrong.what);
    PartitionProblem problem = sound();
    wrong.make(problem);
    const std::string error = error_of(problem);
    EXPECT_THAT(error, HasSubstr(wrong.sentence));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("\n")));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("{}")));
    EXPECT_THAT(error, ::testing::ContainsRegex("[;,:]"));
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
  try {
    partitioner_named("spillway").cut(costs);
    FAIL() << "they do not fit";
  } catch (const PlanError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no cuts of 4 layers for 2 stages fit"));
    EXPECT_THAT(error.what(), HasSubstr("the fullest one takes 80 B at least"));
  }
}

TEST(BadInput, OfInterleavingIsRefused) {
  EXPECT_THROW(interleaved(sound(), 0), ConfigError);
  EXPECT_THROW(interleaved(sound(), 3), ConfigError);  // 4 layers.
  EXPECT_EQ(interleaved(sound(), 2).devices.size(), 4U);
}

}  // namespace
}  // namespace spillway::planner
