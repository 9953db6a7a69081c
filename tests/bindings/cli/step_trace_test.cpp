#include "planning/step_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "planning/plan_figures.h"
#include "support/chain_profile.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

constexpr double kNanosecond = 1e-3;  // The trace counts microseconds.

struct Traced {
  PlanningStep step;
  planner::StepPlan plan;
  planner::StepEstimate estimate;
  json document;
};

/// A step whose plan swaps and recomputes, so that every lane but the host's is used.
Traced traced(double budget_share) {
  Traced result{to_step(chain_profile(), "chain.json"), {}, {}, {}};
  const profile::StepTape& tape = result.step.profile.tape;
  planner::SwapLimits limits = limits_for(result.step, result.step.needed, {});
  limits.budget_pages = std::max(
      planner::smallest_budget(tape),
      static_cast<std::uint32_t>(budget_share * static_cast<double>(planner::live_peak(tape))));
  planner::Recomputation recomputation(tape);
  const std::vector<planner::Drop> drops{{tape.uses[2].value, 1}};
  result.plan = planner::plan_with_replays(tape, recomputation.replays(drops), limits);
  planner::StepEvents events;
  result.estimate =
      planner::observe_step(result.plan.steps.tape, result.plan.swaps, limits, events);
  result.document = json::parse(
      profile::to_chrome_trace(trace_of(result.step, result.plan, events, result.estimate)));
  return result;
}

std::map<int, std::vector<json>> spans_by_lane(const json& document) {
  std::map<int, std::vector<json>> lanes;
  for (const json& event : document.at("traceEvents"))
    if (event.at("ph") == "X") lanes[event.at("tid").get<int>()].push_back(event);
  return lanes;
}

TEST(StepTrace, HasSpansThatDoNotOverlapWithinALane) {
  for (const double share : {0.3, 0.5, 0.8, 1.0}) {
    const Traced step = traced(share);
    for (const auto& [lane, spans] : spans_by_lane(step.document)) {
      double end = 0.0;
      for (const json& span : spans) {
        EXPECT_GE(span.at("ts").get<double>(), end - 2 * kNanosecond) << lane << span;
        EXPECT_GE(span.at("dur").get<double>(), 0.0);
        end = span.at("ts").get<double>() + span.at("dur").get<double>();
      }
      EXPECT_LE(end, 1e6 * step.estimate.step_seconds + kNanosecond);
    }
  }
}

TEST(StepTrace, FillsTheComputeLaneFromBeginToEndOfThePredictedStep) {
  for (const double share : {0.3, 0.5, 0.8, 1.0}) {
    const Traced step = traced(share);
    double sum = 0.0;
    double waits = 0.0;
    const auto lanes = spans_by_lane(step.document);
    for (const json& span : lanes.at(1)) {
      sum += span.at("dur").get<double>();
      const bool is_wait = span.at("name").get<std::string>().starts_with("wait");
      waits += is_wait ? span.at("dur").get<double>() : 0.0;
    }
    const double rounding = kNanosecond * static_cast<double>(lanes.at(1).size());
    EXPECT_NEAR(sum, 1e6 * step.estimate.step_seconds, rounding);
    EXPECT_NEAR(waits, 1e6 * step.estimate.stall_seconds, rounding);
  }
}

TEST(StepTrace, MovesAsManyBytesAsTheEstimateSays) {
  const Traced step = traced(0.4);
  const auto lanes = spans_by_lane(step.document);
  std::map<int, std::uint64_t> bytes;
  for (const int lane : {2, 3})
    for (const json& span : lanes.at(lane))
      bytes[lane] += span.at("args").at("bytes").get<std::uint64_t>();
  const Bytes page = step.step.profile.page_size;
  EXPECT_EQ(bytes[2], (step.estimate.written_pages * page).count());
  EXPECT_EQ(bytes[3], (step.estimate.read_pages * page).count());
  EXPECT_GT(bytes[3], 0U);
}

TEST(StepTrace, MarksWhatIsRecomputed) {
  const Traced step = traced(0.4);
  const auto lanes = spans_by_lane(step.document);
  std::size_t replays = 0;
  for (const json& span : lanes.at(1))
    replays += span.at("name").get<std::string>().starts_with("recomputed: aten::") ? 1 : 0;
  EXPECT_EQ(replays, step.plan.replays.size());
  EXPECT_GT(replays, 0U);
}

TEST(StepTrace, CountsResidentBytesWithWhatNeverLeaves) {
  const Traced step = traced(0.4);
  double highest = 0.0;
  double last = -1.0;
  for (const json& event : step.document.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    EXPECT_GE(event.at("ts").get<double>(), last);
    last = event.at("ts").get<double>();
    highest = std::max(highest, event.at("args").at("bytes").get<double>());
  }
  EXPECT_GE(highest, static_cast<double>(in_memory(step.step, step.estimate.peak_pages).count()));
}

}  // namespace
}  // namespace spillway::cli
