#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "layer_chains.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/step_plan.h"
#include "spillway/profile/import/trace_import.h"
#include "support/file_text.h"
#include "support/reference_data.h"
#include "swaps_alone.h"

namespace spillway::planner {
namespace {

/// What is named as the smallest budget is enough for our planner, and a page less for nobody.
void expect_exact(const StepTape& tape, Bytes page_size) {
  SwapLimits limits;
  limits.budget_pages = smallest_budget(tape);
  limits.page_size = page_size;
  limits.rates = {.write = TransferRate(1.5e9), .read = TransferRate(2e9)};
  limits.refinement_ops = 20'000;
  ASSERT_LT(limits.budget_pages, live_peak(tape));
  const StepPlan least = plan_step(tape, limits);
  EXPECT_TRUE(least.swaps.is_feasible);
  EXPECT_TRUE(least.swaps.estimate.is_complete);
  EXPECT_EQ(least.swaps.estimate.peak_pages, limits.budget_pages);
  --limits.budget_pages;
  const StepPlan less = plan_step(tape, limits);
  EXPECT_FALSE(less.swaps.is_feasible);
  EXPECT_FALSE(less.swaps.estimate.is_complete);
  EXPECT_EQ(less.swaps.smallest_budget_pages, limits.budget_pages + 1);
}

TEST(SmallestBudget, IsExactForChains) {
  for (const std::uint32_t inside : {0U, 3U, 17U}) {
    SCOPED_TRACE(inside);
    expect_exact(layer_chain(std::vector<ChainLayer>(40, {.output = 5, .inside = inside})),
                 Bytes(std::uint64_t{2} << 20));
  }
}

/// All that small storages share pages for: the same pages, which no operator makes again.
TEST(SmallestBudget, IsExactWhereAllPagesAreShared) {
  StepTape tape = layer_chain(std::vector<ChainLayer>(40, {.output = 1, .inside = 3}));
  const std::uint32_t smallest = smallest_budget(tape);
  for (auto& value : tape.values) value.is_shared = true;
  for (auto& op : tape.ops) op.shared_count = std::exchange(op.use_count, 0);
  ASSERT_NO_THROW(profile::check(tape));
  EXPECT_EQ(smallest_budget(tape), smallest);
  expect_exact(tape, Bytes(std::uint64_t{2} << 20));
  SwapLimits limits;
  limits.budget_pages = live_peak(tape) / 2;
  limits.rates = {.write = TransferRate(1e12), .read = TransferRate(1e12)};
  const StepPlan plan = plan_step(tape, limits);
  EXPECT_TRUE(plan.replays.empty());
  EXPECT_GT(plan.swaps.estimate.read_pages, 0U);
  const double bound = bound_of_swaps(tape, limits).step_seconds;
  EXPECT_LE(bound, plan.swaps.estimate.step_seconds);
}

struct Trace {
  profile::StepProfile (*import)(std::string_view text, const std::string& name);
  const char* file;
};
profile::StepProfile piper(std::string_view text, const std::string& name) {
  return profile::import_piper(text, name, {1, 1});
}
profile::StepProfile dtr(std::string_view text, const std::string& name) {
  return profile::import_dtr(text, name);
}
profile::StepProfile pipedream(std::string_view text, const std::string& name) {
  return profile::import_pipedream(text, name);
}

class SmallestBudgetOfTraces : public ::testing::TestWithParam<Trace> {};
INSTANTIATE_TEST_SUITE_P(Published, SmallestBudgetOfTraces,
                         ::testing::Values(Trace{dtr, "dtr/densenet121-b84.log"},
                                           Trace{dtr, "dtr/unet-b6.log"},
                                           Trace{pipedream, "pipedream/alexnet.graph.txt"},
                                           Trace{pipedream, "pipedream/densenet121.graph.txt"},
                                           Trace{pipedream, "pipedream/gnmt.graph.txt"},
                                           Trace{pipedream, "pipedream/resnet50.graph.txt"},
                                           Trace{pipedream, "pipedream/vgg16.graph.txt"},
                                           Trace{piper, "piper/bert32a100.json"}));

TEST_P(SmallestBudgetOfTraces, IsExact) {
  for (const ReferenceFile& file : reference_files(GetParam().file)) {
    SCOPED_TRACE(file);
    const profile::StepProfile step = GetParam().import(file_text(file.path), file.path);
    expect_exact(step.tape, step.page_size);
  }
}

}  // namespace
}  // namespace spillway::planner
