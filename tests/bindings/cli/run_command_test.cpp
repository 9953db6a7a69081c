#include "run_command.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"

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

TEST(SplitRunArguments, RefusesAnOptionWithoutItsValue) {
  EXPECT_THROW(split_run_arguments({"--budget", "--", "./trainer"}), ConfigError);
  EXPECT_THROW(split_run_arguments({"--stats", "--budget", "1GiB", "./trainer"}), ConfigError);
  EXPECT_EQ(split_run_arguments({"--stats=--odd", "./trainer"}).program, (Words{"./trainer"}));
}

TEST(SplitRunArguments, TakesOnAndOffBehindASwitchForItsValue) {
  const auto split = split_run_arguments({"--verify", "off", "--quiet", "on", "./trainer"});
  EXPECT_EQ(split.options, (Words{"--verify=off", "--quiet=on"}));
  EXPECT_EQ(split.program, (Words{"./trainer"}));
  EXPECT_EQ(split_run_arguments({"--verify", "./off"}).program, (Words{"./off"}));
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

TEST(WithPreload, StaysBehindTheRuntimesOfSanitizers) {
  EXPECT_EQ(with_preload("/lib/s.so", "/gcc/libasan.so.8:/lib/b.so:/gcc/libtsan.so.2"),
            "/gcc/libasan.so.8:/gcc/libtsan.so.2:/lib/s.so:/lib/b.so");
  EXPECT_EQ(with_preload("/lib/s.so", "/x/libclang_rt.asan-x86_64.so /lib/libasanity.so"),
            "/x/libclang_rt.asan-x86_64.so:/lib/s.so:/lib/libasanity.so");
}

}  // namespace
}  // namespace spillway::cli
