#include "spillway/runtime/recording/profile_recording.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>

#include "spillway/base/error.h"
#include "spillway/profile/autograd_links.h"
#include "spillway/runtime/learning/step_learner.h"
#include "spillway/runtime/recording/op_text.h"
#include "support/golden_part.h"

namespace spillway::runtime {
namespace {

using namespace std::chrono_literals;
using profile::StepProfile;
using profile::StorageClass;
using ::testing::ElementsAre;

class CountedText final : public OpText {
 public:
  CountedText(std::string shown, std::string name)
      : shown_(std::move(shown)), name_(std::move(name)) {}
  std::string describe() const override {
    ++asked;
    return shown_;
  }
  std::string name() const override { return name_; }
  mutable int asked = 0;

 private:
  std::string shown_;
  std::string name_;
};

/// A trainer by hand: weights, an activation, a gradient of the weights and one moment.
class ProfileRecordingTest : public ::testing::Test {
 protected:
  explicit ProfileRecordingTest(std::uint32_t kind = 1) : recording_({.steps = 4, .kind = kind}) {}

  void SetUp() override {
    learner_.allocated(kWeights, 2, Bytes(3'000'000));
    learner_.allocated(kMoment, 2, Bytes(3'000'000));
  }

  void op(const CountedText& text, std::vector<PieceUse> uses, Duration time,
          const AutogradFacts& autograd = {}) {
    advice_.clear();
    learner_.begin_op(uses.size(), uses, now_, advice_, false, autograd);
    recording_.note_op(learner_.signature(), text);
    moved_ += beside_;
    now_ += time + 1ns * beside_.count();
  }
  void end_op() { learner_.end_op(advice_); }

  /// forward, backward and update take `time`, twice and thrice as long.
  void train(Duration time) {
    learner_.step_boundary();
    const AutogradNode node{1, steps_};
    const auto phase = [this](OpPhase known) { return knows_phases_ ? known : OpPhase::kUnknown; };
    op(forward_, {{kWeights, 2}}, time, {.phase = phase(OpPhase::kForward), .made = node});
    // Each takes the place that the other one had in the step before, as allocators do.
    const PieceId activation(3 + steps_ % 2);
    const PieceId gradient(4 - steps_ % 2);
    ++steps_;
    learner_.allocated(activation, 3, Bytes(5'000'000));
    end_op();
    op(backward_, {{kWeights, 2}, {activation, 3}}, 2 * time,
       {.phase = phase(OpPhase::kBackward), .runs_in = node});
    learner_.allocated(gradient, 2, Bytes(3'000'000));
    end_op();
    learner_.freed(activation);
    learner_.note_class(kWeights, StorageClass::kParameter);
    learner_.note_class(gradient, StorageClass::kGradient);
    op(update_, {{kWeights, 2, true}, {gradient, 2}, {kMoment, 2, true}}, 3 * time,
       {.phase = phase(OpPhase::kOther)});
    end_op();
    learner_.freed(gradient);
  }

  void evaluate() {
    learner_.step_boundary();
    op(forward_, {{kWeights, 2}}, 1ms);
    end_op();
  }

  StepProfile profile() const { return recording_.profile({}, Bytes(77), rates_); }

  static constexpr PieceId kWeights{1};
  static constexpr PieceId kMoment{2};

  ProfileRecording recording_;
  StepLearner learner_{StepLearner::Options{.budget_pages = 100,
                                            .rates = {},
                                            .moved = [this] { return moved_; },
                                            .recording = &recording_}};
  Advice advice_;
  profile::TransferRates rates_{.interference_seconds_per_byte = 1e-9};
  Bytes beside_;  ///< Moves beside each operator and makes it longer by 1 ns per byte.
  Bytes moved_;
  TimePoint now_{};
  std::uint32_t steps_ = 0;
  bool knows_phases_ = true;
  CountedText forward_{"aten::mm(float[2, 3])", "aten::mm"};
  CountedText backward_{"aten::mm_backward()", ""};
  CountedText update_{"aten::add_(float[3])", "aten::add_.Tensor"};
};

TEST_F(ProfileRecordingTest, TellsPhasesAndForwardOperators) {
  for (int step = 0; step < 4; ++step) train(1ms);
  const StepProfile known = profile();
  EXPECT_EQ(known.phase_of_op,
            (std::vector{OpPhase::kForward, OpPhase::kBackward, OpPhase::kOther}));
  EXPECT_EQ(known.forward_of_op,
            (std::vector<profile::OpIndex>{profile::kNoForward, 0, profile::kNoForward}));
  knows_phases_ = false;  // Say, operators are only observed.
  for (int step = 0; step < 4; ++step) train(1ms);
  EXPECT_TRUE(profile().phase_of_op.empty());
  EXPECT_TRUE(profile().forward_of_op.empty());
}

TEST_F(ProfileRecordingTest, TellsNamesLivesAndClasses) {
  for (int step = 0; step < 4; ++step) train(1ms);
  const StepProfile profile = this->profile();
  EXPECT_EQ(profile.origin.source, "recorded");
  EXPECT_EQ(profile.small_bytes, Bytes(77));
  EXPECT_EQ(profile.small_parameter_bytes, Bytes());
  recording_.note_small_parameters(Bytes(50));
  recording_.note_small_parameters(Bytes(20));  // By a thread that knows of fewer.
  EXPECT_EQ(this->profile().small_parameter_bytes, Bytes(50));
  ASSERT_EQ(profile.kinds.size(), 3U);
  EXPECT_EQ(profile.kinds[0].name, "aten::mm");
  EXPECT_EQ(profile.kinds[0].arguments, "float[2, 3]");
  EXPECT_EQ(profile.kinds[1].name, "aten::mm_backward");
  EXPECT_EQ(profile.kinds[1].arguments, "");
  EXPECT_EQ(profile.kinds[2].name, "aten::add_.Tensor");
  EXPECT_EQ(forward_.asked, 1);
  EXPECT_THAT(profile.bytes_of_value,
              ElementsAre(Bytes(3'000'000), Bytes(5'000'000), Bytes(3'000'000), Bytes(3'000'000)));
  EXPECT_THAT(profile.class_of_value,
              ElementsAre(StorageClass::kParameter, StorageClass::kActivation,
                          StorageClass::kGradient, StorageClass::kOptimizerState));
  EXPECT_EQ(profile.tape.values[3].becomes, 3U);
}

TEST_F(ProfileRecordingTest, TakesMediansAndQuartiles) {
  for (const int time : {50, 4, 2, 3, 1}) train(Duration(time * 1ms));
  evaluate();  // Ends the step before.
  const StepProfile profile = this->profile();
  EXPECT_EQ(profile.origin.steps, 5U);
  EXPECT_EQ(profile.tape.ops[0].time, 3ms);
  EXPECT_EQ(profile.tape.ops[1].time, 6ms);
  EXPECT_EQ(profile.spread_of_op[0], 2ms);  // From 2 to 4 ms.
  EXPECT_EQ(profile.spread_of_op[2], 6ms);
}

TEST_F(ProfileRecordingTest, TakesOffWhatTransfersBesideThemCost) {
  for (const int moved : {0, 200'000, 300'000, 100'000, 250'000}) {
    beside_ = Bytes(static_cast<std::uint64_t>(moved));
    train(1ms);
  }
  evaluate();
  const StepProfile alone = profile();
  EXPECT_EQ(alone.tape.ops[0].time, 1ms);
  EXPECT_EQ(alone.tape.ops[1].time, 2ms);
  EXPECT_EQ(alone.spread_of_op[1], 0ns);
  EXPECT_EQ(alone.rates->interference_seconds_per_byte, 1e-9);
  rates_.interference_seconds_per_byte = 0.0;
  EXPECT_EQ(profile().tape.ops[0].time, 1200us);  // As measured.
  rates_.checksum_seconds_per_byte = 1e-9;
  EXPECT_EQ(profile().tape.ops[0].time, 1ms);
}

TEST_F(ProfileRecordingTest, IsOfTheMostFrequentStep) {
  for (int i = 0; i < 3; ++i) train(1ms);
  for (int i = 0; i < 2; ++i) evaluate();
  EXPECT_EQ(profile().tape.ops.size(), 3U);
  for (int i = 0; i < 3; ++i) evaluate();
  EXPECT_EQ(profile().tape.ops.size(), 1U);
}

class SecondKindTest : public ProfileRecordingTest {
 protected:
  SecondKindTest() : ProfileRecordingTest(2) {}
};

TEST_F(SecondKindTest, IsTheStepThatComesNextMostOften) {
  for (int i = 0; i < 6; ++i) train(2ms);
  EXPECT_EQ(recording_.kinds_text(), "");
  EXPECT_THROW(profile(), PlanError);
  for (int i = 0; i < 4; ++i) evaluate();
  EXPECT_FALSE(recording_.is_complete());  // The fourth has not ended.
  const StepProfile second = profile();
  EXPECT_EQ(second.tape.ops.size(), 1U);
  EXPECT_EQ(second.origin.steps, 3U);
  EXPECT_EQ(second.tape.ops[0].time, 1ms);
  EXPECT_EQ(recording_.kinds_text(), "kind 2 of 2, which came 6 and 3 times");
  train(2ms);
  EXPECT_TRUE(recording_.is_complete());
  for (int i = 0; i < 9; ++i) evaluate();
  EXPECT_EQ(profile().tape.ops.size(), 3U) << "now training is the rarer one";
}

TEST_F(ProfileRecordingTest, KeepsAFrequentStepAmongManyStrangers) {
  for (int i = 0; i < 4; ++i) train(1ms);
  for (std::uint32_t pages = 10; pages < 40; ++pages) {
    learner_.step_boundary();
    op(forward_, {{PieceId(pages), pages}}, 1ms);
    end_op();
  }
  EXPECT_EQ(profile().tape.ops.size(), 3U);
}

TEST_F(ProfileRecordingTest, IsCompleteOnceAStepCameOftenEnough) {
  for (int i = 0; i < 4; ++i) train(1ms);
  EXPECT_FALSE(recording_.is_complete());  // The fourth has not ended.
  train(1ms);
  EXPECT_TRUE(recording_.is_complete());
}

TEST_F(ProfileRecordingTest, BeginsAnew) {
  for (int i = 0; i < 4; ++i) evaluate();
  recording_.forget_steps();
  EXPECT_THROW(profile(), PlanError);
  for (int i = 0; i < 4; ++i) train(1ms);
  EXPECT_EQ(profile().tape.ops.size(), 3U);
}

TEST_F(ProfileRecordingTest, SaysWhyThereIsNone) {
  const auto reason = [&] {
    try {
      profile();
    } catch (const PlanError& error) {
      return std::string(error.what());
    }
    return std::string("there is one");
  };
  GoldenPart golden;
  golden.add(reason());
  train(1ms);
  evaluate();
  train(1ms);
  golden.add(reason());
}

}  // namespace
}  // namespace spillway::runtime
