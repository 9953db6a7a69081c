#include "planning/cost_command.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planning_command.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/damaged_text.h"
#include "support/documented_keys.h"
#include "support/sanitized.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class CostCommand : public PlanningCommand {
 protected:
  PlanOptions costs(const std::string& text, const std::string& ranks) const {
    PlanOptions options;
    options.job.costs = in_folder("costs.txt");
    options.job.ranks = ranks;
    options.common.json = true;
    write(options.job.costs, text);
    return options;
  }
};

TEST(CostsIn, ReadsNumbersBetweenBlanksCommasAndLines) {
  EXPECT_THAT(costs_in("1 2.5,3e-1\r\n# all of them\n4 # the last\n", "f"),
              ElementsAre(1.0, 2.5, 0.3, 4.0));
  EXPECT_THAT(costs_in("1,2,3 4, 5 1.5,2 7,", "f"), ElementsAre(1, 2, 3, 4, 5, 1.5, 2, 7));
  EXPECT_THROW(costs_in("", "f"), ConfigError);
  EXPECT_THROW(costs_in("# none\n", "f"), ConfigError);
  for (const char* text : {"1 2\n1,5 3", "1 2\n3 1,5", "\n2 12,25\n"}) {
    try {
      costs_in(text, "costs.txt");
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("costs.txt, line 2: '1"));
      EXPECT_THAT(error.what(), HasSubstr("may be one number or two"));
    }
  }
  try {
    costs_in("1 2\n3 four", "costs.txt");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("costs.txt, line 2: 'four' is no number"));
  }
}

TEST_F(CostCommand, CutsByTheNamedPartitioner) {
  PlanOptions options = costs("5 1 1 1 1 1 2", "3");
  json cuts = json::parse(plan(options));
  ASSERT_EQ(cuts["stages"].size(), 3U);
  EXPECT_EQ(cuts["step_seconds"], 5.0);
  EXPECT_EQ(cuts["bound"], 5.0);
  EXPECT_EQ(cuts["gap"], 0.0);
  EXPECT_EQ(cuts["stages"][0]["last"], 0);
  EXPECT_NEAR(cuts["bubble"].get<double>(), 1.0 - 12.0 / 15.0, 1e-12);
  Keys expected;
  for (const auto& [key, meaning] : documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Lists of costs"))
    expected.insert(key);
  EXPECT_EQ(keys_of(cuts), expected);

  options.job.partitioner = "even";
  cuts = json::parse(plan(options));
  EXPECT_EQ(cuts["partitioner"], "even");
  EXPECT_GT(cuts["step_seconds"], 5.0);
  EXPECT_NEAR(cuts["gap"].get<double>(), cuts["step_seconds"].get<double>() / 5.0 - 1.0, 1e-12);

  options.job.compare = true;
  EXPECT_EQ(json::parse(plan(options)).size(), planner::partitioners().size());
  options.common.json = false;
  EXPECT_THAT(plan(options), HasSubstr("torchgpipe"));
}

// A table of a thousand stages was padded to lines of 12,000 letters.
TEST_F(CostCommand, ShowsTheFirstStagesOfMany) {
  std::string thousand;
  for (int i = 0; i < 1000; ++i) thousand += "1 ";
  PlanOptions options = costs(thousand, "1000");
  options.job.partitioner = "even";
  EXPECT_EQ(json::parse(plan(options))["stages"].size(), 1000U);
  options.common.json = false;
  const std::string text = plan(options);
  EXPECT_THAT(text, HasSubstr("  0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7 and 992 more\n"));
  EXPECT_THAT(text, EndsWith("\n--json tells all stages\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 200U) << line;

  options = costs("1 1 1 1 1 1 1 1", "8");
  options.common.json = false;
  EXPECT_THAT(plan(options), EndsWith("  0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7\n"));
}

TEST_F(CostCommand, RefusesWhatCannotBeCut) {
  EXPECT_THAT(plan_refusal(costs("1 2", "3")), HasSubstr("costs.txt: there are more stages than"));
  EXPECT_THAT(plan_refusal(costs("1 -2 3", "2")),
              HasSubstr("layer 1 ('1') has forward time of -2"));
  EXPECT_THAT(plan_refusal(costs("1 nan 3", "2")), HasSubstr("layer 1 ('1') has no forward time"));
  PlanOptions options = costs("1 2 3", "2");
  options.job.schedule = "1f1b";
  EXPECT_THAT(plan_refusal(options), HasSubstr("--schedule 1f1b has no place beside --costs"));
  options = costs("1 2 3", "2");
  options.common.profile = profile_;
  EXPECT_THAT(plan_refusal(options), HasSubstr("name one of both"));
  options = costs("1 2 3", "");
  EXPECT_THAT(plan_refusal(options), HasSubstr("--ranks is missing"));
}

/// It is refused in one sentence that names the file, or cut by every partitioner that can.
bool is_cut_or_refused(const std::string& text, const std::function<std::string()>& cut) {
  try {
    for (const json& each : json::parse(cut()))
      if (each["is_possible"]) {
        EXPECT_GE(each["step_seconds"].get<double>(), each["bound"].get<double>() * (1 - 1e-9));
        EXPECT_LT(each["step_seconds"].get<double>(), 1e15) << text;
      }
    return true;
  } catch (const Error& error) {
    const std::string sentence = error.what();
    EXPECT_THAT(sentence, HasSubstr("costs.txt")) << text;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << text;
    EXPECT_LE(sentence.size(), 400U) << text;
    return false;
  }
}

TEST_F(CostCommand, SurvivesDamageAndExtremeNumbers) {
  const std::string good = "1 2.5,3e-1\r\n# all of them\n4 # the last\n2\n7 1 1 0.25\n";
  std::size_t cut = 0;
  const auto visit = [&](const std::string& text) {
    PlanOptions options = costs(text, "3");
    options.job.compare = true;
    cut += is_cut_or_refused(text, [&] { return plan(options); }) ? 1 : 0;
  };
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(1500, 200); ++seed)
    visit(DamagedText(seed)(good));
  for_each_extreme(good, visit);
  EXPECT_GT(cut, 100U);
}

}  // namespace
}  // namespace spillway::cli
