#include "spillway/base/shown_text.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(ShownText, KeepsShortTextAsItIs) {
  EXPECT_EQ(shown_text(""), "");
  EXPECT_EQ(shown_text("node12 [3, 4]"), "node12 [3, 4]");
  EXPECT_EQ(shown_text(std::string(40, 'a')), std::string(40, 'a'));
}

TEST(ShownText, CutsWhatFillsMoreThanALine) {
  EXPECT_EQ(shown_text(std::string(41, 'a')), std::string(40, 'a') + "...");
  EXPECT_EQ(shown_text("abcdef", 3), "abc...");
}

TEST(ShownText, ShowsNoBytesThatEndALineOrAreNoLetters) {
  EXPECT_EQ(shown_text("a\nb\x1b[31m\xff"), "a?b?[31m?");
}

}  // namespace
}  // namespace spillway
