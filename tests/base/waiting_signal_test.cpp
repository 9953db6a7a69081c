#include "spillway/base/waiting_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "spillway/base/signals_blocked.h"

namespace spillway {
namespace {

class IsSignalWaiting : public ::testing::Test {
 protected:
  IsSignalWaiting() {
    ::sigemptyset(&none_);
    ::sigemptyset(&one_);
    ::sigaddset(&one_, SIGUSR1);
  }

  void expect_one_that_is_taken() {
    EXPECT_TRUE(is_signal_waiting(none_));
    EXPECT_FALSE(is_signal_waiting(one_)) << "the caller blocks it by itself";
    EXPECT_EQ(::sigwaitinfo(&one_, nullptr), SIGUSR1);
    EXPECT_FALSE(is_signal_waiting(none_));
  }

  const SignalsBlocked blocked_;
  sigset_t none_{};
  sigset_t one_{};
};

TEST_F(IsSignalWaiting, ForTheCallingThread) {
  EXPECT_FALSE(is_signal_waiting(none_));
  ::raise(SIGUSR1);
  expect_one_that_is_taken();
}

TEST_F(IsSignalWaiting, ForTheProcess) {
  ::kill(::getpid(), SIGUSR1);
  expect_one_that_is_taken();
}

}  // namespace
}  // namespace spillway
