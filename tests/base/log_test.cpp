#include "spillway/base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

/// What all levels print; the threshold is set anew afterwards.
std::string printed(LogLevel threshold, const std::string& rank = {}) {
  configure_log(threshold, rank);
  testing::internal::CaptureStderr();
  log_debug("{} pages", 1);
  log_info("{} pages", 2);
  log_warning("{} pages", 3);
  log_error("{} pages", 4);
  configure_log(LogLevel::kWarning);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, TellsWarningsAndErrorsUnlessToldOtherwise) {
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kWarning));
}

TEST(Log, WritesALineForEachLevelFromTheThresholdOn) {
  EXPECT_EQ(printed(LogLevel::kDebug), "[spillway] debug: 1 pages\n[spillway] info: 2 pages\n"
                                       "[spillway] warning: 3 pages\n[spillway] error: 4 pages\n");
  EXPECT_EQ(printed(LogLevel::kWarning),
            "[spillway] warning: 3 pages\n[spillway] error: 4 pages\n");
  EXPECT_EQ(printed(LogLevel::kError), "[spillway] error: 4 pages\n");
  EXPECT_EQ(printed(LogLevel::kOff), "");
}

TEST(Log, NamesTheRankInFrontOfEachLine) {
  EXPECT_EQ(printed(LogLevel::kError, "rank 3"), "[spillway rank 3] error: 4 pages\n");
}

TEST(Log, LeavesBracesInValuesAlone) {
  testing::internal::CaptureStderr();
  log_error("{}", "a folder named {} and %v");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[spillway] error: a folder named {} and %v\n");
}

}  // namespace
}  // namespace spillway
