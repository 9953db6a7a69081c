#include "planning/rebalance_command.h"

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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    store("2GiB");
  }

  void store(const std::string& device_memory) const {
    PlanOptions options;
    options.common.profile = profile_;
    options.job.ranks = "3";
    options.job.micro_batches = "6";
    options.job.schedule = "1f1b";
    options.job.link = "1";
    options.job.device_memory = device_memory;
    options.out = stored_;
    plan(options);
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

  PlanOptions rebalance() const {
    PlanOptions options;
    options.common.profile = drifted_;
    options.job.rebalance = stored_;
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
  PlanOptions options = rebalance();
  const json endless = told(options);
  EXPECT_TRUE(endless["steps_left"].is_null());
  EXPECT_TRUE(endless["gained_seconds"].is_null());
  const int steps = endless["pays_after_steps"];
  ASSERT_GT(steps, 1);
  options.job.steps_left = "100";
  const json paid = told(options);
  EXPECT_EQ(paid["steps_left"], 100);
  EXPECT_EQ(paid["moves"], endless["moves"]);
  EXPECT_NEAR(
      paid["gained_seconds"].get<double>(),
      100 * (paid["step_seconds_before"].get<double>() - paid["step_seconds"].get<double>()) -
          paid["move_seconds"].get<double>(),
      1e-9);
  options.job.steps_left = "1";
  const json stays = told(options);
  EXPECT_FALSE(stays["pays"]);
  EXPECT_TRUE(stays["moves"].empty());
  EXPECT_EQ(stays["moved_bytes"], 0);
  EXPECT_EQ(stays["step_seconds"], stays["step_seconds_before"]);
  EXPECT_TRUE(stays["pays_after_steps"].is_null());
  EXPECT_FALSE(stays["choices"].empty());
  EXPECT_THAT(plan(options),
              AllOf(HasSubstr("moves     nothing: the first move to pay does so after "),
                    HasSubstr("and 1 step is left"), HasSubstr("All choices")));
}

TEST_F(RebalanceCommand, TellsTheSameInWords) {
  PlanOptions options = rebalance();
  options.job.steps_left = "1000";
  const std::string text = plan(options);
  EXPECT_THAT(text, AllOf(HasSubstr("1f1b on 1 pipeline of 3 ranks, 6 micro-batches per step"),
                          HasSubstr("now as it is cut"), HasSubstr("240 MiB in 2 messages"),
                          HasSubstr("in 2 messages, 1 round at the end of a step"),
                          HasSubstr(" re-balanced (-"), HasSubstr("; the flush takes "),
                          HasSubstr(", which pays after "), HasSubstr(" in 1000 steps"),
                          HasSubstr("aten::convolution #7")));
  options.common.profile = profile_;
  EXPECT_THAT(plan(options),
              AllOf(HasSubstr("nothing: no move of layers makes"),
                    HasSubstr("now as it is cut, and stays so"), Not(HasSubstr("Moves:"))));
}

TEST_F(RebalanceCommand, HasTheDocumentedKeysAndNoOthers) {
  PlanOptions options = rebalance();
  options.job.steps_left = "100";
  const json plan = told(options);
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Re-balanced plans");
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"moves", "stages", "choices", "model"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
}

TEST_F(RebalanceCommand, StoresAPlanThatPassesItsCheckAndNeedsNoMoreMoves) {
  PlanOptions options = rebalance();
  options.out = in_folder("next.plan.json");
  EXPECT_THAT(plan(options), HasSubstr("plan --check"));
  PlanOptions check;
  check.job.check = options.out;
  EXPECT_THAT(plan(check), AllOf(HasSubstr("no deadlock"), HasSubstr("within 2.00 GiB")));
  EXPECT_EQ(told(check)["step_seconds"], told(rebalance())["step_seconds"]);

  PlanOptions again = rebalance();
  again.job.rebalance = options.out;
  const json settled = told(again);
  EXPECT_FALSE(settled["pays"]);
  EXPECT_TRUE(settled["choices"].empty());
  EXPECT_EQ(settled["step_seconds"], settled["planned_step_seconds"]);
}

TEST_F(RebalanceCommand, StoresActionsAloneAndKeepsTheMachine) {
  PlanOptions options = rebalance();
  options.out = in_folder("next.csv");
  EXPECT_THAT(plan(options), HasSubstr("actions stored in "));
  PlanOptions check;
  check.job.check = options.out;
  EXPECT_THAT(plan(check), HasSubstr("nothing of memory"));

  PlanOptions on_machine;
  on_machine.common.profile = profile_;
  on_machine.job.ranks = "3";
  on_machine.job.micro_batches = "6";
  on_machine.job.schedule = "1f1b";
  on_machine.job.topology = std::string(SPILLWAY_TEST_CLUSTERS) + "/dgx_a100.json";
  on_machine.out = stored_;
  plan(on_machine);
  options.out = in_folder("next.plan.json");
  plan(options);
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
  PlanOptions options;
  options.common.profile = branches({4, 6, 2}, "branches.json");
  options.job.ranks = "2";
  options.job.micro_batches = "4";
  options.job.schedule = "1f1b";
  options.out = in_folder("branches.plan.json");
  ASSERT_NE(told(options)["order"]["name"], "recorded");
  PlanOptions later;
  later.common.profile = branches({4, 6, 9}, "later.json");
  later.job.rebalance = options.out;
  later.out = in_folder("later.plan.json");
  told(later);
  EXPECT_EQ(json::parse(file_text(later.out))["order"],
            json::parse(file_text(options.out))["order"]);
}

TEST_F(RebalanceCommand, RefusesWordsThatContradictThePlan) {
  const auto refused = [&](auto&& change) {
    PlanOptions options = rebalance();
    change(options);
    return plan_refusal(options);
  };
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.ranks = "4"; }),
              AllOf(HasSubstr("--ranks 4 contradicts "), HasSubstr("job.plan.json, which has 3")));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.micro_batches = "12"; }),
              HasSubstr("--micro-batches 12 contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.data_parallel = "3"; }),
              HasSubstr("--data-parallel 3 contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.batch = "7"; }),
              HasSubstr("--batch 7 contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.schedule = "gpipe"; }),
              HasSubstr("--schedule gpipe contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.schedule = "auto"; }),
              HasSubstr("--schedule auto contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.device_memory = "1GiB"; }),
              HasSubstr("--device-memory 1GiB contradicts "));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.link = "12"; }),
              AllOf(HasSubstr("--link 12 contradicts "), HasSubstr("1.00 GB/s")));
  EXPECT_THAT(refused([](PlanOptions& options) { options.common.rates.host_memory = "1GiB"; }),
              HasSubstr("has no link to the host"));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.partitioner = "even"; }),
              HasSubstr("--partitioner even has no place beside --rebalance"));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.topology = "dgx_a100"; }),
              HasSubstr("--topology dgx_a100 has no place beside --rebalance"));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.compare = true; }),
              HasSubstr("--compare has no place"));
  EXPECT_THAT(refused([](PlanOptions& options) { options.common.budget = "1GiB"; }),
              HasSubstr("--budget 1GiB is about one device"));
  EXPECT_THAT(refused([](PlanOptions& options) { options.job.steps_left = "0"; }),
              HasSubstr("--steps-left"));
  // The same words again are none, and neither is what the plan does not hold.
  PlanOptions same = rebalance();
  same.job.ranks = "3";
  same.job.micro_batches = "6";
  same.job.schedule = "1f1b";
  same.job.device_memory = "2GiB";
  same.job.link = "1";
  same.common.rates.link_out = same.common.rates.link_in = "8";
  same.common.rates.host_memory = "1GiB";
  EXPECT_EQ(told(same)["moves"], told(rebalance())["moves"]);
}

TEST_F(RebalanceCommand, RefusesFilesThatDoNotBelongTogether) {
  PlanOptions options = rebalance();
  options.common.profile.clear();
  EXPECT_THAT(plan_refusal(options), HasSubstr("PROFILE is missing"));
  options.job.rebalance.clear();
  options.job.steps_left = "7";
  EXPECT_THAT(plan_refusal(options), HasSubstr("--steps-left 7 belongs to --rebalance"));

  options = rebalance();
  write(drifted_, profile::to_text(small_layers(11)));
  EXPECT_THAT(plan_refusal(options),
              AllOf(HasSubstr("job.plan.json: this plan is of another model: 13 layers"),
                    HasSubstr("drifted.profile.json has 12")));
  profile::StepProfile renamed = small_layers();
  renamed.kinds[0].name = "aten::linear";
  write(drifted_, profile::to_text(renamed));
  EXPECT_THAT(plan_refusal(options), HasSubstr("this plan is of another model"));
  options.job.rebalance = drifted_;
  EXPECT_NE(plan_refusal(options), "accepted");
  options = rebalance();
  options.out = stored_;
  EXPECT_THAT(plan_refusal(options), HasSubstr("--out"));
}

TEST_F(RebalanceCommand, SaysWhyNothingFitsAnyMore) {
  // Weights became twice as large: no rank of three has room for a third of them.
  store("640MiB");
  write(drifted_, profile::to_text(chain_profile(
                      {.layers = kLayers, .activation_pages = 1, .parameter_pages = 2 * kPages})));
  EXPECT_THAT(plan_refusal(rebalance()),
              HasSubstr("no moves between neighbours make the stages fit again: "));
}

}  // namespace
}  // namespace spillway::cli
