#include "spillway/planner/chain_recomputation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "layer_chains.h"
#include "spillway/planner/strategies.h"
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
  const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  std::uint32_t compared = 0;
  for (std::uint32_t round = 0; round < tries(40, 6); ++round) {
    std::vector<ChainLayer> layers;
    for (std::uint32_t i = 0; i < 3 + round % 5; ++i)
      layers.push_back({1 + below(4), 1 + below(4), 50 + below(500), 100 + below(500)});
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

}  // namespace
}  // namespace spillway::planner
