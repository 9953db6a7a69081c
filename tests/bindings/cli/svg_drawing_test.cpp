#include "planning/svg_drawing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/golden_part.h"

namespace spillway::cli {
namespace {

TEST(Escaped, KeepsLettersAndEscapesMarks) {
  EXPECT_EQ(escaped(""), "");
  EXPECT_EQ(escaped("<a> & \"b\" \\ 'c'"), "&lt;a&gt; &amp; &quot;b&quot; \\ 'c'");
  EXPECT_EQ(escaped("ä … 中 🙂"), "ä … 中 🙂");
}

// Browsers and rsvg-convert show nothing of a picture with such bytes.
TEST(Escaped, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(escaped("net\xff.json"), "net\uFFFD.json");
  EXPECT_EQ(escaped("a\x80"), "a\uFFFD");
  EXPECT_EQ(escaped("a\xc3"), "a\uFFFD");  // Half a letter.
  EXPECT_EQ(escaped("\xff<"), "\uFFFD&lt;");
  GoldenPart golden;  // Overlong, or no letters.
  for (const char* none : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    golden.add(escaped(none));
}

TEST(Escaped, ReplacesLettersThatXmlDoesNotHave) {
  EXPECT_EQ(escaped("a\x1b[1m\tb\nc"), "a?[1m?b?c");
  EXPECT_EQ(escaped(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(escaped("\uFFFE\uFFFF\uFFFD"), "\uFFFD\uFFFD\uFFFD");
}

TEST(SvgDrawing, TakesAnyTextAsTitleLabelAndHint) {
  SvgDrawing drawing(10, 10, "title\xff");
  drawing.label(0, 0, "label\xff", "start");
  drawing.box(0, 0, 1, 1, "", "hint\xff");
  GoldenPart golden;
  golden.add(drawing.finish());
}

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
