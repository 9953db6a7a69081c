#include "spillway/profile/tape_recorder.h"

#include <gmock/gmock.h>

#include "spillway/profile/step_joining.h"

namespace spillway::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;

TimePoint at(int milliseconds) { return TimePoint(std::chrono::milliseconds(milliseconds)); }

RecordedStep finish(TapeRecorder& recorder, int milliseconds) {
  RecordedStep step;
  recorder.finish_step(at(milliseconds), step);
  check(step.tape);
  return step;
}

TEST(TapeRecorder, NumbersValuesInTheOrderInWhichTheStepMeetsThem) {
  TapeRecorder recorder({});
  recorder.allocated(7, 3);  // Before the first operator: carried in.
  recorder.begin_op(100, at(0));
  recorder.use(7, 3, false);
  recorder.allocated(2, 5);
  recorder.end_op();
  recorder.begin_op(101, at(10));
  recorder.use(2, 5, true);
  recorder.use(7, 3, false);
  recorder.end_op();
  const RecordedStep step = finish(recorder, 30);

  ASSERT_THAT(step.tape.ops, SizeIs(2));
  EXPECT_EQ(step.tape.ops[0].time, std::chrono::milliseconds(10));
  EXPECT_EQ(step.tape.ops[1].time, std::chrono::milliseconds(20));
  ASSERT_THAT(step.tape.values, SizeIs(2));
  EXPECT_EQ(step.tape.values[0].birth, kCarriedIn);
  EXPECT_EQ(step.tape.values[0].pages, 3U);
  EXPECT_EQ(step.tape.values[1].birth, 0U);
  EXPECT_EQ(step.tape.values[1].death, kSurvives);
  EXPECT_THAT(step.tape.uses, ElementsAre(Field(&TapeUse::value, 0U), Field(&TapeUse::value, 1U),
                                          Field(&TapeUse::value, 0U)));
  EXPECT_TRUE(step.tape.uses[1].writes);
}

TEST(TapeRecorder, CountsWhatLivesInsideAnOperatorAsItsPeakOnly) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0));
  recorder.allocated(0, 4);
  recorder.allocated(1, 6);
  recorder.freed(0);
  recorder.allocated(2, 3);
  recorder.freed(1);
  recorder.end_op();
  const RecordedStep step = finish(recorder, 1);
  EXPECT_EQ(step.tape.ops[0].inside_peak_pages, 10U);
  ASSERT_THAT(step.tape.values, SizeIs(1));
  EXPECT_EQ(step.tape.values[0].pages, 3U);
}

/// Several operators fill it, so it makes none of them one that cannot run again.
TEST(TapeRecorder, NumbersSharedPagesBehindAllOtherValues) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0), true);
  recorder.allocated_shared(8);
  recorder.use_shared(8, true);
  recorder.allocated(0, 4);
  recorder.end_op();
  recorder.begin_op(2, at(1), true);
  recorder.use(0, 4, false);
  recorder.use_shared(9, false);  // It is from before the recording.
  recorder.use_shared(8, false);
  recorder.use_shared(8, true);
  recorder.allocated(1, 4);
  recorder.end_op();
  recorder.freed(8);
  RecordedStep step = finish(recorder, 2);
  EXPECT_THAT(step.tape.values,
              ElementsAre(Field(&TapeValue::is_shared, false), Field(&TapeValue::is_shared, false),
                          Field(&TapeValue::is_shared, true), Field(&TapeValue::is_shared, true)));
  EXPECT_EQ(step.tape.values[2].birth, 0U);
  EXPECT_EQ(step.tape.values[2].death, 1U);
  EXPECT_EQ(step.tape.values[3].birth, kCarriedIn);
  EXPECT_EQ(step.tape.ops[0].inside_peak_pages, 5U);
  EXPECT_TRUE(step.tape.ops[0].is_replayable);
  ASSERT_THAT(uses_of(step.tape, 1), SizeIs(1));
  const auto touches = touches_of(step.tape, 1);
  EXPECT_THAT(touches, ElementsAre(Field(&TapeUse::value, 0U), Field(&TapeUse::value, 3U),
                                   Field(&TapeUse::value, 2U)));
  EXPECT_FALSE(touches[1].writes);
  EXPECT_TRUE(touches[2].writes);

  recorder.begin_op(3, at(2));
  recorder.use(1, 4, false);
  recorder.use_shared(9, true);
  recorder.end_op();
  step = finish(recorder, 3);
  EXPECT_EQ(step.origins[0].before, 1U);
  EXPECT_EQ(step.origins[2].before, 3U) << "as the step before numbered it in the end";
}

TEST(TapeRecorder, AttributesEventsBetweenOperatorsToTheOneBefore) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0));
  recorder.allocated(0, 4);
  recorder.end_op();
  recorder.begin_op(2, at(1));
  recorder.use(0, 4, false);
  recorder.end_op();
  recorder.freed(0);
  recorder.allocated(1, 2);
  recorder.begin_op(3, at(2));
  recorder.end_op();
  const RecordedStep step = finish(recorder, 3);
  EXPECT_EQ(step.tape.values[0].death, 1U);
  EXPECT_EQ(step.tape.values[1].birth, 1U);
  EXPECT_EQ(step.tape.ops[1].inside_peak_pages, 2U);
}

TEST(TapeRecorder, TakesAReusedIdForANewValue) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0));
  recorder.allocated(0, 4);
  recorder.end_op();
  recorder.freed(0);
  recorder.begin_op(2, at(1));
  recorder.allocated(0, 4);
  recorder.end_op();
  const RecordedStep step = finish(recorder, 2);
  ASSERT_THAT(step.tape.values, SizeIs(2));
  EXPECT_EQ(step.tape.values[0].death, 0U);
  EXPECT_EQ(step.tape.values[1].birth, 1U);
  EXPECT_NE(step.origins[0].serial, step.origins[1].serial);
}

TEST(TapeRecorder, LeavesWaitsOutOfTheTimeOfAnOperator) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0));
  recorder.waited(std::chrono::milliseconds(30));
  recorder.waited(std::chrono::milliseconds(20));
  recorder.end_op();
  EXPECT_EQ(finish(recorder, 60).tape.ops[0].time, std::chrono::milliseconds(10));
}

TEST(TapeRecorder, CountsWhatMovesBesideEachOperatorButNotInItsWaits) {
  TapeRecorder recorder({});
  recorder.begin_op(1, at(0), false, Bytes(1000));
  recorder.waited(std::chrono::milliseconds(1), Bytes(30));
  recorder.waited(std::chrono::milliseconds(1), Bytes(200));
  recorder.end_op();
  recorder.begin_op(2, at(10), false, Bytes(1300));
  recorder.end_op();
  RecordedStep step;
  recorder.finish_step(at(20), step, Bytes(1305));
  EXPECT_THAT(step.moved_of_op, ElementsAre(Bytes(70), Bytes(5)));
  recorder.begin_op(1, at(30), false, Bytes(9000));
  recorder.end_op();
  recorder.finish_step(at(40), step, Bytes(9001));
  EXPECT_THAT(step.moved_of_op, ElementsAre(Bytes(1)));
}

TEST(TapeRecorder, NotesWhatAutogradKnowsOfEachOperator) {
  TapeRecorder recorder({.max_ops = 2});
  const AutogradFacts forward{.phase = OpPhase::kForward, .made = {1, 7}};
  for (int step = 0; step < 2; ++step) {
    for (const bool is_known : {true, false, true}) {
      recorder.begin_op(1, at(0), false, Bytes(), is_known ? forward : AutogradFacts());
      recorder.end_op();
    }
    const RecordedStep recorded = finish(recorder, 1);
    ASSERT_EQ(recorded.autograd_of_op.size(), 2u);  // The third one is cut off.
    EXPECT_EQ(recorded.autograd_of_op[0].made, forward.made);
    EXPECT_EQ(recorded.autograd_of_op[1].phase, OpPhase::kUnknown);
  }
}

TEST(JoinSteps, KnowsWhereForwardEndsWhereAutogradDid) {
  TapeRecorder recorder({});
  const auto record = [&](const std::vector<OpPhase>& phases) {
    for (const OpPhase phase : phases) {
      recorder.begin_op(1, at(0), false, Bytes(), {.phase = phase});
      recorder.end_op();
    }
    return finish(recorder, 1);
  };
  const auto end_of = [](std::vector<const RecordedStep*> steps) {
    return join_steps(steps, nullptr).tape.forward_end;
  };
  const RecordedStep step = record({OpPhase::kForward, OpPhase::kUnknown, OpPhase::kBackward,
                                    OpPhase::kBackward, OpPhase::kOther});
  EXPECT_EQ(end_of({&step}), 1U);
  EXPECT_EQ(end_of({&step, &step}), std::nullopt) << "there are two";
  const RecordedStep unknown = record({OpPhase::kUnknown, OpPhase::kUnknown});
  EXPECT_EQ(end_of({&unknown}), std::nullopt);
}

TEST(TapeRecorder, ListsUntouchedLiveStoragesAtTheEndOldestFirst) {
  TapeRecorder recorder({});
  recorder.allocated(5, 1);
  recorder.allocated(3, 2);
  recorder.allocated(4, 3);
  recorder.begin_op(1, at(0));
  recorder.use(3, 2, false);
  recorder.end_op();
  const RecordedStep step = finish(recorder, 1);
  EXPECT_THAT(step.tape.values,
              ElementsAre(Field(&TapeValue::pages, 2U), Field(&TapeValue::pages, 1U),
                          Field(&TapeValue::pages, 3U)));
}

TEST(TapeRecorder, MergesRepeatedUsesOfOneOperator) {
  TapeRecorder recorder({});
  recorder.allocated(0, 1);
  recorder.begin_op(1, at(0));
  recorder.use(0, 1, false);
  recorder.use(0, 1, true);
  recorder.end_op();
  const RecordedStep step = finish(recorder, 1);
  ASSERT_THAT(step.tape.uses, SizeIs(1));
  EXPECT_TRUE(step.tape.uses[0].writes);
}

TEST(TapeRecorder, MarksStepsBeyondItsBound) {
  TapeRecorder recorder({.max_ops = 3});
  for (int i = 0; i < 5; ++i) {
    recorder.begin_op(1, at(i));
    recorder.allocated(static_cast<std::uint32_t>(i), 1);
    recorder.end_op();
  }
  RecordedStep step;
  recorder.finish_step(at(5), step);
  EXPECT_FALSE(step.is_whole);
  EXPECT_THAT(step.tape.ops, SizeIs(3));
  recorder.begin_op(1, at(6));
  recorder.use(4, 1, false);
  recorder.end_op();
  EXPECT_TRUE(finish(recorder, 7).is_whole);
}

/// Parameter 0 is updated in place; a gradient is born late in one step and dies in the next one.
void run_training_step(TapeRecorder& recorder, std::uint32_t gradient, bool has_old, int time) {
  if (has_old) {
    recorder.begin_op(10, at(time));
    recorder.use(0, 4, false);
    recorder.end_op();
    recorder.freed(gradient ^ 1U);
  } else {
    recorder.begin_op(10, at(time));
    recorder.use(0, 4, false);
    recorder.end_op();
  }
  recorder.begin_op(11, at(time + 1));
  recorder.use(0, 4, false);
  recorder.allocated(gradient, 4);
  recorder.end_op();
  recorder.begin_op(12, at(time + 2));
  recorder.use(0, 4, true);
  recorder.use(gradient, 4, false);
  recorder.end_op();
}

TEST(JoinSteps, TiesSurvivorsToWhatTheyAreInTheNextEqualStep) {
  TapeRecorder recorder({});
  recorder.allocated(0, 4);
  run_training_step(recorder, 2, false, 0);
  const RecordedStep first = finish(recorder, 3);
  run_training_step(recorder, 3, true, 3);
  const RecordedStep second = finish(recorder, 6);
  run_training_step(recorder, 2, true, 6);
  const RecordedStep third = finish(recorder, 9);

  const RecordedStep* steps[] = {&third};
  for (const RecordedStep* before : {&second, static_cast<const RecordedStep*>(nullptr)}) {
    const RecordedStep joined = join_steps(steps, before);
    check(joined.tape);
    ASSERT_THAT(joined.tape.values, SizeIs(3));
    EXPECT_EQ(joined.tape.values[0].becomes, 0U) << "the parameter";
    EXPECT_EQ(joined.tape.values[1].death, 0U) << "the gradient of the step before";
    EXPECT_EQ(joined.tape.values[2].becomes, 1U) << "the gradient of this step";
  }
}

TEST(JoinSteps, MakesOneValueOfAStorageThatLivesOn) {
  TapeRecorder recorder({});
  recorder.allocated(0, 4);
  run_training_step(recorder, 2, false, 0);
  const RecordedStep first = finish(recorder, 3);
  run_training_step(recorder, 3, true, 3);
  const RecordedStep second = finish(recorder, 6);
  run_training_step(recorder, 2, true, 6);
  const RecordedStep third = finish(recorder, 9);
  run_training_step(recorder, 3, true, 9);
  const RecordedStep fourth = finish(recorder, 12);

  const RecordedStep* steps[] = {&third, &fourth};
  const RecordedStep joined = join_steps(steps, nullptr);
  check(joined.tape);
  EXPECT_THAT(joined.tape.ops, SizeIs(6));
  // The parameter, the gradients of the second, third and fourth step.
  ASSERT_THAT(joined.tape.values, SizeIs(4));
  EXPECT_EQ(joined.tape.values[2].birth, 1U);
  EXPECT_EQ(joined.tape.values[2].death, 3U);
  EXPECT_EQ(joined.tape.values[3].birth, 4U);
  EXPECT_EQ(joined.tape.values[3].becomes, 1U);
}

}  // namespace
}  // namespace spillway::profile
