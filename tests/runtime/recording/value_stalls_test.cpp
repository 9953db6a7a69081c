#include "spillway/runtime/recording/value_stalls.h"

#include <gmock/gmock.h>

#include <string>

#include "spillway/runtime/learning/step_learner.h"
#include "support/named_op.h"

namespace spillway::runtime {
namespace {

using namespace std::chrono_literals;
using profile::StorageClass;
using testing::IsEmpty;
using testing::SizeIs;
using Reason = StallLedger::Reason;

/// A trainer by hand of one layer: weights make an activation, and both a gradient of the weights.
class ValueStallsTest : public testing::Test {
 protected:
  ValueStallsTest() { learner_.allocated(kWeights, 2, Bytes(3'000'000)); }

  void begin(const NamedOp& text, std::vector<PieceUse> uses) {
    advice_.clear();
    learner_.begin_op(uses.size(), uses, now_, advice_);
    learner_.name_op(text);
    now_ += 1ms;
  }
  void end() { learner_.end_op(advice_); }

  void train(Duration weights_wait, Duration activation_wait, Duration room_wait) {
    learner_.step_boundary();
    begin(forward_, {{kWeights, 2}});
    learner_.waited_for(kWeights, Reason::kInputs, weights_wait);
    learner_.allocated(kActivation, 3, Bytes(5'000'000));
    learner_.waited_for(kActivation, Reason::kRoom, room_wait);
    end();
    begin(backward_, {{kWeights, 2, true}, {kActivation, 3}});
    learner_.waited_for(kActivation, Reason::kInputs, activation_wait);
    end();
    learner_.freed(kActivation);
    learner_.note_class(kWeights, StorageClass::kParameter);
  }

  static constexpr PieceId kWeights{1};
  static constexpr PieceId kActivation{2};

  StepLearner learner_{{.budget_pages = 100}};
  Advice advice_;
  TimePoint now_{};
  NamedOp forward_{"aten::mm", "(float[1, 16])"};
  NamedOp backward_{"aten::mm_backward", "(float[1, 16])"};
};

TEST_F(ValueStallsTest, NameWhatWasWaitedForLongest) {
  train(1ms, 20ms, 300ms);
  train(2ms, 30ms, 400ms);
  learner_.step_boundary();
  begin(forward_, {{kWeights, 2}});
  end();
  const std::vector<ValueStall> stalls = learner_.report().stalls;
  ASSERT_THAT(stalls, SizeIs(2));
  EXPECT_EQ(stalls[0].value, "activation 1");
  EXPECT_EQ(stalls[0].holds, StorageClass::kActivation);
  EXPECT_EQ(stalls[0].bytes, Bytes(5'000'000));
  EXPECT_EQ(stalls[0].made_by, "aten::mm");
  EXPECT_EQ(stalls[0].times, 4U);
  EXPECT_EQ(stalls[0].for_inputs, 50ms);
  EXPECT_EQ(stalls[0].for_room, 700ms);
  EXPECT_EQ(stalls[1].value, "parameter 0");
  EXPECT_EQ(stalls[1].bytes, Bytes(3'000'000));
  EXPECT_EQ(stalls[1].made_by, "") << "from before the step";
  EXPECT_EQ(stalls[1].for_inputs, 3ms);
}

TEST_F(ValueStallsTest, AreSettledWhenTheStepHasEnded) {
  train(1ms, 1ms, 1ms);
  EXPECT_THAT(learner_.report().stalls, IsEmpty());
  learner_.waited_for(PieceId(77), Reason::kInputs, 5ms);  // Nobody knows it.
  learner_.step_boundary();
  begin(forward_, {{kWeights, 2}});
  EXPECT_THAT(learner_.report().stalls, SizeIs(2));
}

TEST(ValueStalls, AreNotedForSoManyStoragesOfAStep) {
  constexpr std::uint64_t kMost = 4096;
  ValueStalls stalls;
  for (std::uint64_t serial = 0; serial <= kMost; ++serial)
    for (int times = 0; times < 2; ++times) stalls.note(serial, Reason::kInputs, 1ms);
  profile::RecordedStep step;
  step.tape.values.resize(2, {.pages = 1});
  step.origins.resize(2);
  step.origins[0].serial = 0;
  step.origins[1].serial = kMost;
  stalls.settle(step, 2_MiB, OpNames(1));
  const auto largest = stalls.largest(9);
  ASSERT_THAT(largest, SizeIs(1));
  EXPECT_EQ(largest.front().times, 2u);
}

TEST(ValueStalls, ShowTheLargestFirst) {
  ValueStalls ledger;
  profile::RecordedStep step;
  step.tape.ops.resize(1);
  for (std::uint64_t serial = 1; serial <= 3; ++serial) {
    step.tape.values.push_back({.pages = 4, .birth = 0, .death = 0});
    step.origins.emplace_back().serial = serial;
  }
  ledger.note(2, Reason::kInputs, 5ms);
  ledger.note(3, Reason::kInputs, 3ms);
  ledger.note(3, Reason::kRoom, 3ms);
  ledger.note(1, Reason::kInputs, 1ms);
  ledger.settle(step, 2_MiB, {});
  const std::vector<ValueStall> largest = ledger.largest(2);
  ASSERT_THAT(largest, SizeIs(2));
  EXPECT_EQ(largest[0].value, "activation 2");
  EXPECT_EQ(largest[0].bytes, 8_MiB) << "as many as its pages";
  EXPECT_EQ(largest[1].value, "activation 1");
  ledger.settle(step, 2_MiB, {});
  EXPECT_EQ(ledger.largest(1)[0].total(), 6ms) << "counted once";
}

}  // namespace
}  // namespace spillway::runtime
