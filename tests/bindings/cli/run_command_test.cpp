#include "run_command.h"

#include <gtest/gtest.h>

#include "setting_options.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

TEST(SplitRunArguments, SplitsAtTheDashes) {
  const auto split = split_run_arguments({"--budget", "4GiB", "--", "./trainer", "--budget", "1"});
  EXPECT_EQ(split.options, (Words{"--budget", "4GiB"}));
  EXPECT_EQ(split.program, (Words{"./trainer", "--budget", "1"}));
}

TEST(SplitRunArguments, FindsTheProgramWithoutDashes) {
  const auto split =
      split_run_arguments({"--budget=4GiB", "--quiet", "--nvme", "/a,/b", "./trainer", "--", "x"});
  EXPECT_EQ(split.options, (Words{"--budget=4GiB", "--quiet", "--nvme", "/a,/b"}));
  EXPECT_EQ(split.program, (Words{"./trainer", "--", "x"}));
}

TEST(SplitRunArguments, LeavesASecondDashesToTheProgram) {
  EXPECT_EQ(split_run_arguments({"--", "a", "--", "b"}).program, (Words{"a", "--", "b"}));
}

TEST(SplitRunArguments, GivesNoValueToAnOptionBeforeTheDashes) {
  const auto split = split_run_arguments({"--budget", "--", "./trainer"});
  EXPECT_EQ(split.options, (Words{"--budget"}));
  EXPECT_EQ(split.program, (Words{"./trainer"}));
}

TEST(SplitRunArguments, SurvivesNoArguments) {
  EXPECT_TRUE(split_run_arguments({}).program.empty());
  EXPECT_TRUE(split_run_arguments({"--"}).program.empty());
}

TEST(WithPreload, PutsTheLibraryFirst) {
  EXPECT_EQ(with_preload("/lib/s.so", ""), "/lib/s.so");
  EXPECT_EQ(with_preload("/lib/s.so", "/lib/jemalloc.so /lib/b.so"),
            "/lib/s.so:/lib/jemalloc.so:/lib/b.so");
}

TEST(WithPreload, DoesNotNameTheLibraryTwice) {
  EXPECT_EQ(with_preload("/lib/s.so", "/lib/a.so:/lib/s.so:"), "/lib/s.so:/lib/a.so");
}

const runtime::SettingInfo& setting(std::string_view key) {
  for (const runtime::SettingInfo& info : runtime::setting_catalogue())
    if (info.key == key) return info;
  throw std::out_of_range("no such setting");
}

TEST(AbsolutePaths, AreSeenFromWhereTheCommandWasTyped) {
  EXPECT_EQ(absolute_paths(setting("stats"), "run.json", "/here"), "/here/run.json");
  EXPECT_EQ(absolute_paths(setting("stats"), "/there/run.json", "/here"), "/there/run.json");
  EXPECT_EQ(absolute_paths(setting("nvme"), "a:1GiB,/b,./c", "/here"), "/here/a:1GiB,/b,/here/c");
  EXPECT_EQ(absolute_paths(setting("budget"), "4GiB", "/here"), "4GiB");
}

}  // namespace
}  // namespace spillway::cli
