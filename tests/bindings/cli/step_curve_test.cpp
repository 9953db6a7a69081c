#include "planning/step_curve.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway::cli {
namespace {

std::ptrdiff_t points_in(const std::string& text) {
  return std::count(text.begin(), text.end(), ',');
}

TEST(StepCurve, HasTwoPointsPerStepWhereStepsAreApart) {
  StepCurve curve(0, 50);
  curve.step_to(10, 40);
  curve.step_to(20.25, 45);
  EXPECT_EQ(curve.finish(30), " 0.0,50.0 10.0,50.0 10.0,40.0 20.2,40.0 20.2,45.0 30.0,45.0");
}

TEST(StepCurve, KeepsTheLeastAndTheMostOfAColumn) {
  StepCurve curve(0, 50);
  curve.step_to(10.0, 40);
  curve.step_to(10.3, 10);
  curve.step_to(10.5, 90);
  curve.step_to(10.7, 60);
  EXPECT_EQ(curve.finish(12), " 0.0,50.0 10.0,50.0 10.0,10.0 10.7,90.0 10.7,60.0 12.0,60.0");
}

// A picture had every moment of every rank: gigabytes for long lists.
TEST(StepCurve, StaysSmallHoweverManyStepsThereAre) {
  StepCurve curve(0, 50);
  for (int i = 0; i < 1'000'000; ++i) curve.step_to(i / 10'000.0, i % 2 == 0 ? 10 : 90);
  const std::string points = curve.finish(100);
  EXPECT_LE(points_in(points), 4 * 100 + 2);
  EXPECT_GE(points_in(points), 2 * 100);
}

}  // namespace
}  // namespace spillway::cli
