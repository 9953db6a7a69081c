#include "spillway/base/shown_text.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

namespace spillway {
namespace {

TEST(ShownText, KeepsShortTextAsItIs) {
  EXPECT_EQ(shown_text(""), "");
  EXPECT_EQ(shown_text("node12 [3, 4]"), "node12 [3, 4]");
  EXPECT_EQ(shown_text(std::string(40, 'a')), std::string(40, 'a'));
}

TEST(ShownText, CutsWhatFillsMoreThanALine) {
  EXPECT_EQ(shown_text(std::string(41, 'a')), std::string("...").insert(0, 40, 'a'));
  EXPECT_EQ(shown_text("abcdef", 3), "abc...");
}

TEST(ShownText, ShowsNoBytesThatEndALineOrAreNoLetters) {
  EXPECT_EQ(shown_text("a\nb\x1b[31m\xff"), "a?b?[31m?");
}

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_word("runs/net-1.json"), "runs/net-1.json");
  EXPECT_EQ(shell_word("my net.json"), "'my net.json'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(rm x)"), "'$(rm x)'");
  EXPECT_EQ(shell_word("two\nlines"), "'two lines'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ControlCharacters, AreThoseOfAsciiAndOfUtf8) {
  for (const std::string text : {"a\x1b[31m", "\n", "\t", "\x7f", "a\xC2\x9bz", "\xC2\x80"})
    EXPECT_TRUE(has_control_characters(text)) << shown_text(text);
  EXPECT_TRUE(has_control_characters(std::string(1, '\0')));
  for (const std::string text : {"", "aten::add", "…", "ä", "\xC2\xA0", "中", "\xC2"})
    EXPECT_FALSE(has_control_characters(text)) << shown_text(text);
}

TEST(ControlCharacters, BecomeQuestionMarks) {
  EXPECT_EQ(without_control_characters("a\x1b[1mb\n\xC2\x9b"
                                       "c…"),
            "a?[1mb??c…");
  EXPECT_EQ(without_control_characters(""), "");
}

TEST(Shortened, KeepsWhatFits) {
  EXPECT_EQ(shortened("", 0), "");
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("aä", 3), "aä");
}

TEST(Listed, HasAWordBetweenTheLastTwo) {
  const std::vector<std::string> words{"a", "b", "c"};
  EXPECT_EQ(listed(words), "a, b and c");
  EXPECT_EQ(listed(std::span(words).first(2), "or"), "a or b");
  EXPECT_EQ(listed(std::span(words).first(1)), "a");
  EXPECT_EQ(listed({}), "");
}

TEST(Shortened, CutsBetweenLetters) {
  EXPECT_EQ(shortened("abcd", 3), "abc…");
  EXPECT_EQ(shortened("abcd", 0), "…");
  // Of two, three and four bytes.
  for (const std::string letter : {"ä", "中", "🙂"}) {
    for (std::size_t inside = 0; inside < letter.size(); ++inside)
      EXPECT_EQ(shortened("abc" + letter + letter, 3 + inside), "abc…") << letter << inside;
    EXPECT_EQ(shortened("abc" + letter + letter, 3 + letter.size()), "abc" + letter + "…");
    EXPECT_EQ(shortened(letter, letter.size() - 1), "…");
  }
}

TEST(Shortened, CutsWhatIsNoUtf8WhereItIsTold) {
  const std::string noise(20, '\x80');
  EXPECT_EQ(shortened(noise, 10), noise.substr(0, 10) + "…");
  EXPECT_EQ(shortened(noise, 2), noise.substr(0, 2) + "…");
}

}  // namespace
}  // namespace spillway
