#include "planning/planning_step.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "planning/frontier.h"
#include "planning/plan_report.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "support/chain_profile.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::cli {
namespace {

PlanningStep chain() { return to_step(chain_profile(), "chain.json"); }

Bytes budget(const PlanningStep& step, const std::string& text) {
  return budget_in(step, budgets().read("--budget", text));
}

std::string refusal(const std::string& text) {
  return error_text([&] { budget(chain(), text); });
}

TEST(PlanningStep, CountsWhatNeverLeaves) {
  const PlanningStep step = chain();
  const Bytes small = step.profile.small_bytes;
  const Bytes page = step.profile.page_size;
  EXPECT_EQ(step.needed, planner::live_peak(step.profile.tape) * page + small);
  EXPECT_EQ(step.smallest, planner::smallest_budget(step.profile.tape) * page + small);
  EXPECT_EQ(operator_text(step, step.neediest), "aten::convolution_backward (float[1, 8, 64, 64])");
}

TEST(PlanningStep, TakesWhatNeverLeavesOffTheBudget) {
  const PlanningStep step = chain();
  const Bytes page = step.profile.page_size;
  const ChosenRates rates;
  const Bytes small = step.profile.small_bytes;
  EXPECT_EQ(limits_for(step, 40 * page + small, rates).budget_pages, 40U);
  EXPECT_EQ(limits_for(step, 40 * page, rates).budget_pages, 39U);
  EXPECT_EQ(limits_for(step, Bytes(std::uint64_t{1} << 62), rates).budget_pages, 0x7fffffffU);
}

TEST(BudgetIn, ReadsSizesAndSharesOfWhatIsNeeded) {
  const PlanningStep step = chain();
  EXPECT_EQ(budget(step, "1GiB"), Bytes(std::uint64_t{1} << 30));
  EXPECT_EQ(budget(step, "100%"), step.needed);
  EXPECT_EQ(budget(step, "75%").count(), step.needed.count() * 3 / 4);
}

TEST(BudgetIn, NamesTheSmallestOneAndWhatSetsIt) {
  const std::string told = refusal("20MiB");
  EXPECT_EQ(refusal(told.substr(told.rfind(' ') + 1)), "accepted");  // What it names does.
  for (const char* text : {"0", "0B", "0%", "-5%", "101%", "4", "much", "", "4GiBs", "nan%"})
    EXPECT_NE(refusal(text), "accepted") << text;
}

// A step that fitted was planned for, and then start-up died.
TEST(BudgetIn, CountsWhatTheProgramNeedsOutsideOfTheStep) {
  profile::StepProfile profile = chain().profile;
  const Bytes of_step = chain().smallest;
  profile.program_needs = profile::ProgramNeeds{
      of_step + profile.page_size + Bytes(1), {"aten::_to_copy", "float[1, 181]"}, true};
  const PlanningStep step = to_step(profile, "step.json");
  EXPECT_EQ(step.smallest, of_step + profile.page_size + Bytes(1));
  EXPECT_EQ(step.smallest_of_step, of_step);
  EXPECT_EQ(neediest_text(step), "aten::_to_copy (float[1, 181]) before the first step ended");
  // It is known from above only, so less is no mistake.
  EXPECT_EQ(budget(step, std::to_string(of_step.count()) + "B"), of_step);
  EXPECT_EQ(budget(step, as_option(step.smallest)) >= step.smallest, true);
  EXPECT_GE(frontier_budgets(step, 9).front(), step.smallest);

  // What the same operator of the step needs, with the page that runs have to spare: the number
  // that they name.
  profile.program_needs->budget = of_step + profile.page_size;
  EXPECT_EQ(to_step(profile, "step.json").smallest, of_step + profile.page_size);
  EXPECT_EQ(to_step(profile, "step.json").smallest_of_step, of_step);
  EXPECT_EQ(neediest_text(to_step(profile, "step.json")),
            "aten::convolution_backward (float[1, 8, 64, 64])");
  profile.program_needs = profile::ProgramNeeds{of_step * 2, {"aten::mm", ""}, false};
  EXPECT_EQ(neediest_text(to_step(profile, "step.json")), "aten::mm outside of this step");
  GoldenPart golden;
  golden.add(step_text(to_step(profile, "step.json"), {}));

  // Small tensors that a run swaps, page by page, are memory that stays for a plan.
  profile.program_needs->budget = of_step - profile.page_size;
  EXPECT_EQ(to_step(profile, "step.json").smallest, of_step);
  golden.add(step_text(to_step(profile, "step.json"), {}));
}

/// Half of what the step needs is in tensors that its profile does not list.
PlanningStep chain_of_small_tensors() {
  profile::StepProfile profile = chain_profile();
  profile.small_bytes = planner::live_peak(profile.tape) * profile.page_size;
  return to_step(profile, "chain.json");
}

TEST(SmallText, TellsOfSmallTensorsFromASixteenthOfTheNeedsOn) {
  PlanningStep step = chain_of_small_tensors();
  GoldenPart golden;
  golden.add(small_text(step));
  step.profile.origin.source = "piper";  // There is nothing to run.
  golden.add(small_text(step));
  const Bytes pages = step.profile.small_bytes;
  for (const auto& [small, is_told] :
       {std::pair{pages / 15, true}, {pages / 16, false}, {Bytes(), false}}) {
    step.profile.small_bytes = small;
    EXPECT_EQ(small_text(to_step(step.profile, "chain.json")) != "", is_told) << small;
  }
}

TEST(LoadStep, ReadsAProfile) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/chain.json";
  std::ofstream(path) << profile::to_text(chain_profile());
  EXPECT_EQ(load_step(path).profile.tape.ops.size(), chain_profile().tape.ops.size());
}

TEST(LoadStep, SaysInOneSentenceWhatIsWrongWithTheFile) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/chain.json";
  const std::string text = profile::to_text(chain_profile());
  GoldenPart golden;
  for (const std::string& broken :
       {std::string(), std::string("{}"), text.substr(0, text.size() / 2),
        std::string(text).replace(text.find("\"version\": 1"), 12, "\"version\": 9")}) {
    std::ofstream(path, std::ios::trunc) << broken;
    golden.add(std::regex_replace(error_text([&] { load_step(path); }),
                                  std::regex("(not all of it): [^()]*[^() ]"), "$1: REASON"));
  }
}

TEST(OperatorText, CutsLongArgumentsBetweenLetters) {
  profile::StepProfile profile = chain_profile();
  for (std::size_t length = kMostBytesInLine - 2; length <= kMostBytesInLine + 2; ++length) {
    profile.kinds[0].arguments = std::string(length, 'x') + "äääää";
    const std::string told = operator_text(to_step(profile, "chain.json"), 0);
    const std::string cut = std::string(std::min(length, kMostBytesInLine), 'x');
    const bool has_room = length + 2 <= kMostBytesInLine;
    EXPECT_EQ(told, "aten::convolution (" + cut + (has_room ? "ä" : "") + "…)") << length;
  }
}

TEST(ValueText, TellsClassSizeAndOrigin) {
  const PlanningStep step = chain();
  EXPECT_EQ(value_text(step, 0), "input 0 of 16.0 MiB");
  EXPECT_EQ(value_text(step, 13), "activation 13 of 16.0 MiB from aten::convolution");
}

}  // namespace
}  // namespace spillway::cli
