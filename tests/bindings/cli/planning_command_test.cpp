#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "planning_command.h"
#include "spillway/planner/strategies.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

TEST_F(PlanningCommand, TellsOfSmallTensors) {
  auto profile = chain_profile();
  profile.small_bytes = 1_GiB;
  write(profile_, profile::to_text(profile));
  EXPECT_EQ(told(options("95%")).at("small_bytes"), (1_GiB).count());
}

TEST_F(PlanningCommand, SurvivesAStepThatTakesNoTime) {
  const Duration none{0};
  write(profile_,
        profile::to_text(chain_profile({.forward = none, .backward = none, .optimizer = none})));
  EXPECT_EQ(told(options("2GiB")).at("gap"), 0.0);
}

TEST_F(PlanningCommand, GivesFiguresThatAgree) {
  PlanOptions asked = options("50%");
  asked.common.json = true;
  const json figures = json::parse(output(asked));
  EXPECT_EQ(figures.at("strategy"), "spillway");
  const double step = figures.at("step_seconds");
  const double bound = figures.at("bound_seconds");
  EXPECT_GE(step, bound);
  EXPECT_GE(bound, figures.at("incore_seconds").get<double>());
  EXPECT_DOUBLE_EQ(figures.at("gap"), step / bound - 1.0);
  EXPECT_LE(figures.at("peak_bytes"), figures.at("budget_bytes"));
  EXPECT_LE(figures.at("smallest_budget_bytes"), figures.at("budget_bytes"));
  EXPECT_EQ(figures.at("budget_bytes").get<std::uint64_t>(),
            figures.at("needed_bytes").get<std::uint64_t>() / 2);
  EXPECT_EQ(figures.at("swapped_bytes").get<std::uint64_t>(),
            figures.at("swapped_out_bytes").get<std::uint64_t>() +
                figures.at("swapped_in_bytes").get<std::uint64_t>());
  EXPECT_GT(figures.at("swapped_bytes"), 0);
  EXPECT_TRUE(figures.at("recompute_seconds").is_number());
  EXPECT_EQ(figures.at("planning_seconds"), 0.0);  // The clock stands still.
  EXPECT_EQ(figures.at("smallest_budget_operator"),
            "aten::convolution_backward (float[1, 8, 64, 64])");
  double waited = 0.0;
  for (const json& cause : figures.at("stalls_by_operator"))
    waited += cause.at("seconds").get<double>();
  EXPECT_NEAR(waited, figures.at("stall_seconds"), 1e-9);
  EXPECT_EQ(figures.at("rates").at("write_bytes_per_second"), 1.5e9);
}

TEST_F(PlanningCommand, ComparesAllStrategiesByTime) {
  PlanOptions asked = options("50%");
  asked.common.strategies = all_strategies();
  asked.common.json = true;
  const json list = json::parse(output(asked));
  ASSERT_EQ(list.size(), planner::strategies().size());
  double last = 0.0;
  for (const json& figures : list) {
    if (!figures.at("is_possible").get<bool>()) {
      EXPECT_NE(figures.at("refusal"), "");
      last = 1e9;
      continue;
    }
    EXPECT_GE(figures.at("step_seconds"), last);
    last = figures.at("step_seconds");
  }
}

TEST_F(PlanningCommand, StoresAPlanThatSimulatesToTheSameFigures) {
  PlanOptions asked = options("40%");
  asked.out = in_folder("chain.plan.json");
  asked.common.json = true;
  asked.common.rates = {.link_out = TransferRate(3e9), .link_in = TransferRate(4e9)};
  json planned = json::parse(output(asked));
  SimulateOptions again = simulate_options(asked.out);
  again.common.json = true;
  json simulated = json::parse(output(again));
  EXPECT_EQ(simulated.at("rates").at("source"), "of the plan");
  for (json* figures : {&planned, &simulated}) {
    figures->at("rates").erase("source");
    figures->erase("search_was_cut");
  }
  EXPECT_EQ(simulated.erase("model_seconds"), 1U);
  EXPECT_EQ(simulated, planned);
}

TEST_F(PlanningCommand, PlansForTwoTiersAndTellsBytesOfEach) {
  PlanOptions asked = options("40%");
  asked.out = in_folder("chain.plan.json");
  asked.common.rates = {.link_out = TransferRate(8e9),
                        .link_in = TransferRate(8e9),
                        .host_memory = 24_MiB,
                        .disk_out = TransferRate(2e9),
                        .disk_in = TransferRate(3e9)};
  asked.common.json = true;
  json planned = json::parse(output(asked));
  EXPECT_EQ(planned.at("host_memory_bytes"), 24 << 20);
  EXPECT_EQ(planned.at("disk_rates").at("read_bytes_per_second"), 3e9);
  EXPECT_LE(planned.at("host_peak_bytes"), 24 << 20);
  EXPECT_GT(planned.at("host_out_bytes"), 0);
  EXPECT_GT(planned.at("disk_out_bytes"), 0);
  EXPECT_EQ(planned.at("host_out_bytes").get<int>() + planned.at("disk_out_bytes").get<int>(),
            planned.at("swapped_out_bytes"));
  EXPECT_EQ(planned.at("host_in_bytes").get<int>() + planned.at("disk_in_bytes").get<int>(),
            planned.at("swapped_in_bytes"));
  EXPECT_GE(planned.at("step_seconds"), planned.at("bound_seconds"));

  SimulateOptions again = simulate_options(asked.out);
  again.common.json = true;
  again.trace = in_folder("step.json");
  json simulated = json::parse(output(again));
  for (json* figures : {&planned, &simulated}) {
    figures->at("rates").erase("source");
    figures->at("disk_rates").erase("source");
    figures->erase("search_was_cut");
  }
  EXPECT_EQ(simulated.erase("model_seconds"), 1U);
  EXPECT_EQ(simulated, planned);
  std::set<std::string> lanes;
  const json document = json::parse(file_text(again.trace));
  for (const json& event : document.at("traceEvents"))
    if (event.at("name") == "thread_name") lanes.insert(event.at("args").at("name"));
  EXPECT_EQ(lanes.size(), 6U);
  EXPECT_EQ(lanes.count("write-out to disk"), 1U);
  // The link alone instead: what the plan would do without an end of the host's memory.
  again.common.rates = {.link_out = TransferRate(8e9), .link_in = TransferRate(8e9)};
  EXPECT_FALSE(json::parse(output(again)).contains("disk_out_bytes"));
}

TEST_F(PlanningCommand, SimulatesAStoredPlanWithOtherRates) {
  PlanOptions asked = options("40%");
  asked.out = in_folder("chain.plan.json");
  asked.common.rates = {.link_out = TransferRate(8e9), .link_in = TransferRate(8e9)};
  output(asked);
  SimulateOptions slower = simulate_options(asked.out);
  slower.common.json = true;
  const double before = json::parse(output(slower)).at("step_seconds");
  slower.common.rates = {.link_out = TransferRate(1e9), .link_in = TransferRate(1e9)};
  const json after = json::parse(output(slower));
  EXPECT_GT(after.at("step_seconds"), before);
  EXPECT_GE(after.at("step_seconds"), after.at("bound_seconds"));
}

TEST_F(PlanningCommand, SimulatesWhatItPlansItself) {
  SimulateOptions asked = simulate_options("");
  asked.common.budget = budgets().read("--budget", "50%");
  asked.trace = in_folder("step.json");
  output(asked);
  EXPECT_GT(json::parse(file_text(asked.trace)).at("traceEvents").size(), 30U);
}

/// A second passes whenever somebody looks.
class ImpatientClock final : public Clock {
 public:
  TimePoint now() const override { return time_ += std::chrono::seconds(1); }

 private:
  mutable TimePoint time_{};
};

TEST_F(PlanningCommand, EndsItsSearchWhenItsTimeIsOver) {
  PlanOptions asked = options("45%");
  asked.common.json = true;
  asked.common.effort = 5.0;
  std::ostringstream out;
  plan_from_profile(asked, out, ImpatientClock());
  const json figures = json::parse(out.str());
  EXPECT_TRUE(figures.at("search_was_cut").get<bool>());
  asked.common.budget = budgets().read("--budget", "2GiB");  // Nothing to search.
  EXPECT_FALSE(json::parse(output(asked)).at("search_was_cut").get<bool>());
}

TEST_F(PlanningCommand, EndsTheSearchOfEachOfOurStrategies) {
  const auto was_cut = [&](const char* strategy) {
    write(profile_, profile::to_text(chain_profile({.layers = 6})));
    PlanOptions asked = options("45%");
    asked.common.strategies = {planner::strategy_named(strategy)};
    asked.common.json = true;
    asked.common.effort = 1.0;
    std::ostringstream out;
    plan_from_profile(asked, out, ImpatientClock());
    return json::parse(out.str()).at("search_was_cut").get<bool>();
  };
  EXPECT_TRUE(was_cut("spillway"));
  EXPECT_TRUE(was_cut("offload-only"));
  EXPECT_FALSE(was_cut("capuchin"));
}

/// Takes nobody's word for when to stop.
planner::StepPlan plan_without_end(const profile::StepTape& tape, const planner::SwapLimits& limits,
                                   const planner::StopCheck& should_stop) {
  if (should_stop) throw PlanError("told to stop");
  return planner::plan_with_replays(tape, {}, limits);
}

TEST_F(PlanningCommand, ShowsPublishedStrategiesWhole) {
  const PlanningStep step = to_step(chain_profile(), "chain");
  const Bytes budget = step.needed / 2;
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, {}), BoundEffort::kQuick);
  const planner::Strategy published{"published", "", "a paper", plan_without_end};
  EXPECT_EQ(plan_with(published, planning, 1.0, ImpatientClock()).figures.refusal, "");
  const planner::Strategy ours{"ours", "", "", plan_without_end};
  EXPECT_EQ(plan_with(ours, planning, 1.0, ImpatientClock()).figures.refusal, "told to stop");
}

TEST_F(PlanningCommand, TellsOfAStrategyThatRunsOutOfMemory) {
  const PlanningStep step = to_step(chain_profile(), "chain");
  const planner::Strategy hungry{
      "hungry", "", "",
      [](const planner::StepTape&, const planner::SwapLimits&,
         const planner::StopCheck&) -> planner::StepPlan { throw std::bad_alloc(); }};
  const Bytes budget = step.needed / 2;
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, {}), BoundEffort::kQuick);
  const PlanFigures figures = plan_with(hungry, planning, 0.0, clock_).figures;
  EXPECT_FALSE(figures.is_possible());
  EXPECT_TRUE(figures.ran_out_of_memory);
  EXPECT_EQ(figures.refusal, message("memory ran out while it planned a step of {} operators",
                                     step.profile.tape.ops.size()));
}

/// What reads a parameter would run again behind the optimizer.
planner::StepPlan plan_behind_the_update(const profile::StepTape& tape,
                                         const planner::SwapLimits& limits,
                                         const planner::StopCheck& /*should_stop*/) {
  const auto last = static_cast<planner::OpIndex>(tape.ops.size() - 1);
  return planner::plan_with_replays(tape, {{last, 0}}, limits);
}

TEST_F(PlanningCommand, TellsWhichTensorAReplayWouldFindChanged) {
  const planner::Strategy late{"late", "", "", plan_behind_the_update};
  const PlanningStep step = to_step(chain_profile(), "chain");
  const Bytes budget = step.needed / 2;
  const PlanningCase planning =
      case_for(step, budget, limits_for(step, budget, {}), BoundEffort::kQuick);
  const PlanFigures figures = plan_with(late, planning, 0.0, clock_).figures;
  EXPECT_TRUE(figures.cannot_replay);
  GoldenPart golden;
  golden.add(figures.refusal);
}

TEST_F(PlanningCommand, JudgesAllStrategiesByOneBoundThatMayBeTightened) {
  PlanOptions asked = options("45%");
  asked.common.strategies = all_strategies();
  asked.common.json = true;
  const auto bound = [&] {
    const json list = json::parse(output(asked));
    for (const json& figures : list)
      if (figures.at("is_possible").get<bool>()) {
        EXPECT_EQ(figures.at("bound_seconds"), list[0].at("bound_seconds"));
        EXPECT_GE(figures.at("step_seconds").get<double>(),
                  figures.at("bound_seconds").get<double>() * (1.0 - 1e-9))
            << figures.at("strategy");
      }
    return list[0].at("bound_seconds").get<double>();
  };
  const double quick = bound();
  asked.common.bound = BoundEffort::kTight;
  EXPECT_GT(bound(), quick);
}

TEST_F(PlanningCommand, ShowsTheCommandThatWasProfiled) {
  auto profile = chain_profile();
  profile.origin.command = "./chain --layers 6";
  write(profile_, profile::to_text(profile));
  EXPECT_EQ(told(options("2GiB")).at("profile").at("command"), "./chain --layers 6");
}

}  // namespace
}  // namespace spillway::cli
