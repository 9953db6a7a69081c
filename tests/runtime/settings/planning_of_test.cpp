#include "spillway/runtime/learning/planning_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "spillway/base/error.h"
#include "spillway/planner/step_bound.h"
#include "spillway/runtime/settings/settings.h"
#include "support/chain_profile.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::runtime {
namespace {

/// A plan of the chain for 44 pages, in a file of its own; `far`: with a second tier.
class GivenPlanFile {
 public:
  explicit GivenPlanFile(const std::optional<planner::FarTier>& far = {}) {
    const profile::StepProfile profile = chain_profile();
    const planner::SwapLimits limits{.budget_pages = 44, .rates = {}, .far = far};
    budget = limits.budget_pages * profile.page_size + profile.small_bytes;
    settings.plan = folder_.path() + "/net.plan.json";
    std::ofstream(settings.plan) << to_text(
        describe_plan(planner::plan_with_replays(profile.tape, {}, limits),
                      planner::bound_plan(profile.tape, limits), profile, limits, budget));
  }

  /// What a run with this budget is told; empty: it may go.
  std::string said(std::optional<Bytes> of_run = {}) const {
    try {
      EXPECT_NE(planning_of(settings, of_run).stored, nullptr);
      return {};
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  Settings settings;
  Bytes budget;

 private:
  TemporaryDirectory folder_;
};

TEST(PlanningOptions, TakeAPlanForTwoTiersWhereARunHasThem) {
  GoldenPart golden;
  GivenPlanFile plan(planner::FarTier{{}, 12});
  assign_setting(plan.settings, "nvme", "ram:22MiB,/a", "test");
  golden.add(plan.said());
  assign_setting(plan.settings, "nvme", "ram:24MiB,/a", "test");
  EXPECT_EQ(plan.said(), "");
  GivenPlanFile with_one;
  assign_setting(with_one.settings, "nvme", "ram:24MiB,/a", "test");
  EXPECT_EQ(with_one.said(), "");
}

TEST(PlanningOptions, RefuseAPlanForTwoTiers) {
  GoldenPart golden;
  golden.add(GivenPlanFile(planner::FarTier{{}, 12}).said());
  EXPECT_EQ(GivenPlanFile().said(), "");
}

TEST(PlanningOptions, RefuseAPlanForMoreMemoryOrBesideAStrategy) {
  GoldenPart golden;
  GivenPlanFile plan;
  EXPECT_EQ(plan.said(plan.budget), "");
  EXPECT_EQ(plan.said(2 * plan.budget), "");
  golden.add(plan.said(plan.budget - Bytes(1)));
  golden.add(plan.said(50_MiB));
  plan.settings.strategy = "dtr";
  golden.add(plan.said(plan.budget));
}

}  // namespace
}  // namespace spillway::runtime
