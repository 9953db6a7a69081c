// The plan that the user gave, followed by a learner: driven by hand, without memory or I/O.
#include "given_plan.h"

#include <gmock/gmock.h>
#include <functional>

#include <memory>
#include <string>
#include <vector>

#include "spillway/base/log.h"
#include "spillway/planner/plan_file.h"
#include "spillway/runtime/learning/step_learner.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "support/golden_part.h"
#include "support/named_op.h"

namespace spillway::runtime {
namespace {

constexpr std::uint32_t kPages = 4;   // Of each storage.
constexpr std::uint32_t kLayers = 8;  // An activation each, which live until they are used again.
constexpr std::uint32_t kTightPages = 24;  // Room for six storages, where nine live at once.

/// A net with one storage of parameters: forward, backward, update.
class Net {
 public:
  explicit Net(const StepLearner::Options& options)
      : learner(options), recording_(options.recording) {
    learner.allocated(PieceId(0), kPages);
    op(1, {{PieceId(0), kPages, true}});  // Start-up, which is a step of its own.
  }

  /// Returns how many operators the plan ran again. `flavour` makes another step of it.
  std::size_t step(std::uint64_t flavour = 0) {
    replays_ = forgot_after_ = 0;
    learner.step_boundary();
    forward_and_backward(flavour);
    return replays_;
  }

  /// As loops in Python have it: a batch stays until the next step has made another one.
  void step_with_batch() {
    learner.step_boundary();
    constexpr std::uint32_t kBatch = 20;
    op(90, {}, kBatch + steps_ % 2);
    if (steps_ > 0) learner.freed(PieceId(kBatch + (steps_ - 1) % 2));
    if (steps_ == 0) op(91, {{PieceId(kBatch), kPages}});  // What is made once.
    ++steps_;
    forward_and_backward(0);
  }

  void forward_and_backward(std::uint64_t flavour) {
    for (std::uint32_t i = 0; i < kLayers; ++i)
      op(100 + i + flavour, {{PieceId(i), kPages}}, i + 1);
    for (std::uint32_t i = kLayers; i > 0; --i) {
      op(200 + i, {{PieceId(i), kPages}});
      learner.freed(PieceId(i));
    }
    op(300, {{PieceId(0), kPages, true}});
  }

  void op(std::uint64_t signature, const std::vector<PieceUse>& uses, std::uint32_t output = 0) {
    Advice advice;
    const auto due = learner.due_replays(signature, uses);
    for (std::size_t i = 0; i < due.size(); ++i) {
      learner.begin_replay(i, advice);
      learner.end_replay(i, Duration(0), Bytes(0), advice);
      ++replays_;
      if (advice.forgets) forgot_after_ = replays_;
    }
    learner.begin_op(signature, uses, now_, advice, true);
    const NamedOp text("op_" + std::to_string(signature), "(float[64])");
    if (recording_ != nullptr) recording_->note_op(learner.signature(), text);
    learner.name_op(text);
    if (output != 0) learner.allocated(PieceId(output), kPages);
    now_ += std::chrono::milliseconds(10);
    learner.end_op(advice);
  }

  /// After how many of them the latest step has had no more use for what was recorded.
  std::size_t forgot_after() const { return forgot_after_; }

  StepLearner learner;

 private:
  ProfileRecording* const recording_;
  TimePoint now_{};
  std::size_t replays_ = 0;
  std::size_t forgot_after_ = 0;
  std::uint32_t steps_ = 0;
};

/// A plan of the net's step, made from a profile that was recorded with room for everything.
std::shared_ptr<const planner::PlanFile> plan_by(
    const char* strategy, const std::function<void(Net&)>& step = [](Net& net) { net.step(); }) {
  ProfileRecording recording({});
  Net net({.budget_pages = 1000, .recording = &recording});
  for (int i = 0; i < 4; ++i) step(net);
  profile::ProfileOrigin origin;
  origin.program = "the_net";
  const profile::StepProfile profile = recording.profile(origin, Bytes(0), {});
  const planner::SwapLimits limits{.budget_pages = kTightPages, .rates = {}};
  const auto plan = planner::strategy_named(strategy).plan(profile.tape, limits, {});
  return std::make_shared<planner::PlanFile>(planner::parse_plan_file(
      to_text(describe_plan(plan, planner::bound_plan(profile.tape, limits), profile, limits,
                            limits.page_size * kTightPages)),
      "net.plan"));
}

/// A run of the net that is given that plan.
struct GivenRun {
  explicit GivenRun(std::shared_ptr<const planner::PlanFile> plan,
                    std::uint32_t budget_pages = kTightPages)
      : net({.budget_pages = budget_pages,
             .rates = {},
             .planning = {
                 .recomputes = true, .stored = std::move(plan), .stored_name = "net.plan"}}) {}

  LearnerReport report() const { return net.learner.report(); }

  Net net;
};

std::size_t count_of(const std::string& what, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(GivenPlan, IsFollowedWithItsReplaysFromTheFirstStepOfItsKindOn) {
  const auto plan = plan_by("dtr");
  ASSERT_GT(plan->replays.size(), 0U);
  GivenRun run(plan);
  ::testing::internal::CaptureStderr();
  // The first step shows what the step is.
  run.net.step();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(run.net.step(), plan->replays.size()) << i;
  run.net.learner.step_boundary();
  run.net.op(1, {{PieceId(0), kPages}});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const LearnerReport report = run.report();
  EXPECT_EQ(report.strategy, "dtr");
  EXPECT_EQ(report.given_steps, 8U);
  EXPECT_EQ(report.given_misfit, "");
  EXPECT_GT(report.followed_seconds, 0.0);
  EXPECT_GT(report.planned_seconds, 0.0);
}

TEST(GivenPlan, ForgetsItsRecordsWithTheLastReplay) {
  const auto plan = plan_by("dtr");
  GivenRun run(plan);
  run.net.step();
  for (int i = 0; i < 3; ++i) {
    run.net.step();
    EXPECT_EQ(run.net.forgot_after(), plan->replays.size()) << i;
  }
}

// Caches and optimizer states that are made lazily: the plan was refused for good with a warning at
// the first of them.
TEST(GivenPlan, WaitsForItsStepWithoutAnAlarm) {
  const auto plan = plan_by("dtr");
  GivenRun run(plan);
  ::testing::internal::CaptureStderr();
  run.net.step(1000);
  run.net.step(2000);
  run.net.step();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(run.net.step(), plan->replays.size()) << i;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(run.report().strategy, "dtr");
  EXPECT_EQ(run.report().given_steps, 7U);  // The last one has not ended.
}

// A plan of the run's own that was judged faster used to stay.
TEST(GivenPlan, IsFollowedThoughABetterOneIsKnown) {
  GivenRun run(plan_by("demand"));
  for (int i = 0; i < 40; ++i) run.net.step();
  EXPECT_EQ(run.report().strategy, "demand");
  EXPECT_EQ(run.report().given_steps, 38U);
}

// With steps of two kinds in turn, both together were planned anew as one cycle.
TEST(GivenPlan, IsFollowedBetweenStepsOfOtherKinds) {
  const auto plan = plan_by("dtr");
  GivenRun run(plan);
  std::size_t replays = 0;
  for (int i = 0; i < 30; ++i) {
    const std::size_t of_step = run.net.step(i % 3 == 2 ? 1000 : 0);
    if (i >= 6 && i % 3 != 2) replays += of_step;
  }
  EXPECT_EQ(replays, 16 * plan->replays.size());
  EXPECT_EQ(run.report().strategy, "dtr");
  EXPECT_GE(run.report().given_steps, 16U);
}

// Small blocks share the budget and come and go.
TEST(GivenPlan, IsFollowedWithAPageLessThanItWasMadeFor) {
  const auto plan = plan_by("dtr");
  GivenRun run(plan, kTightPages - 1);
  run.net.step();
  EXPECT_EQ(run.net.step(), plan->replays.size());
}

TEST(GivenPlan, SaysOnceWhyItIsForNoneOfTheSteps) {
  GoldenPart golden;
  GivenRun run(plan_by("dtr"));
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 12; ++i) run.net.step(1000);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("warning", log), 1U) << log;
  golden.add(log);
  const LearnerReport report = run.report();
  EXPECT_EQ(report.strategy, "spillway");
  EXPECT_EQ(report.given_steps, 0U);
  golden.add(report.given_misfit);
}

TEST(GivenPlan, SaysAtTheEndOfAShortRunWhyItWasNotFollowed) {
  GoldenPart golden;
  GivenRun run(plan_by("dtr"));
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) run.net.step(1000);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  golden.add(run.report().given_misfit);
}

// What a batch becomes shows in the second step of its kind, and the plan was tried on the first.
TEST(GivenPlan, FitsAStepWhoseBatchStaysUntilTheNextOne) {
  GivenRun run(plan_by("belady", [](Net& net) { net.step_with_batch(); }));
  for (int i = 0; i < 8; ++i) run.net.step_with_batch();
  EXPECT_EQ(run.report().given_misfit, "");
}

// It was laid on each step anew, while the trainer waited.
TEST(GivenPlan, ThatDoesNotFitIsTriedAgainOnlyForAnotherStepOrMoreRoom) {
  Net net({.budget_pages = kTightPages,
           .rates = {},
           .planning = {.recomputes = false, .stored = plan_by("dtr"), .stored_name = "net.plan"}});
  configure_log(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 12; ++i) net.step();
  const std::string log = ::testing::internal::GetCapturedStderr();
  configure_log(LogLevel::kWarning);
  const std::size_t tries = count_of("the plan does not fit here: net.plan: ", log);
  EXPECT_GE(tries, 1U) << log;
  EXPECT_LE(tries, 2U) << "the first step may be another one\n" << log;
}

TEST(GivenPlan, MayFitAStepWithOtherTensorsOrMoreRoom) {
  const OpNames names(1);
  GivenPlan given({.stored = plan_by("dtr")}, names);
  profile::StepTape step;
  step.values = {{.pages = 3, .birth = 0, .death = 5}};
  planner::SwapLimits limits{.budget_pages = 10, .rates = {}};
  EXPECT_TRUE(given.may_fit(step, false, limits));
  given.note_misfit(step, false, limits);
  EXPECT_FALSE(given.may_fit(step, false, limits));
  EXPECT_TRUE(given.may_fit(step, true, limits)) << "then more is known of the same step";
  given.note_misfit(step, true, limits);
  EXPECT_FALSE(given.may_fit(step, true, limits));
  limits.budget_pages = 9;
  EXPECT_FALSE(given.may_fit(step, true, limits));
  limits.budget_pages = 11;
  EXPECT_TRUE(given.may_fit(step, true, limits));
  limits.budget_pages = 10;
  step.values.front().death = 6;
  EXPECT_TRUE(given.may_fit(step, true, limits));
}

TEST(GivenPlan, IsNotFollowedWithoutRecomputation) {
  const auto plan = plan_by("dtr");
  Net net({.budget_pages = kTightPages,
           .rates = {},
           .planning = {.recomputes = false, .stored = plan, .stored_name = "net.plan"}});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(net.step(), 0U);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("which --recompute off forbids", log), 1U) << log;
}

}  // namespace
}  // namespace spillway::runtime
