#include "step_signal.h"

#include <gtest/gtest.h>

#include <c10/core/GradMode.h>

#include <thread>

namespace spillway::torch_binding {
namespace {

using Event = StepSignal::Event;

Event forward(StepSignal& steps) { return steps.observe(false, false); }
Event backward(StepSignal& steps) { return steps.observe(true, false); }
Event update(StepSignal& steps) { return steps.observe(false, true); }

void on_thread_of_its_own(void (*work)(StepSignal&)) {
  std::thread([work] {
    StepSignal steps;
    work(steps);
  }).join();
}

TEST(StepSignal, AStepBeginsBehindBackwardAndUpdate) {
  StepSignal steps;
  EXPECT_EQ(forward(steps), Event::kNone);
  EXPECT_EQ(backward(steps), Event::kNone);
  EXPECT_EQ(update(steps), Event::kUpdate);
  EXPECT_EQ(update(steps), Event::kNone);
  EXPECT_EQ(forward(steps), Event::kBegin);
  EXPECT_EQ(forward(steps), Event::kNone);
}

TEST(StepSignal, BackwardOnAThreadOfAutogradCounts) {
  StepSignal steps;
  EXPECT_EQ(forward(steps), Event::kNone);
  on_thread_of_its_own([](StepSignal& device) { backward(device); });
  EXPECT_EQ(update(steps), Event::kUpdate);
  EXPECT_EQ(forward(steps), Event::kBegin);
}

TEST(StepSignal, BackwardOfAThreadThatTrainsItselfDoesNot) {
  StepSignal steps;
  EXPECT_EQ(forward(steps), Event::kNone);
  on_thread_of_its_own([](StepSignal& other) {
    forward(other);
    backward(other);
  });
  EXPECT_EQ(update(steps), Event::kNone);
}

TEST(StepSignal, AWriteToALeafWithoutBackwardIsNoStep) {
  StepSignal steps;
  EXPECT_EQ(update(steps), Event::kNone);
  EXPECT_EQ(forward(steps), Event::kNone);
}

}  // namespace
}  // namespace spillway::torch_binding
