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
using ::testing::HasSubstr;

class CostCommand : public PlanningCommand {
 protected:
  CostOptions costs(const std::string& text, std::uint32_t ranks) const {
    CostOptions options;
    options.costs = in_folder("costs.txt");
    options.ranks = ranks;
    options.json = true;
    write(options.costs, text);
    return options;
  }
};

TEST(CostsIn, ReadsNumbersBetweenBlanksCommasAndLines) {
  EXPECT_THAT(costs_in("1 2.5,3e-1\r\n# all of them\n4 # the last\n", "f"),
              ElementsAre(1.0, 2.5, 0.3, 4.0));
  EXPECT_THAT(costs_in("1,2,3 4, 5 1.5,2 7,", "f"), ElementsAre(1, 2, 3, 4, 5, 1.5, 2, 7));
  EXPECT_THROW(costs_in("", "f"), ConfigError);
  EXPECT_THROW(costs_in("# none\n", "f"), ConfigError);
}

TEST_F(CostCommand, CutsByTheNamedPartitioner) {
  CostOptions options = costs("5 1 1 1 1 1 2", 3);
  json cuts = json::parse(output(options));
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

  options.partitioner = "even";
  cuts = json::parse(output(options));
  EXPECT_EQ(cuts["partitioner"], "even");
  EXPECT_GT(cuts["step_seconds"], 5.0);
  EXPECT_NEAR(cuts["gap"].get<double>(), cuts["step_seconds"].get<double>() / 5.0 - 1.0, 1e-12);

  options.compare = true;
  EXPECT_EQ(json::parse(output(options)).size(), partition::partitioners().size());
}

// A table of a thousand stages was padded to lines of 12,000 letters.
TEST_F(CostCommand, ShowsTheFirstStagesOfMany) {
  std::string thousand;
  for (int i = 0; i < 1000; ++i) thousand += "1 ";
  CostOptions options = costs(thousand, 1000);
  options.partitioner = "even";
  EXPECT_EQ(json::parse(output(options))["stages"].size(), 1000U);
  options.json = false;
  const std::string text = output(options);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 200U) << line;
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
    CostOptions options = costs(text, 3);
    options.compare = true;
    cut += is_cut_or_refused(text, [&] { return output(options); }) ? 1 : 0;
  };
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(1500, 200); ++seed)
    visit(DamagedText(seed)(good));
  for_each_extreme(good, visit);
  EXPECT_GT(cut, 100U);
}

}  // namespace
}  // namespace spillway::cli
