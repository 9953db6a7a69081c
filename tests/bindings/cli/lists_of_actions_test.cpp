#include <nlohmann/json.hpp>
#include <regex>

#include "planning_command.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

class ListsOfActions : public PlanningCommand {};

TEST_F(ListsOfActions, AreWrittenAsPyTorchReadsThem) {
  JobOptions options;
  options.profile = profile_;
  options.request.ranks = 3;
  options.micro_batches = 6;
  take_schedule("1f1b", options.request);
  options.out = in_folder("lists.csv");
  output(options);
  const std::string lists = file_text(options.out);
  CheckOptions check;
  check.plan = options.out;
  const json of_lists = told(check);
  EXPECT_EQ(of_lists["knows_memory"], false);
  // The same as in the plan's own file.
  options.out = check.plan = in_folder("job.json");
  output(options);
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

TEST_F(ListsOfActions, LackWhatPyTorchDoesItselfAlone) {
  JobOptions options;
  options.profile = profile_;
  options.request.ranks = 4;
  options.micro_batches = 8;
  options.out = in_folder("LISTS.CSV");
  take_schedule("1f1b", options.request);
  options.request.data_parallel = 2;
  output(options);
  GoldenPart golden;
  golden.add("replicas sum their gradients", file_text(options.out));
  options.request.data_parallel = 0;
  take_schedule("gems-mast", options.request);
  output(options);
  golden.add("PyTorch has no such updates", file_text(options.out));
}

}  // namespace
}  // namespace spillway::cli
