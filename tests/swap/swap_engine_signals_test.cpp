// Signals that come while a thread waits for a page that it touches.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "mapper_cases.h"
#include "spillway/base/signals_blocked.h"
#include "support/held_page.h"
#include "support/waiting_process.h"

namespace spillway::swap {
namespace {

// More than the traps without progress that count as endless.
constexpr int kSignals = 60;

HeldPage* page_of_handler = nullptr;
std::atomic<int> handled{0};
std::atomic<std::uint64_t> seen_by_handler{0};

void read_another_page(int /*signal*/) {
  seen_by_handler = page_of_handler->read_free();
  ++handled;
}

/// Whether the handler has run so often within some seconds.
bool is_handled(int times) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (handled < times && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return handled >= times;
}

class SwapEngineSignals : public SignalsUnderMapperTest {};

using SwapEngineSignalsDeathTest = SwapEngineSignals;

TEST_P(SwapEngineSignalsDeathTest, EndTheProcessWhileAnAccessWaits) {
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT}) {
    EXPECT_EXIT(signal_while_waiting(GetParam(), signal, [](HeldPage& page) { page.read_held(); }),
                ::testing::KilledBySignal(signal), "");
  }
}

TEST_P(SwapEngineSignals, AreHandledByTheProgramWhileAnAccessWaits) {
  HeldPage page(GetParam());
  page_of_handler = &page;
  handled = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &read_another_page;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const std::uint64_t faults = page.engine().statistics().faults;
  int handled_meanwhile = 0;
  std::thread sender;
  {
    const SignalsBlocked blocked;
    sender = std::thread([&, reader = ::pthread_self()] {
      page.await_access();
      do {
        ::pthread_kill(reader, SIGUSR1);
      } while (is_handled(handled_meanwhile + 1) && ++handled_meanwhile < kSignals);
      page.let_go();
    });
  }
  EXPECT_EQ(page.read_held(), HeldPage::kHeldWord);
  sender.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(handled_meanwhile, kSignals);
  EXPECT_EQ(seen_by_handler, HeldPage::kFreeWord);
  EXPECT_LT(page.engine().statistics().faults, faults + kSignals) << "a signal is no trap";
}

INSTANTIATE_TEST_SUITE_P(Mappers, SwapEngineSignals, all_mappers(), mapper_case);
INSTANTIATE_TEST_SUITE_P(Mappers, SwapEngineSignalsDeathTest, all_mappers(), mapper_case);

}  // namespace
}  // namespace spillway::swap
