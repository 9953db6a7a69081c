#include "spillway/schedule/schedule_check.h"

#include <gmock/gmock.h>

#include <random>

#include "naive_checker.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/generated_schedule.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::schedule {
namespace {

using planner_schedule::even_costs;
using planner_schedule::generated;
using planner_schedule::time_schedule;
using planner_schedule::with_communication;
using ::testing::HasSubstr;

std::string fault_in(const Schedule& schedule) {
  const auto fault = first_fault(schedule);
  return fault ? to_string(*fault) : "none";
}

std::string fault_in(std::string_view csv) { return fault_in(read_schedule_csv(csv, "test")); }

constexpr std::string_view kCrossed = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0STEP\n"
                                      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1STEP\n";

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string changed(text);
  const auto at = changed.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return changed.replace(at, what.size(), by);
}

TEST(FirstFault, IsNoneInAGoodSchedule) {
  // GPipe-like sends against 1F1B-like receives: 0SEND_F1 waits for 1SEND_B0 to end, and that waits
  // for 0RECV_B0 behind it.
  GoldenPart().add(fault_in(kCrossed));
  EXPECT_EQ(
      fault_in(replaced(replaced(kCrossed, "0SEND_F1,", ""), "0RECV_B0,", "0RECV_B0,0SEND_F1,")),
      "none");
}

TEST(FirstFault, NamesTheDeadlockWithItsCycle) {
  EXPECT_EQ(fault_in(kCrossed),
            "rank 0, action 3 (0SEND_F1): deadlock: it waits for rank 1, whose 1SEND_B0 waits for "
            "rank 0");
}

TEST(FirstFault, NamesWorkInTheWrongOrder) {
  EXPECT_EQ(fault_in("0B0,0F0,0STEP\n"), "rank 0, action 0 (0B0): it comes before its forward");
  EXPECT_EQ(fault_in("0F0,0F0,0B0\n"), "rank 0, action 1 (0F0): it runs a second time");
  EXPECT_EQ(fault_in("0F0,0B0,0B0\n"), "rank 0, action 2 (0B0): its backward is over");
  EXPECT_EQ(fault_in("0F0,0W0,0I0\n"),
            "rank 0, action 1 (0W0): it comes before its input gradient");
  EXPECT_EQ(fault_in("0F0,0I0,0B0\n"), "rank 0, action 2 (0B0): its input gradient is over");
  EXPECT_EQ(fault_in("0F0,0I0\n"),
            "rank 0, action 2 (0B0): it, or the weight gradient of its input gradient, is missing");
  EXPECT_EQ(fault_in("0F0,0F1,0B0,0STEP,0B1\n"),
            "rank 0, action 3 (0STEP): it comes before the last gradient of its stage");
  EXPECT_EQ(fault_in("0F0,0REDUCE_GRAD,0B0,0STEP\n"),
            "rank 0, action 1 (0REDUCE_GRAD): it comes before the last gradient of its stage");
}

TEST(FirstFault, NamesMisusedStashesAndWeights) {
  EXPECT_EQ(fault_in("0F0,0SWAP_OUT0,0B0\n"), "rank 0, action 2 (0B0): its stash is swapped out");
  EXPECT_EQ(fault_in("0F0,0SWAP_IN0,0B0\n"),
            "rank 0, action 1 (0SWAP_IN0): its stash is not swapped out");
  EXPECT_EQ(fault_in("0F0,0B0,0RECOMPUTE0\n"),
            "rank 0, action 1 (0B0): its stash is not recomputed yet");
  EXPECT_EQ(fault_in("0SWAP_OUT_WEIGHTS,0F0,0B0\n"),
            "rank 0, action 1 (0F0): its weights are away");
  EXPECT_EQ(fault_in("0SWAP_IN_WEIGHTS,0SWAP_IN_WEIGHTS,0F0,0B0\n"),
            "rank 0, action 1 (0SWAP_IN_WEIGHTS): its weights are there already");
  EXPECT_EQ(fault_in("0SEND_WEIGHTS,0F0,0B0\n"),
            "rank 0, action 0 (0SEND_WEIGHTS): its stage has not exactly two copies");
}

TEST(FirstFault, NamesMessagesThatAreMissingOrMisplaced) {
  constexpr std::string_view kPair = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(fault_in(kPair), "none");
  EXPECT_EQ(fault_in(replaced(kPair, "0F0,0SEND_F0", "0SEND_F0,0F0")),
            "rank 0, action 0 (0SEND_F0): it comes before what it sends");
  EXPECT_EQ(fault_in(replaced(kPair, "1RECV_F0,1F0", "1F0,1RECV_F0")),
            "rank 1, action 0 (1F0): its input was not received");
  EXPECT_EQ(fault_in(replaced(kPair, "0RECV_B0,0B0", "0B0,0RECV_B0")),
            "rank 0, action 2 (0B0): the gradient of its output was not received");
  EXPECT_EQ(fault_in(replaced(kPair, "0SEND_F0,", "")),
            "rank 0, action 3 (0SEND_F0): it is missing");
  EXPECT_EQ(fault_in(replaced(kPair, "1RECV_F0,", "1RECV_F0,1RECV_F0,")),
            "rank 1, action 1 (1RECV_F0): it comes a second time");
  EXPECT_EQ(fault_in(replaced(kPair, "1SEND_B0", "1SEND_F0")),
            "rank 1, action 3 (1SEND_F0): there is no other rank behind it");
}

TEST(FirstFault, NamesTheFirstMessageInAnotherOrder) {
  EXPECT_EQ(fault_in("0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
                     "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1\n"),
            "rank 1, action 0 (1RECV_F1): rank 0 sends 0SEND_F0 there");
}

TEST(FirstFault, FindsDeadlocksWithoutMessages) {
  EXPECT_EQ(fault_in("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"),
            "rank 0, action 1 (0B0): deadlock: it waits for rank 1, whose 1F1 waits for rank 0");
}

// The checker let the two halves pass one after the other, and the simulator waited for ever.
TEST(FirstFault, FindsThatNeitherHalfOfAPairStartsBeforeTheOtherCan) {
  GoldenPart().add(fault_in("(0F0;0B0)OVERLAP_F_B\n1F0,1B0\n"));
  EXPECT_EQ(fault_in("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n"), "none");
}

TEST(FirstFault, FindsReductionsInAnotherOrder) {
  Schedule schedule = *with_communication(generated("gems-mast", 4, 2));
  EXPECT_EQ(fault_in(schedule), "none");
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < schedule.ranks[0].size(); ++i)
    if (schedule.ranks[0][i].kind == ActionKind::kReduce) found.push_back(i);
  ASSERT_EQ(found.size(), 2U);
  std::swap(schedule.ranks[0][found[0]], schedule.ranks[0][found[1]]);
  const std::string fault = fault_in(schedule);
  EXPECT_TRUE(fault.find("deadlock") != std::string::npos ||
              fault.find("before the last gradient") != std::string::npos)
      << fault;
}

TEST(FirstFault, FindsAReductionThatAPartnerDoesNotJoin) {
  Schedule schedule = *with_communication(generated("gems-mast", 2, 2));
  for (auto& list : schedule.ranks)
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::kStep; });
  std::erase_if(schedule.ranks[1], [](const Action& action) {
    return action.kind == ActionKind::kReduce && action.stage == 0;
  });
  GoldenPart().add(fault_in(schedule));
}

TEST(FirstFault, ThrowsForIndicesOutside) {
  Schedule schedule = generated("1f1b", 2, 2);
  schedule.ranks[0][0].stage = 7;
  EXPECT_THROW(first_fault(schedule), PlanError);
  schedule = generated("1f1b", 2, 2);
  schedule.placement[0][1] = 2;
  EXPECT_THROW(first_fault(schedule), PlanError);
  schedule = generated("1f1b", 2, 2);
  schedule.ranks[0][0].micro_batch = 2;
  EXPECT_THROW(check_schedule(schedule), PlanError);
}

// Two neighbours of an action list change places. What the checker lets through must run, in a
// plain model and in the event model; what it refuses, the plain model must not bring to an end.
TEST(FirstFault, JudgesEverySwapOfNeighboursAsAPlainModelDoes) {
  std::mt19937 random(7);
  std::size_t refused = 0;
  std::size_t deadlocks = 0;
  std::size_t passed = 0;
  for (const char* name :
       {"gpipe", "1f1b", "zb-h1", "zb-v", "v-min", "chimera", "gems-mast", "interleaved"})
    for (int i = 0; i < tries(60, 20); ++i) {
      Schedule schedule = *with_communication(generated(name, 4, 8));
      const std::uint32_t rank = random() % 4;
      auto& list = schedule.ranks[rank];
      const std::size_t at = random() % (list.size() - 1);
      std::swap(list[at], list[at + 1]);
      const auto fault = first_fault(schedule);
      EXPECT_EQ(NaiveChecker(schedule).comes_to_an_end(), !fault)
          << name << ", rank " << rank << ", " << list[at] << " before " << list[at + 1] << ": "
          << (fault ? to_string(*fault) : "none");
      if (!fault) {
        ++passed;
        EXPECT_NO_THROW(time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0)));
        continue;
      }
      ++refused;
      deadlocks += fault->reason.find("deadlock") != std::string::npos ? 1 : 0;
      ASSERT_LE(fault->position, schedule.ranks[fault->rank].size());
    }
  EXPECT_GT(refused, 50U);
  EXPECT_GT(deadlocks, 5U);
  EXPECT_GT(passed, 20U);
}

// A receive and the send before it change places on both sides of a pair of ranks that exchange:
// each then waits for what the other only sends later.
TEST(FirstFault, NamesTheSwappedActionOfAnInjectedDeadlock) {
  std::size_t injected = 0;
  for (const char* name : {"1f1b", "zb-h1", "chimera", "gems-master", "dualpipe-v"}) {
    const Schedule good = *with_communication(generated(name, 4, 8));
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      for (std::size_t i = 0; i + 1 < good.ranks[rank].size(); ++i) {
        const Action& a = good.ranks[rank][i];
        const Action& b = good.ranks[rank][i + 1];
        if (!is_send(a.kind) || !is_receive(b.kind)) continue;
        Schedule bad = good;
        std::swap(bad.ranks[rank][i], bad.ranks[rank][i + 1]);
        const auto fault = first_fault(bad);
        if (!fault) continue;  // The peers of both are different and free.
        ++injected;
        EXPECT_THAT(fault->reason, HasSubstr("deadlock"));
        // The swapped actions are in the cycle: the rank that stands at one of them is named.
        const std::string text = to_string(*fault);
        EXPECT_THAT(text, HasSubstr(to_string(b))) << name;
      }
  }
  EXPECT_GT(injected, 3U);
}

}  // namespace
}  // namespace spillway::schedule
