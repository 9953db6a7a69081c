#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "planning_command.h"
#include "spillway/profile/import/trace_import.h"
#include "support/branched_graph.h"
#include "support/documented_keys.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

/// Twelve layers and a loss, four of them on each of three ranks, and a profile in which those of
/// the first rank became slower.
class RebalanceCommand : public PlanningCommand {
 protected:
  static constexpr std::uint32_t kLayers = 12;
  static constexpr std::uint32_t kPages = 20;
  static constexpr std::uint64_t kLayerBytes =
      3 * kPages * (2U << 20U);  // With gradient and state.

  RebalanceCommand() {
    write(profile_, profile::to_text(small_layers()));
    write(drifted_, profile::to_text(slower(4, 1.5)));
    store(2_GiB);
  }

  void store(Bytes device_memory) const {
    JobOptions options;
    options.profile = profile_;
    options.request.ranks = 3;
    options.micro_batches = 6;
    take_schedule("1f1b", options.request);
    options.request.link.rate = TransferRate(1e9);
    options.request.device_memory = device_memory;
    options.out = stored_;
    output(options);
  }

  static profile::StepProfile small_layers(std::uint32_t layers = kLayers) {
    return chain_profile({.layers = layers, .activation_pages = 1, .parameter_pages = kPages});
  }

  /// Forward and backward of the first layers take so many times as long.
  static profile::StepProfile slower(std::uint32_t layers, double factor) {
    profile::StepProfile profile = small_layers();
    const auto stretch = [&](std::size_t op) {
      Duration& time = profile.tape.ops[op].time;
      time = Duration(std::llround(static_cast<double>(time.count()) * factor));
    };
    for (std::uint32_t i = 0; i < layers; ++i) {
      stretch(i);
      stretch(kLayers + 1 + kLayers - 1 - i);  // Behind the loss, from the last layer back.
    }
    return profile;
  }

  RebalanceOptions rebalance() const {
    RebalanceOptions options;
    options.profile = drifted_;
    options.plan = stored_;
    return options;
  }

  const std::string drifted_ = in_folder("drifted.profile.json");
  const std::string stored_ = in_folder("job.plan.json");
};

TEST_F(RebalanceCommand, MovesTheExpectedLayers) {
  const json told_now = told(rebalance());
  // 18 ms for each of four layers, 12 ms for the others, and the loss of 1 ms: 72, 48 and 49 ms
  // become 54, 18 + 3 * 12 = 54 and 5 * 12 + 1 = 61 ms.
  ASSERT_EQ(told_now["moves"].size(), 2U);
  const json& first = told_now["moves"][0];
  EXPECT_EQ(first["first"], 3);
  EXPECT_EQ(first["last"], 3);
  EXPECT_EQ(first["first_name"], "aten::convolution #3");
  EXPECT_EQ(first["from_rank"], 0);
  EXPECT_EQ(first["to_rank"], 1);
  EXPECT_EQ(first["round"], 0);
  EXPECT_EQ(first["bytes"], kLayerBytes);
  EXPECT_NEAR(first["seconds"].get<double>(), static_cast<double>(kLayerBytes) / 1e9, 1e-9);
  const json& second = told_now["moves"][1];
  EXPECT_EQ(second["first"], 7);
  EXPECT_EQ(second["last"], 7);
  EXPECT_EQ(second["from_rank"], 1);
  EXPECT_EQ(second["to_rank"], 2);
  EXPECT_EQ(told_now["moved_bytes"], 2 * kLayerBytes);
  EXPECT_EQ(told_now["rounds"], 1);
  // Both links at the same time.
  EXPECT_EQ(told_now["move_seconds"], first["seconds"]);
  EXPECT_NEAR(told_now["stages"][0]["seconds_before"].get<double>(), 0.072, 1e-4);
  EXPECT_NEAR(told_now["stages"][2]["seconds"].get<double>(), 0.061, 1e-4);
  EXPECT_EQ(told_now["stages"][2]["first_before"], 8);

  const double before = told_now["step_seconds_before"];
  const double after = told_now["step_seconds"];
  EXPECT_LT(after, before);
  EXPECT_GT(before, told_now["planned_step_seconds"].get<double>());
  const double steps = told_now["pays_after_steps"];
  const double cost = told_now["move_seconds"];
  EXPECT_GT(steps * (before - after), cost);
  EXPECT_LE((steps - 1) * (before - after), cost);
}

TEST_F(RebalanceCommand, StaysWhereTheStepsThatAreLeftDoNotPay) {
  RebalanceOptions options = rebalance();
  const json endless = told(options);
  EXPECT_TRUE(endless["steps_left"].is_null());
  EXPECT_TRUE(endless["gained_seconds"].is_null());
  const int steps = endless["pays_after_steps"];
  ASSERT_GT(steps, 1);
  options.steps_left = 100;
  const json paid = told(options);
  EXPECT_EQ(paid["steps_left"], 100);
  EXPECT_EQ(paid["moves"], endless["moves"]);
  EXPECT_NEAR(
      paid["gained_seconds"].get<double>(),
      100 * (paid["step_seconds_before"].get<double>() - paid["step_seconds"].get<double>()) -
          paid["move_seconds"].get<double>(),
      1e-9);
  options.steps_left = 1;
  const json stays = told(options);
  EXPECT_FALSE(stays["pays"]);
  EXPECT_TRUE(stays["moves"].empty());
  EXPECT_EQ(stays["moved_bytes"], 0);
  EXPECT_EQ(stays["step_seconds"], stays["step_seconds_before"]);
  EXPECT_TRUE(stays["pays_after_steps"].is_null());
  EXPECT_FALSE(stays["choices"].empty());
}

TEST_F(RebalanceCommand, HasTheDocumentedKeysAndNoOthers) {
  RebalanceOptions options = rebalance();
  options.steps_left = 100;
  const json plan = told(options);
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Re-balanced plans");
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"moves", "stages", "choices", "model"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
}

TEST_F(RebalanceCommand, StoresAPlanThatPassesItsCheckAndNeedsNoMoreMoves) {
  RebalanceOptions options = rebalance();
  options.out = in_folder("next.plan.json");
  output(options);
  CheckOptions check;
  check.plan = options.out;
  EXPECT_EQ(told(check)["step_seconds"], told(rebalance())["step_seconds"]);

  RebalanceOptions again = rebalance();
  again.plan = options.out;
  const json settled = told(again);
  EXPECT_FALSE(settled["pays"]);
  EXPECT_TRUE(settled["choices"].empty());
  EXPECT_EQ(settled["step_seconds"], settled["planned_step_seconds"]);
}

TEST_F(RebalanceCommand, StoresActionsAloneAndKeepsTheMachine) {
  RebalanceOptions options = rebalance();
  options.out = in_folder("next.csv");
  output(options);
  CheckOptions check;
  check.plan = options.out;
  EXPECT_EQ(told(check)["knows_memory"], false);

  JobOptions on_machine;
  on_machine.profile = profile_;
  on_machine.request.ranks = 3;
  on_machine.micro_batches = 6;
  take_schedule("1f1b", on_machine.request);
  on_machine.cluster = std::string(SPILLWAY_TEST_CLUSTERS) + "/dgx_a100.json";
  on_machine.out = stored_;
  output(on_machine);
  options.out = in_folder("next.plan.json");
  output(options);
  const json stored = json::parse(file_text(stored_));
  ASSERT_FALSE(stored["cluster"].empty());
  EXPECT_EQ(json::parse(file_text(options.out))["cluster"], stored["cluster"]);
}

TEST_F(RebalanceCommand, KeepsTheOrderOfBranches) {
  const auto branches = [&](const std::vector<double>& lengths, const std::string& name) {
    write(in_folder(name),
          profile::to_text(profile::import_pipedream(branched_graph(lengths), name)));
    return in_folder(name);
  };
  JobOptions options;
  options.profile = branches({4, 6, 2}, "branches.json");
  options.request.ranks = 2;
  options.micro_batches = 4;
  take_schedule("1f1b", options.request);
  options.out = in_folder("branches.plan.json");
  ASSERT_NE(told(options)["order"]["name"], "recorded");
  RebalanceOptions later;
  later.profile = branches({4, 6, 9}, "later.json");
  later.plan = options.out;
  later.out = in_folder("later.plan.json");
  told(later);
  EXPECT_EQ(json::parse(file_text(later.out))["order"],
            json::parse(file_text(options.out))["order"]);
}

// The same again is none, and neither is what the plan does not hold.
TEST_F(RebalanceCommand, TakesOptionsThatDoNotContradictThePlan) {
  RebalanceOptions same = rebalance();
  same.device_memory = 2_GiB;
  same.link = TransferRate(1e9);
  same.rates.link_out = same.rates.link_in = TransferRate(8e9);
  same.rates.host_memory = 1_GiB;
  EXPECT_EQ(told(same)["moves"], told(rebalance())["moves"]);
}

}  // namespace
}  // namespace spillway::cli
