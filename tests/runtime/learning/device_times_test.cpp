#include "device_times.h"

#include <gmock/gmock.h>

#include <optional>

#include "spillway/runtime/learning/step_learner.h"
#include "support/timed_stream.h"

namespace spillway::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr ShapeId kShape = 7;

class DeviceTimesTest : public ::testing::Test {
 protected:
  /// The host starts it in a microsecond and goes on.
  void op(Duration kernel) {
    times_.note_begin(stream_.record());
    stream_.launch(kernel);
    clock_.advance(microseconds(1));
  }
  /// The host waits for memory.
  void wait(Duration time) {
    const device::Event from = stream_.record();
    clock_.advance(time);
    times_.note_apart(from, stream_.record());
  }
  bool end_step(std::size_t ops, ShapeId shape = kShape) {
    const bool is_measured = times_.end_step(shape, std::vector<Bytes>(ops));
    times_.begin_step(true);
    return is_measured;
  }
  /// Of the one step that is done; empty: none is.
  std::vector<Duration> take() {
    const auto done = times_.take_done();
    EXPECT_LE(done.size(), 1U);
    return done.empty() ? std::vector<Duration>() : done.front().times.measured;
  }

  ManualClock clock_;
  TimedStream stream_{clock_};
  DeviceTimes times_;
};

TEST_F(DeviceTimesTest, AreThereOnceTheDeviceHasComeToTheNextStep) {
  op(milliseconds(30));
  op(milliseconds(50));
  EXPECT_TRUE(end_step(2));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre()) << "where its last operator ends is not known yet";
  stream_.launch(milliseconds(20));  // Between two operators, of the trainer itself.
  op(milliseconds(1));
  EXPECT_THAT(take(), ElementsAre()) << "the device is not there";
  clock_.advance(milliseconds(20));
  EXPECT_THAT(take(), ElementsAre(milliseconds(30), milliseconds(70)));
  EXPECT_THAT(take(), ElementsAre());
}

TEST_F(DeviceTimesTest, HaveThePaceOfTheTrainer) {
  op(milliseconds(30));
  stream_.synchronize();
  clock_.advance(milliseconds(5));
  op(milliseconds(1));
  EXPECT_TRUE(end_step(2));
  op(milliseconds(1));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre(milliseconds(35), milliseconds(1)));
}

TEST_F(DeviceTimesTest, LeaveOutWhatTheDeviceRanDryInWaitsAndNoMore) {
  op(milliseconds(30));
  wait(milliseconds(20));  // For room, within the operator; the device is busy for longer.
  stream_.launch(milliseconds(4));
  wait(milliseconds(50));  // For the inputs of the next one.
  op(milliseconds(6));
  wait(milliseconds(100));
  EXPECT_TRUE(end_step(2));
  wait(milliseconds(100));
  op(milliseconds(1));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre(milliseconds(34), milliseconds(6)));
}

TEST_F(DeviceTimesTest, LeaveOutWhatTheDeviceDidAgain) {
  op(milliseconds(30));
  const device::Event from = stream_.record();
  stream_.launch(milliseconds(500));
  times_.note_apart(from, stream_.record());
  op(milliseconds(10));
  EXPECT_TRUE(end_step(2));
  op(milliseconds(1));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre(milliseconds(30), milliseconds(10)));
}

TEST_F(DeviceTimesTest, NeedTheBeginsOfAllOperators) {
  op(milliseconds(30));
  EXPECT_FALSE(end_step(2)) << "one of two";
  op(milliseconds(30));
  EXPECT_FALSE(end_step(1, kNoShape)) << "it was no step";
  op(milliseconds(30));
  times_.note_begin({});  // While a graph is captured no moment can be recorded.
  EXPECT_FALSE(times_.wants_moments());
  op(milliseconds(30));
  EXPECT_FALSE(end_step(3));
  op(milliseconds(30));
  EXPECT_TRUE(end_step(1));
  EXPECT_FALSE(end_step(0)) << "and the step before has no end";
  op(milliseconds(30));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre());
}

TEST_F(DeviceTimesTest, AreNotMeasuredWhereNobodyWantsThem) {
  op(milliseconds(30));
  EXPECT_TRUE(times_.end_step(kShape, std::vector<Bytes>(1)));
  times_.begin_step(false);
  EXPECT_TRUE(times_.wants_moments()) << "the end of the step before";
  op(milliseconds(30));
  EXPECT_FALSE(times_.wants_moments());
  EXPECT_FALSE(end_step(1));
  stream_.synchronize();
  EXPECT_THAT(take(), ElementsAre(milliseconds(30)));
}

TEST_F(DeviceTimesTest, KeepTheMomentsOfFewStepsUntilTheDeviceHasComeToThem) {
  for (std::size_t step = 0; step < 2 * DeviceTimes::kMostPending; ++step) {
    op(milliseconds(30));
    EXPECT_EQ(end_step(1), step < DeviceTimes::kMostPending);
  }
  EXPECT_FALSE(times_.wants_moments());
  stream_.synchronize();
  EXPECT_EQ(times_.take_done().size(), DeviceTimes::kMostPending);
  times_.begin_step(true);
  EXPECT_TRUE(times_.wants_moments());
}

// --- Plans by them ----------------------------------------------------------------------------

constexpr std::uint32_t kPages = 4;

/// A trainer whose host starts an operator in ten microseconds, and looks at a result here and
/// there. The operator in the middle has room for one of the values A and B. While A is idle before
/// it, the device works for long; while B is, the host only waits for that. Behind it B is idle for
/// longer.
class Trainer {
 public:
  Trainer(std::uint32_t budget_pages, bool is_on_device)
      : learner_(options(budget_pages, is_on_device)) {
    for (const PieceId value : {kA, kB, kInput}) learner_.allocated(value, kPages);
  }

  void step() {
    learner_.step_boundary();
    const TimePoint begin = clock_.now();
    const std::uint32_t moments = moments_;
    op(100, kA, microseconds(100));
    op(101, kInput, milliseconds(20));
    op(102, kB, microseconds(100));
    op(103, kInput, microseconds(100));
    stream_.synchronize();
    op(104, kInput, microseconds(100), kPages);
    op(105, kInput, milliseconds(8));
    stream_.synchronize();
    op(106, kA, microseconds(100));
    op(107, kInput, milliseconds(20));
    stream_.synchronize();
    op(108, kB, microseconds(100));
    took_ = clock_.now() - begin;
    moments_of_step.push_back(moments_ - moments);
  }

  LearnerReport report() const { return learner_.report(); }
  /// The value that leaves as a whole.
  std::optional<PieceId> leaves() const { return leaves_; }
  Duration took() const { return took_; }
  std::vector<std::uint32_t> moments_of_step;

  static constexpr PieceId kA{0};
  static constexpr PieceId kB{1};

 private:
  static constexpr PieceId kInput{2};
  static constexpr PieceId kScratch{3};

  StepLearner::Options options(std::uint32_t budget_pages, bool is_on_device) {
    StepLearner::Options options{.budget_pages = budget_pages};
    options.rates.write = options.rates.read = TransferRate(1e9);
    options.rates.interference_seconds_per_byte = 0.0;
    if (is_on_device)
      options.moment = [this] {
        ++moments_;
        return stream_.record();
      };
    return options;
  }

  void op(std::uint64_t signature, PieceId used, Duration kernel, std::uint32_t scratch_pages = 0) {
    const PieceUse use{used, kPages, used != kInput};
    advice_.clear();
    learner_.begin_op(signature, {&use, 1}, clock_.now(), advice_);
    learner_.note_begin();
    if (scratch_pages > 0) learner_.allocated(kScratch, scratch_pages);
    stream_.launch(kernel);
    if (scratch_pages > 0) learner_.freed(kScratch);
    clock_.advance(microseconds(10));
    learner_.end_op(advice_);
    for (const auto& out : advice_.write_outs)
      if (out.pages == kPages) leaves_ = out.piece;
  }

  ManualClock clock_;
  TimedStream stream_{clock_};
  Advice advice_;
  std::optional<PieceId> leaves_;
  Duration took_{0};
  std::uint32_t moments_ = 0;
  StepLearner learner_;
};

TEST(StepLearnerOnDevice, ForecastsWhatTheDeviceTakes) {
  Trainer trainer(1000, true);
  trainer.step();
  trainer.step();
  EXPECT_EQ(trainer.report().plans, 0U) << "the times of the first step come with the second";
  for (int i = 0; i < 40; ++i) trainer.step();
  EXPECT_TRUE(trainer.report().follows_plan);
  EXPECT_NEAR(trainer.report().planned_seconds, seconds(trainer.took()), 1e-9);
}

// By the host's times the device worked while the host waited for it, which was later.
TEST(StepLearnerOnDevice, WritesWhileTheDeviceWorks) {
  constexpr double kTransfer = 4 * (2 << 20) / 1e9;
  for (const bool is_on_device : {false, true}) {
    Trainer trainer(3 * kPages, is_on_device);
    for (int i = 0; i < 40; ++i) trainer.step();
    EXPECT_EQ(trainer.leaves(), is_on_device ? Trainer::kA : Trainer::kB);
    // What comes back while an operator of 8 ms runs is a little late.
    const double lost = is_on_device ? kTransfer - 8e-3 : 0.0;
    EXPECT_NEAR(trainer.report().planned_seconds, seconds(trainer.took()) + lost, 1e-9);
  }
}

TEST(StepLearnerOnDevice, MeasuresTheFirstStepsAndThenOneOfSixteen) {
  Trainer trainer(1000, true);
  for (int i = 0; i < 40; ++i) trainer.step();
  std::vector<std::uint32_t> expected(40, 0);
  // Four, one more while the fourth is not done, and then the sixteenth after that. The next step
  // begins with the end of the one before, and there are two around the choice of a plan.
  for (const std::size_t measured : {0, 1, 2, 3, 4, 20, 36}) expected[measured] += 9;
  for (const std::size_t planned : {1, 2, 3, 4, 5, 20, 21, 36, 37}) expected[planned] += 2;
  for (const std::size_t next : {5, 21, 37}) expected[next] += 1;
  EXPECT_EQ(trainer.moments_of_step, expected);
}

TEST(StepLearnerOnDevice, MeasuresNothingOnTheHost) {
  Trainer trainer(1000, false);
  for (int i = 0; i < 5; ++i) trainer.step();
  EXPECT_EQ(trainer.moments_of_step, std::vector<std::uint32_t>(5, 0));
}

}  // namespace
}  // namespace spillway::runtime
