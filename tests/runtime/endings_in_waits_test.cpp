// Endings that are watched for while a thread waits for a page.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "spillway/runtime/endings.h"
#include "support/held_page.h"
#include "support/waiting_process.h"
#include "swap/mapper_cases.h"

namespace spillway::runtime {
namespace {

using swap::HeldPage;

[[noreturn]] void end_while_waiting(memory::MapperKind mapper, int signal,
                                    const std::function<void(HeldPage&)>& access) {
  watch_endings([] { EXPECT_EQ(::write(STDERR_FILENO, "bye", 3), 3); });
  signal_while_waiting(mapper, signal, access);
}

void touch(HeldPage& page) { page.read_held(); }

/// The kernel touches it, on behalf of the thread.
void have_written(HeldPage& page) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], page.held(), 8), 8);
}

class EndingsInWaitsDeathTest : public swap::SignalsUnderMapperTest {};

TEST_P(EndingsInWaitsDeathTest, HaveTheLastWordsSaidWhileAnAccessWaits) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM})
    EXPECT_EXIT(end_while_waiting(GetParam(), signal, touch), ::testing::KilledBySignal(signal),
                "bye");
}

TEST_P(EndingsInWaitsDeathTest, HaveTheLastWordsSaidWhileASystemCallWaits) {
  if (!memory::serves_system_calls(GetParam())) GTEST_SKIP() << "no system call waits";
  for (const int signal : {SIGHUP, SIGINT, SIGTERM})
    EXPECT_EXIT(end_while_waiting(GetParam(), signal, have_written),
                ::testing::KilledBySignal(signal), "bye");
}

TEST_P(EndingsInWaitsDeathTest, ComeByTheDefaultOfOtherSignalsWhileASystemCallWaits) {
  if (!memory::serves_system_calls(GetParam())) GTEST_SKIP() << "no system call waits";
  EXPECT_EXIT(end_while_waiting(GetParam(), SIGQUIT, have_written),
              ::testing::KilledBySignal(SIGQUIT), "");
}

INSTANTIATE_TEST_SUITE_P(Mappers, EndingsInWaitsDeathTest, swap::all_mappers(), swap::mapper_case);

}  // namespace
}  // namespace spillway::runtime
