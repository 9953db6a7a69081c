#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "planning_command.h"
#include "spillway/planner/strategies.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PlanningCommand, TellsWhatAUserNeedsToDecide) {
  const std::string text = plan(options("50%"));
  for (const char* line :
       {"step      ./chain, 19 operators, times from 5 recorded steps\n", "needed    ",
        "smallest  --budget ", ", set by aten::convolution_backward (float[1, 8, 64, 64])\n",
        "rates     1.50 GB/s out, 2.00 GB/s in", "(guesses", "budget    ",
        "50.0 % of what is needed", "strategy  spillway\n", " times in-core (", "bound     ",
        " out, ", "recompute ", "peak      ", "Operators that wait longest:\n",
        "Tensors that they wait for:\n", " wait"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(PlanningCommand, SaysWhenNothingHasToLeave) {
  const std::string text = plan(options("2GiB"));
  EXPECT_THAT(text, HasSubstr("swapped   nothing is swapped\n"));
  EXPECT_THAT(text, HasSubstr("1.00 times in-core"));
  EXPECT_THAT(text, Not(HasSubstr("wait longest")));
}

TEST_F(PlanningCommand, TellsOfSmallTensorsWhereTheyAreMuchOfTheStep) {
  EXPECT_THAT(plan(options("50%")), Not(HasSubstr("\nsmall ")));
  auto profile = chain_profile();
  profile.small_bytes = Bytes(std::uint64_t{1} << 30);
  write(profile_, profile::to_text(profile));
  PlanOptions asked = options("95%");
  const char* const row = "\nsmall     1.00 GiB of it in tensors that profiles do not list: ";
  EXPECT_THAT(plan(asked), HasSubstr(row));
  EXPECT_EQ(told(asked).at("small_bytes"), 1U << 30);
  asked.common.strategy = "all";
  EXPECT_THAT(plan(asked), HasSubstr(row));
}

TEST_F(PlanningCommand, SurvivesAStepThatTakesNoTime) {
  const Duration none{0};
  write(profile_,
        profile::to_text(chain_profile({.forward = none, .backward = none, .optimizer = none})));
  EXPECT_THAT(plan(options("2GiB")), HasSubstr("0 s per step, - times in-core"));
  PlanOptions asked = options("2GiB");
  asked.common.json = true;
  EXPECT_EQ(json::parse(plan(asked)).at("gap"), 0.0);
}

TEST_F(PlanningCommand, GivesFiguresThatAgree) {
  PlanOptions asked = options("50%");
  asked.common.json = true;
  const json figures = json::parse(plan(asked));
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
  EXPECT_THAT(figures.at("smallest_budget_operator").get<std::string>(),
              HasSubstr("convolution_backward"));
  double waited = 0.0;
  for (const json& cause : figures.at("stalls_by_operator"))
    waited += cause.at("seconds").get<double>();
  EXPECT_NEAR(waited, figures.at("stall_seconds"), 1e-9);
  EXPECT_EQ(figures.at("rates").at("write_bytes_per_second"), 1.5e9);
}

TEST_F(PlanningCommand, ComparesAllStrategiesByTime) {
  PlanOptions asked = options("50%");
  asked.common.strategy = "all";
  const std::string text = plan(asked);
  for (const planner::Strategy& strategy : planner::strategies())
    EXPECT_THAT(text, HasSubstr(std::string(strategy.name)));
  asked.common.json = true;
  const json list = json::parse(plan(asked));
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
  asked.common.rates = {.link_out = "3", .link_in = "4"};
  json planned = json::parse(plan(asked));
  SimulateOptions again = simulate_options(asked.out);
  again.common.json = true;
  json simulated = json::parse(simulate(again));
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
  asked.common.rates = {
      .link_out = "8", .link_in = "8", .host_memory = "24MiB", .disk_out = "2", .disk_in = "3"};
  EXPECT_THAT(plan(asked), HasSubstr(" at most in host memory\n"));
  asked.common.json = true;
  json planned = json::parse(plan(asked));
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
  json simulated = json::parse(simulate(again));
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
  again.common.rates = {.link_out = "8", .link_in = "8"};
  EXPECT_FALSE(json::parse(simulate(again)).contains("disk_out_bytes"));
}

TEST_F(PlanningCommand, SimulatesAStoredPlanWithOtherRates) {
  PlanOptions asked = options("40%");
  asked.out = in_folder("chain.plan.json");
  asked.common.rates = {.link_out = "8", .link_in = "8"};
  plan(asked);
  SimulateOptions slower = simulate_options(asked.out);
  slower.common.json = true;
  const double before = json::parse(simulate(slower)).at("step_seconds");
  slower.common.rates = {.link_out = "1", .link_in = "1"};
  const json after = json::parse(simulate(slower));
  EXPECT_GT(after.at("step_seconds"), before);
  EXPECT_GE(after.at("step_seconds"), after.at("bound_seconds"));
}

TEST_F(PlanningCommand, SimulatesWhatItPlansItself) {
  SimulateOptions asked = simulate_options("");
  asked.common.budget = "50%";
  asked.trace = in_folder("step.json");
  const std::string text = simulate(asked);
  EXPECT_THAT(text, HasSubstr("trace written to " + asked.trace));
  EXPECT_GT(json::parse(file_text(asked.trace)).at("traceEvents").size(), 30U);
}

TEST_F(PlanningCommand, RefusesAPlanForAnotherStep) {
  PlanOptions asked = options("50%");
  asked.out = in_folder("chain.plan.json");
  plan(asked);
  write(profile_, profile::to_text(chain_profile({.layers = 7})));
  EXPECT_THAT(simulate_refusal(simulate_options(asked.out)),
              HasSubstr("chain.plan.json: the plan is for another program or other shapes"));
  write(profile_, profile::to_text(chain_profile({.activation_pages = 9})));
  EXPECT_THAT(simulate_refusal(simulate_options(asked.out)), HasSubstr("on other tensors"));
}

TEST_F(PlanningCommand, WarnsWhereAPlanCountsOnOtherSmallTensors) {
  PlanOptions asked = options("500MiB");
  asked.out = in_folder("chain.plan.json");
  plan(asked);
  const auto warning = [&](std::uint64_t small_bytes) {
    auto profile = chain_profile();
    profile.small_bytes = Bytes(small_bytes);
    write(profile_, profile::to_text(profile));
    ::testing::internal::CaptureStderr();
    simulate(simulate_options(asked.out));
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string next = message(" (make the plan again with: spillway plan {} --budget 500MiB "
                                   "--out {})\n",
                                   profile_, asked.out);
  EXPECT_EQ(warning(100'000), "");
  EXPECT_THAT(
      warning(100'000 + (3 << 20)),
      HasSubstr(": the step may take up to 3.00 MiB more than the budget of 500 MiB" + next));
  EXPECT_THAT(warning(100'000 - 1024),
              HasSubstr(": 1.00 KiB of the budget of 500 MiB stay unused" + next));
}

TEST_F(PlanningCommand, RefusesFilesThatAreNoPlans) {
  const std::string path = in_folder("some.json");
  EXPECT_THAT(simulate_refusal(simulate_options(path)), HasSubstr("cannot read " + path));
  write(path, "{\"format\": ");
  EXPECT_THAT(simulate_refusal(simulate_options(path)), HasSubstr("not JSON, or not all of it"));
  EXPECT_THAT(simulate_refusal(simulate_options(profile_)), HasSubstr("its format is "
                                                                      "'spillway-profile'"));
}

TEST_F(PlanningCommand, RefusesWhatHasNoPlaceBesideAStoredPlan) {
  SimulateOptions asked = simulate_options("x");
  asked.common.budget = "1GiB";
  EXPECT_THAT(simulate_refusal(asked), HasSubstr("--budget 1GiB has no place beside --plan"));
  asked.common.budget.clear();
  asked.common.strategy = "spillway";
  EXPECT_THAT(simulate_refusal(asked), HasSubstr("--strategy spillway has no place"));
  asked.common.strategy.clear();
  asked.common.effort = "3";
  EXPECT_THAT(simulate_refusal(asked), HasSubstr("--effort 3 has no place beside --plan"));
  EXPECT_THAT(simulate_refusal(simulate_options("")), HasSubstr("name what to simulate"));
}

TEST_F(PlanningCommand, RefusesUnknownStrategiesWithTheNearest) {
  PlanOptions asked = options("50%");
  asked.common.strategy = "spilway";
  EXPECT_THAT(plan_refusal(asked), HasSubstr("did you mean 'spillway'?"));
}

TEST_F(PlanningCommand, RefusesUnknownBounds) {
  PlanOptions asked = options("50%");
  asked.common.bound = "tigth";
  EXPECT_THAT(plan_refusal(asked), HasSubstr("unknown bound 'tigth' (did you mean 'tight'?)"));
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
  asked.common.effort = "5";
  std::ostringstream out;
  plan_from_profile(asked, out, ImpatientClock());
  const json figures = json::parse(out.str());
  EXPECT_TRUE(figures.at("search_was_cut").get<bool>());
  asked.common.budget = "2GiB";  // Nothing to search.
  EXPECT_FALSE(json::parse(plan(asked)).at("search_was_cut").get<bool>());
  for (const char* effort : {"-1", "soon", "5s", "nan", "1e9"}) {
    asked.common.effort = effort;
    EXPECT_THAT(plan_refusal(asked), HasSubstr(message("--effort: '{}' is no number", effort)));
  }
}

TEST_F(PlanningCommand, EndsTheSearchOfEachOfOurStrategies) {
  const auto was_cut = [&](const char* strategy) {
    write(profile_, profile::to_text(chain_profile({.layers = 6})));
    PlanOptions asked = options("45%");
    asked.common.strategy = strategy;
    asked.common.json = true;
    asked.common.effort = "1";
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
  EXPECT_THAT(figures.refusal, HasSubstr("run operator 0, aten::convolution ("));
  EXPECT_THAT(figures.refusal, HasSubstr("but parameter "));
  EXPECT_THAT(figures.refusal, HasSubstr("is written in place by operator "));
  EXPECT_THAT(figures.refusal, HasSubstr(", aten::addcmul_ ("));
}

TEST_F(PlanningCommand, NamesWhatWritesAFileThatIsMissing) {
  PlanOptions unprofiled = options("50%");
  unprofiled.common.profile = in_folder("none.json");
  EXPECT_EQ(plan_refusal(unprofiled),
            message("cannot read {}: No such file or directory (spillway profile --out {} -- "
                    "PROGRAM writes one)",
                    unprofiled.common.profile, unprofiled.common.profile));
  EXPECT_THAT(simulate_refusal(simulate_options(in_folder("none.json"))),
              HasSubstr("--budget SIZE --out " + in_folder("none.json") + " writes one)"));
}

TEST_F(PlanningCommand, JudgesAllStrategiesByOneBoundThatMayBeTightened) {
  PlanOptions asked = options("45%");
  asked.common.strategy = "all";
  asked.common.json = true;
  const auto bound = [&] {
    const json list = json::parse(plan(asked));
    for (const json& figures : list)
      if (figures.at("is_possible").get<bool>()) {
        EXPECT_EQ(figures.at("bound_seconds"), list[0].at("bound_seconds"));
        EXPECT_GE(figures.at("gap"), 0.0) << figures.at("strategy");
      }
    return list[0].at("bound_seconds").get<double>();
  };
  const double quick = bound();
  asked.common.bound = "tight";
  EXPECT_GT(bound(), quick);
}

TEST_F(PlanningCommand, RefusesContradictions) {
  EXPECT_THAT(plan_refusal(options("")), HasSubstr("--budget is missing"));
  PlanOptions asked = options("50%");
  asked.frontier = true;
  EXPECT_THAT(plan_refusal(asked), HasSubstr("--budget 50% has no place"));
  asked.common.budget.clear();
  asked.out = "x";
  EXPECT_THAT(plan_refusal(asked), HasSubstr("--out x stores one plan"));
  asked = options("50%");
  asked.points = "5";
  EXPECT_THAT(plan_refusal(asked), HasSubstr("--points 5 belongs to --frontier"));
  asked = options("50%");
  asked.out = "x";
  asked.common.strategy = "all";
  EXPECT_THAT(plan_refusal(asked), HasSubstr("--strategy all makes many"));
  asked = options("");
  asked.frontier = true;
  for (const char* points : {"0", "1", "1001", "-3", "few", "3.5"}) {
    asked.points = points;
    EXPECT_THAT(plan_refusal(asked), HasSubstr(message("--points: '{}'", points)));
  }
}

TEST_F(PlanningCommand, RefusesTooSmallABudgetWithTheSmallest) {
  EXPECT_THAT(plan_refusal(options("10MiB")), HasSubstr("the smallest is --budget "));
}

TEST_F(PlanningCommand, JudgesItsOutputsBeforeAnythingElse) {
  PlanOptions asked = options("50%");
  asked.common.profile = in_folder("none.json");  // Would be told of, too, but later.
  asked.out = folder_.path();
  EXPECT_THAT(plan_refusal(asked), HasSubstr("it is a folder (name a file in it)"));
  asked.out = in_folder("missing/plan.json");
  EXPECT_THAT(plan_refusal(asked), HasSubstr("cannot write --out "));
  asked.out.clear();
  asked.common.budget.clear();
  asked.frontier = true;
  asked.picture = in_folder("missing/a.svg");
  EXPECT_THAT(plan_refusal(asked), HasSubstr("cannot write --frontier "));
}

TEST_F(PlanningCommand, ReplacesNothingThatItReads) {
  PlanOptions asked = options("50%");
  asked.out = profile_;
  EXPECT_THAT(plan_refusal(asked), HasSubstr("--out " + profile_ + " is the same file as PROFILE"));
  asked.common.rates.rates = asked.out = in_folder("rates.json");
  EXPECT_THAT(plan_refusal(asked), HasSubstr("is the same file as --rates"));
  SimulateOptions simulated = simulate_options(in_folder("a.plan"));
  for (const auto& [path, word] :
       {std::pair{profile_, "PROFILE"}, std::pair{simulated.plan, "--plan"}}) {
    simulated.trace = path;
    EXPECT_THAT(simulate_refusal(simulated), HasSubstr(message("is the same file as {}", word)));
  }
  simulated.trace = simulated.beside = in_folder("run.json");
  EXPECT_THAT(simulate_refusal(simulated), HasSubstr("is the same file as --beside"));
}

TEST_F(PlanningCommand, HoldsNoPredictionAgainstAPrediction) {
  SimulateOptions asked = simulate_options("");
  asked.common.budget = "50%";
  asked.trace = in_folder("step.json");
  simulate(asked);
  asked.trace.clear();
  asked.beside = in_folder("step.json");
  EXPECT_THAT(simulate_refusal(asked), HasSubstr("step.json is a prediction of spillway simulate, "
                                                 "not the trace of a run"));
}

TEST_F(PlanningCommand, KnowsFilesOfAnotherKindByTheirFormat) {
  PlanOptions asked = options("50%");
  asked.common.profile = in_folder("disks.json");
  write(asked.common.profile, R"({"format": "spillway disk rates", "version": 1,
                                  "disks": [{"samples": [{"load": "read"}]}]})");
  EXPECT_THAT(plan_refusal(asked), HasSubstr("its format is 'spillway disk rates', not "
                                             "'spillway-profile'"));
}

TEST_F(PlanningCommand, SaysWhatToGiveToARun) {
  EXPECT_THAT(plan(options("500MiB")), HasSubstr("; in a run: --budget 500MiB\n"));
  PlanOptions asked = options("500MiB");
  asked.common.strategy = "all";
  EXPECT_THAT(plan(asked), HasSubstr("budget    500 MiB; in a run: --budget 500MiB\n"));
}

TEST_F(PlanningCommand, GivesARunTheBudgetOfTheGpuAlone) {
  PlanOptions asked = options("500MiB");
  auto profile = chain_profile();
  profile.origin.device = "cuda:0";
  asked.common.profile = in_folder("gpu.json");
  write(asked.common.profile, profile::to_text(profile));
  EXPECT_THAT(plan(asked), AllOf(HasSubstr("; in a run: --budget cuda:0=500MiB\n"),
                                 HasSubstr("smallest  --budget cuda:0=")));
}

TEST_F(PlanningCommand, ShowsTheCommandThatWasProfiled) {
  auto profile = chain_profile();
  profile.origin.command = "./chain --layers 6";
  write(profile_, profile::to_text(profile));
  EXPECT_THAT(plan(options("2GiB")), HasSubstr("step      ./chain --layers 6, 19 operators"));
  PlanOptions asked = options("2GiB");
  asked.common.json = true;
  EXPECT_EQ(json::parse(plan(asked)).at("profile").at("command"), "./chain --layers 6");
}

}  // namespace
}  // namespace spillway::cli
