#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "planning_command.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ListsOfActions : public PlanningCommand {};

TEST_F(ListsOfActions, AreCheckedAsPyTorchWritesThem) {
  PlanOptions check;
  check.job.check = in_folder("lists.csv");
  write(check.job.check, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_THAT(plan(check), HasSubstr("nothing of memory"));
  write(check.job.check, "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");  // Rank 1 waits for 0F1.
  EXPECT_THAT(plan_refusal(check), AllOf(HasSubstr("lists.csv: rank"), HasSubstr("action")));
  write(check.job.check, "0F0,0X0\n");
  EXPECT_THAT(plan_refusal(check), HasSubstr("lists.csv, line 1, column 6"));
}

TEST_F(ListsOfActions, AreWrittenAsPyTorchReadsThem) {
  PlanOptions options;
  options.common.profile = profile_;
  options.job.ranks = "3";
  options.job.micro_batches = "6";
  options.job.schedule = "1f1b";
  options.out = in_folder("lists.csv");
  EXPECT_THAT(plan(options), HasSubstr("actions stored in " + options.out));
  const std::string lists = file_text(options.out);
  EXPECT_THAT(lists, ::testing::StartsWith("0F0,0SEND_F0,0F1"));
  PlanOptions check;
  check.job.check = options.out;
  const json of_lists = told(check);
  EXPECT_EQ(of_lists["knows_memory"], false);
  // The same as in the plan's own file.
  options.out = check.job.check = in_folder("job.json");
  plan(options);
  const json of_plan = told(check);
  EXPECT_EQ(of_plan["knows_memory"], true);
  for (const char* key : {"ranks", "stages", "micro_batches"})
    EXPECT_EQ(of_lists[key], of_plan[key]) << key;
  // Updates are PyTorch's own.
  std::string lines;
  const json file = json::parse(file_text(options.out));
  for (const json& line : file["actions"])
    lines += std::regex_replace(line.get<std::string>(), std::regex(",[0-9]+STEP"), "") + "\n";
  EXPECT_EQ(lines, lists);
}

TEST_F(ListsOfActions, SayWhoReadsThem) {
  PlanOptions options;
  options.common.profile = profile_;
  options.job.ranks = "4";
  options.job.micro_batches = "8";
  options.out = in_folder("LISTS.CSV");
  options.job.schedule = "1f1b";
  options.job.data_parallel = "2";
  EXPECT_THAT(plan(options),
              HasSubstr("(of one of 2 pipelines, as PyTorch's pipelining reads them"));
  EXPECT_THAT(file_text(options.out), ::testing::StartsWith("0F0,"));
  EXPECT_THAT(file_text(options.out), ::testing::Not(HasSubstr("REDUCE")));
  PlanOptions check;
  check.job.check = options.out;
  EXPECT_THAT(plan(check), HasSubstr("nothing is missing"));
  options.job.data_parallel.clear();
  options.job.schedule = "gems-mast";
  EXPECT_THAT(plan(options), HasSubstr("does not have, and refuses"));
  EXPECT_THAT(file_text(options.out), HasSubstr("STEP"));
}

}  // namespace
}  // namespace spillway::cli
