#include "spillway/planner/chain_recomputation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "layer_chains.h"
#include "spillway/planner/strategies.h"
#include "support/published_chain.h"
#include "support/reference_data.h"
#include "support/sanitized.h"

namespace spillway::planner {
namespace {

/// Every persistent schedule of a chain of layers, written down as replays. Knows nothing of costs.
class Schedules {
 public:
  explicit Schedules(std::uint32_t layers) : layers_(layers) {}

  std::vector<std::vector<Replay>> all() const { return part(0, layers_ - 1); }

 private:
  using List = std::vector<std::vector<Replay>>;

  bool is_first(std::uint32_t to) const { return to + 1 == layers_; }
  OpIndex backward(std::uint32_t layer) const { return 2 * layers_ - 1 - layer; }

  /// Layers [from, to], the input of `from` being there, before the backward of `to`.
  List part(std::uint32_t from, std::uint32_t to) const {
    List found;
    std::vector<Replay> run;
    if (!is_first(to)) run.push_back({backward(to), from});
    if (from == to) return {run};
    append(found, run, {{}}, part(from + 1, to));
    run.clear();
    for (std::uint32_t next = from + 1; next <= to; ++next) {
      if (!is_first(to)) run.push_back({backward(to), next - 1});
      append(found, run, part(from, next - 1), part(next, to));
    }
    return found;
  }

  static void append(List& found, const std::vector<Replay>& run, const List& earlier,
                     const List& later) {
    for (const auto& behind : later) {
      for (const auto& before : earlier) {
        std::vector<Replay> replays = run;
        replays.insert(replays.end(), behind.begin(), behind.end());
        replays.insert(replays.end(), before.begin(), before.end());
        found.push_back(std::move(replays));
      }
    }
  }

  std::uint32_t layers_;
};

TEST(Rotor, FindsTheLeastTimeOfAllPersistentSchedules) {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  std::uint32_t compared = 0;
  for (std::uint32_t round = 0; round < tries(42U, 6U); ++round) {
    std::vector<ChainLayer> layers;
    for (std::uint32_t i = 0; i < 3 + round % 6; ++i)
      layers.push_back({1 + below(4), below(4), 50 + below(500), 100 + below(500)});
    // More than the first gradient, so that the tape tells where forward ends.
    layers.back().inside = 4;
    const StepTape tape = layer_chain(layers);
    std::map<std::uint32_t, double> least;  // Seconds by peak.
    for (const auto& replays : Schedules(static_cast<std::uint32_t>(layers.size())).all()) {
      const std::uint32_t peak = live_peak(rewrite_tape(tape, replays).tape);
      const double time = replay_seconds(tape, replays);
      const auto known = least.try_emplace(peak, time).first;
      known->second = std::min(known->second, time);
    }
    for (std::uint32_t budget = least.begin()->first; budget < live_peak(tape); ++budget) {
      SCOPED_TRACE(::testing::Message() << "round " << round << " budget " << budget);
      double expected = 1e9;
      for (const auto& [peak, time] : least)
        if (peak <= budget) expected = std::min(expected, time);
      SwapLimits limits;
      limits.budget_pages = budget;
      const StepPlan plan = strategy_named("rotor").plan(tape, limits);
      EXPECT_LE(live_peak(plan.steps.tape), budget);
      EXPECT_NEAR(plan.replay_seconds, expected, 1e-9);
      EXPECT_EQ(plan.swaps.estimate.read_pages, 0U);
      ++compared;
    }
  }
  EXPECT_GT(compared, tries(200U, 20U));
}

/// The milliseconds of a chain, and how many times as long it takes with so little memory; 0 where
/// that is too little.
struct Optimum {
  double total_ms;
  double slowdown;
};

/// For whole networks the figures that the README of the reference data gives for this dynamic
/// program; for extracts those of a program of our own, in Python, that gives the former as well.
struct PublishedOptimum {
  const char* network;
  double share;  ///< Of the sum of activations.
  Optimum whole;
  Optimum extract;
};
constexpr PublishedOptimum kOptima[] = {
    {"vgg16", 0.75, {672.5, 1.123}, {672.5, 1.1226}},
    {"vgg16", 0.5, {672.5, 1.204}, {672.5, 1.2045}},
    {"vgg16", 0.25, {672.5, 0.0}, {672.5, 0.0}},
    {"resnet50", 0.75, {443.4, 1.106}, {181.9, 1.1537}},
    {"resnet50", 0.5, {443.4, 1.178}, {181.9, 1.2394}},
    {"resnet50", 0.25, {443.4, 1.311}, {181.9, 0.0}},
    {"resnet50", 0.15, {443.4, 0.0}, {181.9, 0.0}},
};
constexpr std::uint32_t kPublishedSlots = 60;

class PublishedOptima : public ::testing::TestWithParam<PublishedOptimum> {};
INSTANTIATE_TEST_SUITE_P(Networks, PublishedOptima, ::testing::ValuesIn(kOptima));

void expect_optimum(const PublishedChain& chain, double share, const Optimum& expected) {
  double total = 0.0;
  double bytes = 0.0;
  for (const auto& block : chain.blocks) {
    total += block.forward + block.backward;
    bytes += block.all;
  }
  EXPECT_NEAR(total, expected.total_ms, 0.1);
  const double slot = bytes * share / kPublishedSlots;
  const auto slots = [&](double size) {
    return static_cast<std::uint32_t>(std::ceil(size / slot - 1e-9));
  };
  std::vector<ChainCosts> costs;
  std::uint32_t input = 0;
  for (const auto& block : chain.blocks) {
    // Gradients are as large as what they belong to.
    const std::uint32_t output = slots(block.output);
    const std::uint32_t all = slots(block.all);
    const std::uint32_t last = slots(chain.blocks.back().output);
    costs.push_back({.boundary_seconds = block.forward,
                     .all_seconds = block.forward,
                     .last_seconds = block.forward,
                     .boundary = output,
                     .stash = all,
                     .first_boundary_peak = last + output,
                     .first_all_peak = last + all,
                     .boundary_peak = output,
                     .all_peak = all,
                     .last_peak = all,
                     .held_before_backward = output,
                     .backward_peak = std::max(input, output) + all});
    input = output;
  }
  const auto schedule = cheapest_reruns(costs, kPublishedSlots);
  ASSERT_EQ(schedule.has_value(), expected.slowdown > 0.0);
  if (!schedule) return;
  const double slowdown = 1.0 + schedule->rerun_seconds / total;
  EXPECT_NEAR(slowdown, expected.slowdown, 0.01 * expected.slowdown);
}

TEST_P(PublishedOptima, AreReproduced) {
  for (const ReferenceFile& file :
       reference_files(std::string("pipedream/") + GetParam().network + ".graph.txt")) {
    SCOPED_TRACE(file);
    expect_optimum(PublishedChain(file.path), GetParam().share,
                   file.is_whole ? GetParam().whole : GetParam().extract);
  }
}

}  // namespace
}  // namespace spillway::planner
