#include "planning/trace_overlay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planning/plan_figures.h"
#include "planning/step_trace.h"
#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"
#include "support/chain_profile.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using profile::StepTrace;
using profile::TraceSpan;

struct Predicted {
  PlanningStep step = to_step(chain_profile(), "chain.json");
  StepTrace trace;
  double slowdown_seconds = 0.0;

  /// With interference, operators of a run are slower than planned.
  explicit Predicted(const char* strategy = "belady", double interference = 0.0) {
    const profile::StepTape& tape = step.profile.tape;
    const Bytes budget = step.needed / 2;
    profile::TransferRates rates;
    rates.interference_seconds_per_byte = interference;
    const planner::SwapLimits limits = limits_for(step, budget, {rates, "given"});
    const planner::StepPlan plan = planner::strategy_named(strategy).plan(tape, limits);
    planner::StepEvents events;
    const auto estimate = planner::observe_step(plan.steps.tape, plan.swaps, limits, events);
    trace = trace_of(step, plan, events, estimate);
    slowdown_seconds = estimate.interference_seconds;
  }
};

/// A run whose steps go as predicted, one after another, each with a first moment without
/// operators.
StepTrace run_of(const StepTrace& predicted, std::size_t steps, double pause) {
  StepTrace run;
  run.process = 2;
  run.title = "measured";
  const double length = predicted.marks.back().at_seconds;
  for (std::size_t i = 0; i < steps; ++i) {
    const double begin = static_cast<double>(i) * (length + pause);
    run.marks.push_back({begin, message("step {}", i + 1)});
    for (TraceSpan span : predicted.spans) {
      span.begin_seconds += begin + pause;
      run.spans.push_back(std::move(span));
    }
    run.resident_bytes.push_back({begin, 4096.0 * static_cast<double>(i)});
  }
  run.marks.push_back({static_cast<double>(steps) * (length + pause), "end"});
  return run;
}

TraceSpan& span_of_operator(StepTrace& trace, const std::string& number, std::size_t which) {
  for (TraceSpan& span : trace.spans)
    for (const auto& [key, value] : span.facts)
      if (key == "operator" && value == number && which-- == 0) return span;
  throw std::out_of_range("no such operator");
}

TEST(TraceOverlay, ShowsTheLatestStepFromItsBeginOn) {
  const Predicted predicted;
  const double pause = 0.25;
  const auto laid =
      overlay(predicted.step, predicted.trace, run_of(predicted.trace, 3, pause), "run.json");
  EXPECT_EQ(laid.step, "step 3");
  EXPECT_NEAR(laid.measured_seconds, laid.planned_seconds + pause, 1e-9);
  EXPECT_NEAR(laid.planned_seconds, predicted.trace.marks.back().at_seconds, 1e-9);
  EXPECT_EQ(laid.measured.spans.size(), predicted.trace.spans.size());
  EXPECT_NEAR(laid.measured.spans.front().begin_seconds, pause, 1e-9);
  ASSERT_EQ(laid.measured.resident_bytes.size(), 1u);
  EXPECT_EQ(laid.measured.resident_bytes[0].value, 8192.0);
  // The pause before the first operator is the first operator's.
  EXPECT_EQ(laid.operators.front().op, 0u);
  EXPECT_NEAR(laid.operators.front().difference(), pause, 1e-9);
  EXPECT_NEAR(laid.operators[1].difference(), 0.0, 1e-9);
}

TEST(TraceOverlay, NamesTheOperatorThatDiffersMost) {
  const Predicted predicted;
  StepTrace run = run_of(predicted.trace, 1, 0.0);
  // Operator 3 takes 40 ms more, and all that follows comes later.
  const double from = span_of_operator(run, "3", 0).begin_seconds;
  for (TraceSpan& span : run.spans)
    if (span.lane == profile::kComputeLane && span.begin_seconds > from) span.begin_seconds += 0.04;
  span_of_operator(run, "3", 0).seconds += 0.04;
  run.marks.back().at_seconds += 0.04;
  const auto laid = overlay(predicted.step, predicted.trace, run, "run.json");
  EXPECT_EQ(laid.operators.front().op, 3u);
  EXPECT_NEAR(laid.operators.front().difference(), 0.04, 1e-9);
  EXPECT_NEAR(laid.operators[1].difference(), 0.0, 1e-9);
  // The others, without a difference, stand in any order.
  const std::string text = overlay_text(predicted.step, laid);
  GoldenPart golden;
  golden.add(text.substr(0, text.find("\naten::", text.find("aten::"))));
  const auto json = overlay_json(predicted.step, laid);
  EXPECT_EQ(json.at("largest_differences").at(0).at("number"), 3);
}

// In predictions the slowdown stands at the end of the step, in runs it is in the operators.
TEST(TraceOverlay, KeepsTheSlowdownApartFromOperators) {
  const Predicted predicted("karma", 5e-11);
  ASSERT_GT(predicted.slowdown_seconds, 1e-3);
  StepTrace run = run_of(predicted.trace, 1, 0.0);
  const auto is_slowdown = [](const TraceSpan& span) {
    return span.name == profile::kSlowdownSpan;
  };
  EXPECT_EQ(std::erase_if(run.spans, is_slowdown), 1u);
  run.marks.back().at_seconds -= predicted.slowdown_seconds;
  const auto laid = overlay(predicted.step, predicted.trace, run, "run.json");
  EXPECT_NEAR(laid.spread_slowdown_seconds, predicted.slowdown_seconds, 1e-9);
  double planned = 0.0;
  for (const OperatorTimes& each : laid.operators) {
    planned += each.planned_seconds;
    EXPECT_NEAR(each.difference(), 0.0, 1e-9) << each.op;
  }
  EXPECT_NEAR(planned + laid.spread_slowdown_seconds, laid.planned_seconds, 1e-9);
  // Operators without a difference stand in any order.
  const std::string text = overlay_text(predicted.step, laid);
  GoldenPart golden;
  golden.add(text.substr(0, text.find("differs most")));
  EXPECT_NEAR(overlay_json(predicted.step, laid).at("planned_slowdown_seconds"),
              predicted.slowdown_seconds, 1e-9);
}

// A wait before an operator is that operator's, also where it is for room; what runs again too.
TEST(TraceOverlay, CountsWaitsAndReplaysToTheOperatorBehindThem) {
  const Predicted predicted;
  const std::string replay = std::string(profile::kReplayPrefix) + "aten::mm";
  for (const std::string_view name :
       {profile::kWaitSpan, profile::kRoomWaitSpan, std::string_view(replay)}) {
    StepTrace run = run_of(predicted.trace, 1, 0.0);
    const double from = span_of_operator(run, "4", 0).begin_seconds;
    for (TraceSpan& span : run.spans)
      if (span.lane == profile::kComputeLane && span.begin_seconds >= from)
        span.begin_seconds += 0.03;
    run.marks.back().at_seconds += 0.03;
    TraceSpan added{profile::kComputeLane, std::string(name), from, 0.03, {}};
    if (name == replay) added.facts = {{std::string(profile::kOperatorFact), "2"}};
    const auto place = std::find_if(run.spans.begin(), run.spans.end(), [&](const TraceSpan& span) {
      return span.begin_seconds > from;
    });
    run.spans.insert(place, added);
    const auto laid = overlay(predicted.step, predicted.trace, run, "run.json");
    EXPECT_EQ(laid.operators.front().op, 4u) << name;
    EXPECT_NEAR(laid.operators.front().difference(), 0.03, 1e-9) << name;
  }
}

TEST(TraceOverlay, PassesOverStepsOfOtherKinds) {
  const Predicted predicted;
  StepTrace run = run_of(predicted.trace, 2, 0.0);
  span_of_operator(run, "2", 1).name = "aten::of_a_validation";
  EXPECT_EQ(overlay(predicted.step, predicted.trace, run, "run.json").step, "step 1");
  span_of_operator(run, "2", 0).name = "aten::of_a_validation";
  GoldenPart golden;
  golden.add(
      error_text<PlanError>([&] { overlay(predicted.step, predicted.trace, run, "run.json"); }));
}

}  // namespace
}  // namespace spillway::cli
