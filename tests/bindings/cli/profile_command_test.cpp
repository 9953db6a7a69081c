#include "profile_command.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

TEST(SplitProfileArguments, KeepsItsOwnOptionsFromTheProgram) {
  const auto split = split_profile_arguments(
      {"--out", "p.json", "--budget", "4GiB", "--steps", "5", "./trainer", "--steps", "9"});
  EXPECT_EQ(split.options, (Words{"--out", "p.json", "--budget", "4GiB", "--steps", "5"}));
  EXPECT_EQ(split.program, (Words{"./trainer", "--steps", "9"}));
}

TEST(SplitProfileArguments, SplitsAtTheDashes) {
  const auto split = split_profile_arguments({"--out=p", "--verify", "--", "--out", "--import"});
  EXPECT_EQ(split.options, (Words{"--out=p", "--verify"}));
  EXPECT_EQ(split.program, (Words{"--out", "--import"}));
  EXPECT_EQ(split_profile_arguments({"--out", "p", "--", "x"}).program, (Words{"x"}));
  EXPECT_EQ(split_profile_arguments({"--verify", "off", "--out", "p", "x"}).options,
            (Words{"--verify=off", "--out", "p"}));
}

TEST(SplitProfileArguments, RefusesAnOptionWithoutItsValue) {
  EXPECT_THROW(split_profile_arguments({"--out"}), ConfigError);
  EXPECT_THROW(split_profile_arguments({"--out", "--", "./trainer"}), ConfigError);
  EXPECT_THROW(split_profile_arguments({"--out", "p", "--steps"}), ConfigError);
  EXPECT_THROW(split_profile_arguments({"--out", "--steps", "3", "./trainer"}), ConfigError);
}

TEST(ImportsTrace, LooksBeforeTheProgram) {
  EXPECT_TRUE(imports_trace({"--import", "dtr", "a.log", "--out", "p"}));
  EXPECT_TRUE(imports_trace({"--out", "p", "--import=dtr", "a.log"}));
  EXPECT_FALSE(imports_trace({"--out", "p", "--", "./trainer", "--import"}));
}

}  // namespace
}  // namespace spillway::cli
