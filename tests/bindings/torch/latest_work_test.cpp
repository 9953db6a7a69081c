#include "latest_work.h"
#include "support/golden_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::split {
namespace {

using pipeline::StorageOrdinal;
using pipeline::TaskId;
using schedule::ActionKind;
using ::testing::ElementsAre;
using Kind = LatestWork::Piece::Kind;

constexpr ForAction kForward =
    schedule::Action{.kind = ActionKind::kForward, .stage = 1, .micro_batch = 3};
constexpr ForAction kBackward =
    schedule::Action{.kind = ActionKind::kBackward, .stage = 1, .micro_batch = 2};

class LatestWorkTest : public ::testing::Test {
 protected:
  static TimePoint at(int second) { return TimePoint(std::chrono::seconds(second)); }
  void compute(std::string_view name, const ForAction& action, int from, int until) {
    work_.begin({.name = name, .action = action}, at(from));
    work_.end(at(until));
  }

  LatestWork work_;
};

TEST_F(LatestWorkTest, HasNothingAtFirst) {
  EXPECT_THAT(work_.describe(at(9), 0),
              ElementsAre("has computed nothing so far, in step 1; 0 tasks are left"));
}

TEST_F(LatestWorkTest, TellsWhatIsBeingComputed) {
  compute("aten::mm", kForward, 1, 2);
  work_.begin({.name = "aten::gelu", .action = kForward}, at(3));
  EXPECT_THAT(
      work_.describe(at(8), 1),
      ElementsAre("has been computing aten::gelu for forward of stage 1, micro-batch 3 in "
                  "step 1 for 5 s; 1 task is left",
                  "did last, in this order: in step 1 2 operators of 1F3 up to aten::gelu"));
}

TEST_F(LatestWorkTest, TellsWhatItWaitsForUntilThatHasCome) {
  compute("aten::mm", kForward, 1, 2);
  work_.begin_step(2);
  const LatestWork::Piece message{.kind = Kind::kReceives,
                                  .action = kBackward,
                                  .storage = StorageOrdinal(7),
                                  .size = 4_MiB,
                                  .peer = Rank(2)};
  work_.expect(TaskId(5), message);
  EXPECT_EQ(work_.describe(at(9), 3).front(),
            "has computed nothing for 7 s, and waits for storage 7 (4.00 MiB) of rank 2 for "
            "backward of stage 1, micro-batch 2, in step 2; 3 tasks are left");
  work_.has_come(TaskId(4));
  work_.has_come(TaskId(5));
  const auto lines = work_.describe(at(9), 2);
  GoldenPart().add(lines);
}

TEST_F(LatestWorkTest, KeepsTheOrder) {
  compute("aten::mm", kForward, 1, 2);
  work_.add({.kind = Kind::kSends, .storage = StorageOrdinal(8), .size = 1_MiB, .peer = Rank(0)});
  compute("aten::add", kForward, 2, 3);
  compute("aten::mm", kBackward, 3, 4);
  compute("aten::sum", kBackward, 4, 5);
  work_.add({.kind = Kind::kExchanges});
  compute("aten::addcdiv_", std::nullopt, 5, 6);
  EXPECT_EQ(work_.describe(at(9), 0).back(),
            "did last, in this order: in step 1 1 operator of 1F3 up to aten::mm, sent storage 8 "
            "(1.00 MiB) to rank 0, 1 operator of 1F3 up to aten::add, 2 operators of 1B2 up to "
            "aten::sum, began an exchange with other shards, 1 operator of no micro-batch up to "
            "aten::addcdiv_");
}

TEST_F(LatestWorkTest, ForgetsTheOldest) {
  compute("aten::first", kForward, 1, 2);
  for (std::size_t i = 0; i < LatestWork::kKept; ++i) {
    const bool is_even = i % 2 == 0;
    compute(is_even ? "aten::even" : "aten::odd", is_even ? kForward : kBackward, 2, 3);
  }
  GoldenPart().add(work_.describe(at(9), 0).back());
}

}  // namespace
}  // namespace spillway::split
