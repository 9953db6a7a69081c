#include "spillway/schedule/schedule_csv.h"

#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "support/damaged_text.h"
#include "support/generated_schedule.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::schedule {
namespace {

using planner_schedule::CommunicationOptions;
using planner_schedule::CopyRule;
using planner_schedule::even_costs;
using planner_schedule::generated;
using planner_schedule::schedule_generators;
using planner_schedule::ScheduleCosts;
using planner_schedule::ScheduleGenerator;
using planner_schedule::ScheduleRequest;
using planner_schedule::with_communication;
using planner_schedule::with_parked_weights;

void expect_equal(const Schedule& a, const Schedule& b) {
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.micro_batches, b.micro_batches);
  EXPECT_EQ(a.placement, b.placement);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.weight_rule, b.weight_rule);
  EXPECT_EQ(a.data_parallel, b.data_parallel);
  EXPECT_EQ(a.untrained_stages, b.untrained_stages);
}

TEST(ScheduleCsv, IsThatOfPyTorch) {
  EXPECT_EQ(to_csv(*with_communication(generated("1f1b", 2, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0STEP\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1STEP\n");
}

TEST(ScheduleCsv, SaysWhatPyTorchCannot) {
  GoldenPart golden;
  golden.add(to_csv(generated("gems-mast", 2, 2)));
  Schedule schedule = generated("pipedream-2bw", 2, 4);
  schedule.data_parallel = 8;
  schedule.untrained_stages = 2;
  golden.add(to_csv(schedule));
  golden.add(to_csv(generated("dualpipe-v", 1, 2)));
}

TEST(ScheduleCsv, ComesBackAsItWas) {
  for (const ScheduleGenerator& generator : schedule_generators()) {
    const Schedule plain = generator.generate({.ranks = 4, .micro_batches = 8});
    expect_equal(read_schedule_csv(to_csv(plain), "test"), plain);
    const Schedule complete = *with_communication(plain, CommunicationOptions{.data_parallel = 2});
    expect_equal(read_schedule_csv(to_csv(complete), "test"), complete);
  }
  const Schedule gems = *with_parked_weights(*with_communication(
      generated("gems-master", 5, 6), CommunicationOptions{.data_parallel = 1}));
  expect_equal(read_schedule_csv(to_csv(gems), "test"), gems);
  const Schedule owned = *with_communication(
      generated("gems-master", 5, 6),
      CommunicationOptions{.data_parallel = 3, .copy_rule = CopyRule::kSingleOwner});
  expect_equal(read_schedule_csv(to_csv(owned), "test"), owned);
}

// As Python's csv module writes it: carriage returns, and empty cells where a rank is idle.
TEST(ScheduleCsv, ReadsWhatPyTorchWrites) {
  const Schedule schedule = read_schedule_csv(
      "0F0,0F1,,,(0F2;0B0)OVERLAP_F_B,0B1,0B2\r\n,1F0, 1F1 ,1I0,1W0,1F2,1B1,1B2,\r\n", "test");
  EXPECT_EQ(schedule.stages, 2U);
  EXPECT_EQ(schedule.micro_batches, 3U);
  EXPECT_EQ(schedule.ranks[0].size(), 6U);
  EXPECT_TRUE(schedule.ranks[0][2].overlaps_next);
  EXPECT_EQ(schedule.ranks[1].size(), 7U);
  EXPECT_FALSE(first_fault(schedule));
}

// What ScheduleInterleaved1F1B of PyTorch 2.11 writes for two ranks with two stages each and two
// micro-batches, in both forms of its _dump_csv.
constexpr std::string_view kWithMessages =
    "0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,"
    "2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,2REDUCE_GRAD,2RESHARD,0RECV_B0,0B0,0RECV_B1,0B1,"
    "0REDUCE_GRAD,0RESHARD\r\n"
    "1UNSHARD,3UNSHARD,1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,"
    "3SEND_B0,1RECV_B0,3F1,3B1,3SEND_B1,1RECV_B1,3REDUCE_GRAD,3RESHARD,1B0,1SEND_B0,1B1,1SEND_B1,"
    "1REDUCE_GRAD,1RESHARD\r\n";
constexpr std::string_view kComputeOnly =
    "0F0,0F1,2F0,2F1,,,,2B0,,2B1,,0B0,,0B1\r\n,1F0,1F1,,3F0,3B0,3F1,3B1,,1B0,,1B1\r\n";

std::vector<std::vector<Action>> compute_of(const Schedule& schedule) {
  auto action_lists = schedule.ranks;
  for (auto& list : action_lists)
    std::erase_if(list, [](const Action& action) { return !is_model_compute(action.kind); });
  return action_lists;
}

TEST(ScheduleCsv, ReadsBothFormsOfADumpOfPyTorch) {
  const Schedule complete = read_schedule_csv(kWithMessages, "dump.csv");
  EXPECT_FALSE(first_fault(complete));
  EXPECT_EQ(complete.stages, 4U);
  EXPECT_EQ(complete.ranks[0].size() + complete.ranks[1].size(), 44U);  // Less 8 of sharding.
  const Schedule plain = read_schedule_csv(kComputeOnly, "dump.csv");
  EXPECT_FALSE(first_fault(plain));
  EXPECT_EQ(compute_of(complete), plain.ranks);
  const ScheduleRequest request{.ranks = 2, .micro_batches = 2, .stages_per_rank = 2};
  EXPECT_EQ(compute_of(generated("interleaved", request)), plain.ranks);
  const ScheduleCosts costs = even_costs(plain, 1.0, 1.0, 1.0);
  EXPECT_EQ(time_schedule(complete, costs).step_seconds, time_schedule(plain, costs).step_seconds);
}

// A rank that has nothing to do is a line of empty cells.
TEST(ScheduleCsv, KeepsRanksWithoutActions) {
  Schedule schedule = generated("gpipe", 2, 2);
  schedule.ranks.insert(schedule.ranks.begin(), std::vector<Action>());
  for (std::uint32_t& rank : schedule.placement[0]) ++rank;
  schedule.ranks.emplace_back();
  const std::string text = to_csv(schedule);
  EXPECT_EQ(text, ",\n0F0,0F1,0B1,0B0,0STEP\n1F0,1F1,1B1,1B0,1STEP\n,\n");
  expect_equal(read_schedule_csv(text, "test"), schedule);
}

void expect_error(std::string_view text, std::string_view sentence) {
  try {
    read_schedule_csv(text, "plan.csv");
    FAIL() << text;
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), sentence);
  }
}

TEST(ScheduleCsv, SaysWhereTextIsWrong) {
  expect_error("", "plan.csv holds no actions (each line is a rank)");
  expect_error("0STEP\n", "plan.csv holds no forward, like 0F0");
  expect_error("0F0,0SOMETHING0\n",
               "plan.csv, line 1, column 6: unknown action 'SOMETHING' (known: F B I W SEND_F "
               "RECV_F SEND_B RECV_B REDUCE_GRAD STEP SWAP_OUT SWAP_IN RECOMPUTE SEND_WEIGHTS "
               "RECV_WEIGHTS SEND_GRADIENTS RECV_GRADIENTS SWAP_OUT_WEIGHTS SWAP_IN_WEIGHTS)");
  expect_error("0F0,0SWOP_OUT0\n",
               "plan.csv, line 1, column 6: unknown action 'SWOP_OUT' (did you mean 'SWAP_OUT'?)");
  expect_error("0F0,0B0\n1F0,xB0\n",
               "plan.csv, line 2, column 5: the number of a stage expected, not 'xB0'");
  expect_error("0F0,0B\n",
               "plan.csv, line 1, column 7: the number of a micro-batch expected, not the end of "
               "the cell");
  expect_error("0F0,0REDUCE_GRAD1\n",
               "plan.csv, line 1, column 17: REDUCE_GRAD takes no micro-batch");
  expect_error("0F0 0B0\n", "plan.csv, line 1, column 5: ',' expected behind an action, not '0B0'");
  expect_error("0F99999999999\n",
               "plan.csv, line 1, column 3: the number of a micro-batch 99999999999 is beyond "
               "16777215");
  expect_error("0F0,0F1,1F5\n",
               "plan.csv holds 3 forwards, too few for 2 stages, 6 micro-batches, 1 replica");
  expect_error("0F0\n0F1\n",
               "plan.csv, line 2, column 1: 0F1 on rank 1, but its stage is on rank 0 already");
  expect_error("0F0,0B0\n\n1F0,1B0\n",
               "plan.csv, line 2, column 1: a line without actions (each is a rank, an idle one is "
               "',')");
  expect_error("0F0,0B0\n  \n",
               "plan.csv, line 2, column 1: a line without actions (each is a rank, an idle one is "
               "',')");
  expect_error(",\n", "plan.csv holds no forward, like 0F0");
  expect_error("0F0,0UNSHARD1\n",
               "plan.csv, line 1, column 13: ',' expected behind an action, not '1'");
  expect_error("0F0,0B1\n", "plan.csv, line 1, column 5: 0B1 has no forward");
  expect_error("0F0,1B0\n1F0,0B0\n",
               "plan.csv, line 1, column 5: 1B0 on rank 0, which has no forward of its stage");
  expect_error("(0F0;0F1)OVERLAP_F_B\n",
               "plan.csv, line 1, column 9: the second of two as one must be a backward");
  expect_error("(0F0;0B0)TOGETHER\n",
               "plan.csv, line 1, column 10: OVERLAP_F_B expected, not 'TOGETHER'");
  expect_error("r1:0STEP\n",
               "plan.csv, line 1, column 1: an action of a whole stage belongs to no replica");
  expect_error("#spillway-schedule 1,wights=newest\n0F0\n",
               "plan.csv, line 1, column 22: unknown setting 'wights=newest' (known: weights "
               "data_parallel untrained_stages)");
  expect_error(
      "#spillway-schedule 1,untrained_stages=2\n0F0\n",
      "plan.csv: untrained stages are 2, and there are 1 (count those that lead the trained "
      "ones)");
  expect_error("#spillway-schedule 2\n0F0\n",
               "plan.csv, line 1, column 1: '#spillway-schedule 1' expected, not "
               "'#spillway-schedule 2'");
}

/// Whatever happens to a file: it is read, or refused in one line; and what is read can be checked,
/// written and read again. Whether it was read.
bool is_read_or_refused(const std::string& text) {
  try {
    const Schedule schedule = read_schedule_csv(text, "damaged");
    first_fault(schedule);
    expect_equal(read_schedule_csv(to_csv(schedule), "again"), schedule);
    return true;
  } catch (const ConfigError& error) {
    const std::string_view sentence = error.what();
    EXPECT_EQ(sentence.find('\n'), std::string_view::npos) << text;
    EXPECT_THAT(std::string(sentence), ::testing::StartsWith("damaged")) << text;
    EXPECT_LE(sentence.size(), 400U) << text;
    return false;
  }
}

std::vector<std::string> texts_of_schedules(std::uint32_t ranks) {
  std::vector<std::string> texts;
  for (const char* name : {"1f1b", "zb-v", "chimera", "gems-master", "pipedream-2bw", "dualpipe-v"})
    texts.push_back(to_csv(*with_communication(generated(name, ranks, 2 * ranks),
                                               CommunicationOptions{.data_parallel = 1})));
  texts.push_back("#spillway-schedule 1,weights=newest,data_parallel=4,untrained_stages=1\n" +
                  texts.front());
  return texts;
}

TEST(ScheduleCsv, SurvivesDamage) {
  const std::vector<std::string> texts = texts_of_schedules(4);
  std::size_t read = 0;
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(20000, 2000); ++seed) {
    DamagedText damage(seed);
    read += is_read_or_refused(damage(texts[seed % texts.size()])) ? 1 : 0;
  }
  EXPECT_GT(read, tries<std::size_t>(400, 40));
}

TEST(ScheduleCsv, SurvivesExtremeNumbers) {
  std::size_t read = 0;
  for (const std::string& text : texts_of_schedules(2))
    for_each_extreme(
        text, [&](const std::string& changed) { read += is_read_or_refused(changed) ? 1 : 0; });
  EXPECT_GT(read, 100U);
}

}  // namespace
}  // namespace spillway::schedule
