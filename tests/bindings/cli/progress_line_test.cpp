#include "progress_line.h"

#include <gtest/gtest.h>

#include "support/manual_clock.h"

namespace spillway::cli {
namespace {

/// A log of a command of a minute said nothing until its end.
TEST(ProgressLine, IsALineOfItsOwnNowAndThenWhereThereIsNoTerminal) {
  ManualClock clock;
  ProgressLine line(clock);
  testing::internal::CaptureStderr();  // A file.
  line.show("short work");
  clock.advance(std::chrono::seconds(20));
  line.show("copies of 4.00 MiB");
  clock.advance(std::chrono::seconds(19));
  line.show("too soon");
  clock.advance(std::chrono::seconds(1));
  line.show("mapping");
  line.clear();
  ProgressLine().show("on terminals alone");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[spillway] copies of 4.00 MiB\n[spillway] mapping\n");
}

}  // namespace
}  // namespace spillway::cli
