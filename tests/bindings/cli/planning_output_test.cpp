#include <nlohmann/json.hpp>

#include "planning/plan_report.h"
#include "planning_command.h"
#include "spillway/planner/step_bound.h"
#include "spillway/profile/chrome_trace.h"
#include "support/documented_keys.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

class PlanningOutput : public PlanningCommand {
 protected:
  /// The documented keys of which `is_there` holds.
  template <typename IsThere>
  Keys told(const IsThere& is_there) const {
    Keys keys;
    for (const auto& [key, meaning] : page_)
      if (is_there(meaning)) keys.insert(key);
    return keys;
  }

  static bool is_always_there(const KeyMeaning& meaning) {
    return meaning.text.find(" only: ") == std::string::npos;
  }

  /// A trace of the predicted step, as if a run had written it.
  std::string run_like(SimulateOptions asked) const {
    asked.trace = in_folder("prediction.json");
    output(asked);
    profile::StepTrace trace = profile::parse_chrome_trace(file_text(asked.trace), asked.trace);
    trace.source = profile::TraceSource::kRun;
    trace.process = 2;
    trace.marks = {{0.0, "step 1"}, {trace.marks.back().at_seconds, "end"}};
    const std::string path = in_folder("run.json");
    write(path, profile::to_chrome_trace(trace));
    return path;
  }

  /// All that there can be: two tiers, and a run beside the prediction.
  json all_figures() const {
    SimulateOptions asked = simulate_options("");
    asked.common.budget = budgets().read("--budget", "40%");
    asked.common.rates = {.link_out = TransferRate(8e9),
                          .link_in = TransferRate(8e9),
                          .host_memory = 24_MiB,
                          .disk_out = TransferRate(2e9),
                          .disk_in = TransferRate(3e9)};
    asked.beside = run_like(asked);
    asked.common.json = true;
    return json::parse(output(asked));
  }

  const std::map<std::string, KeyMeaning> page_ = documented(SPILLWAY_TEST_PLANNING_OUTPUT);
};

TEST_F(PlanningOutput, HasTheDocumentedKeysAndNoOthers) {
  EXPECT_EQ(keys_of(all_figures()), told([](const KeyMeaning&) { return true; }));
  PlanOptions asked = options("50%");
  asked.common.json = true;
  EXPECT_EQ(keys_of(json::parse(output(asked))), told(is_always_there));
}

TEST_F(PlanningOutput, OfNoPlanLacksTheMarkedKeys) {
  const PlanningStep step = to_step(chain_profile(), "chain");
  PlanFigures figures;
  figures.refusal = "there is none";
  EXPECT_EQ(keys_of(figures_json(step, {}, figures)), told([](const KeyMeaning& meaning) {
              return is_always_there(meaning) && !meaning.is_of_plan;
            }));
}

TEST_F(PlanningOutput, HasTheDocumentedKeysInsideToo) {
  const json figures = all_figures();
  const KeyMeaning rates = documented(SPILLWAY_TEST_PROFILE_FORMAT).at("rates");
  std::size_t compared = 0;
  for (const auto& [key, value] : figures.items()) {
    if (!value.is_structured()) continue;
    ASSERT_FALSE(value.empty()) << key;
    Keys expected = keys_in(page_.at(key).text);
    if (key == "disk_rates") expected = keys_in(page_.at("rates").text);  // "The same".
    if (key.ends_with("rates")) expected.merge(keys_in(rates.text));
    EXPECT_EQ(keys_within(value), expected) << key;
    ++compared;
  }
  EXPECT_EQ(compared, 6U);
}

TEST_F(PlanningOutput, TellsWhatTheBoundRecomputes) {
  const PlanningStep step = to_step(chain_profile(), "chain");
  PlanFigures figures;
  figures.bound.kind = planner::BoundKind::kFluid;
  GoldenPart golden;
  golden.add(plan_text(step, {}, figures));
  figures.bound.recomputed_share = 0.25;
  figures.bound.recompute_seconds = 0.012;
  golden.add(plan_text(step, {}, figures));
  EXPECT_EQ(figures_json(step, {}, figures).at("bound_recomputed_share"), 0.25);
}

TEST_F(PlanningOutput, TellsOfRepetitionsThatGoOnToDiffer) {
  const PlanningStep step = to_step(chain_profile(), "chain");
  PlanFigures figures;
  GoldenPart golden;
  golden.add(plan_text(step, {}, figures));
  figures.is_settled = false;
  golden.add(plan_text(step, {}, figures));
  EXPECT_FALSE(figures_json(step, {}, figures).at("is_settled").get<bool>());
}

}  // namespace
}  // namespace spillway::cli
