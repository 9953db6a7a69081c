#include "spillway/profile/value_classes.h"

#include <gmock/gmock.h>

namespace spillway::profile {
namespace {

using ::testing::ElementsAre;

/// forward(input, weights, means!) > activation; backward(activation) > gradient;
/// update(weights!, gradient, moment!) > loss
struct Step {
  enum : ValueIndex { kInput, kWeights, kMeans, kActivation, kGradient, kMoment, kNext, kIdle };

  Step() {
    tape.values = {{1, kCarriedIn, 0, kNoValue},
                   {1, kCarriedIn, kSurvives, kWeights},
                   {1, kCarriedIn, kSurvives, kMeans},
                   {1, 0, 1, kNoValue},
                   {1, 1, 2, kNoValue},
                   {1, kCarriedIn, kSurvives, kMoment},
                   {1, 2, kSurvives, kInput},
                   {1, kCarriedIn, kSurvives, kIdle}};
    tape.uses = {{kInput, false},  {kWeights, false},  {kMeans, true}, {kActivation, false},
                 {kWeights, true}, {kGradient, false}, {kMoment, true}};
    tape.ops.resize(3);
    tape.ops[0].use_count = 3;
    tape.ops[1] = {.first_use = 3, .use_count = 1};
    tape.ops[2] = {.first_use = 4, .use_count = 3};
    noted.resize(tape.values.size(), StorageClass::kUnknown);
    noted[kWeights] = StorageClass::kParameter;
    noted[kGradient] = StorageClass::kGradient;
  }

  StepTape tape;
  std::vector<StorageClass> noted;
};

TEST(ClassifyValues, FollowsLivesAndUses) {
  const Step step;
  check(step.tape);
  EXPECT_THAT(
      classify_values(step.tape, step.noted),
      ElementsAre(StorageClass::kInput, StorageClass::kParameter, StorageClass::kBuffer,
                  StorageClass::kActivation, StorageClass::kGradient, StorageClass::kOptimizerState,
                  StorageClass::kInput, StorageClass::kUnknown));
}

TEST(ClassifyValues, TakesAGradientThatStaysForOneFromItsFirstWriteOn) {
  Step step;
  step.tape.values[Step::kGradient] = {1, kCarriedIn, kSurvives, Step::kGradient};
  step.tape.uses[3] = {Step::kGradient, true};
  EXPECT_EQ(classify_values(step.tape, step.noted)[Step::kMoment], StorageClass::kOptimizerState);
  EXPECT_EQ(classify_values(step.tape, step.noted)[Step::kMeans], StorageClass::kBuffer);
}

/// Temporaries of optimizers were told as activations that had to be waited for.
TEST(ClassifyValues, CallsWhatIsBornAndDeadInTheUpdateAWorkspace) {
  for (const bool has_moment : {true, false}) {
    Step step;
    if (!has_moment) step.tape.uses[6].writes = false;
    step.tape.values.push_back({1, 2, 2, kNoValue});
    step.noted.push_back(StorageClass::kUnknown);
    EXPECT_EQ(classify_values(step.tape, step.noted).back(), StorageClass::kWorkspace);
    step.tape.values.back().birth = 1;
    EXPECT_EQ(classify_values(step.tape, step.noted).back(), StorageClass::kActivation);
  }
}

TEST(ClassifyValues, KnowsNoOptimizerStateWithoutAGradient) {
  Step step;
  step.noted[Step::kGradient] = StorageClass::kUnknown;
  EXPECT_EQ(classify_values(step.tape, step.noted)[Step::kMoment], StorageClass::kBuffer);
}

TEST(ClassifyValues, CarriesWhatIsNotedOverTheStepBoundary) {
  Step step;
  step.noted[Step::kNext] = StorageClass::kGradient;
  EXPECT_EQ(classify_values(step.tape, step.noted)[Step::kInput], StorageClass::kGradient);
}

}  // namespace
}  // namespace spillway::profile
