#include "held_signals.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <utility>

#include "first_rank.h"
#include "spillway/base/clock.h"
#include "spillway/base/log.h"

namespace spillway::split {
namespace {

constexpr int kSignals = 64;
/// Steps have ceased to come where one takes so long, and so many times as long as any before.
constexpr std::int64_t kLeastWaitNs = 30'000'000'000;
constexpr std::int64_t kLongestSteps = 10;

/// What signal handlers see.
struct Shared {
  std::atomic<pid_t> owner{0};  ///< Its signals are held; 0: none are.
  std::atomic<bool> is_first{false};
  std::atomic<std::uint64_t> waiting{0};
  /// Handlers that have run before the signal came to this rank.
  std::array<std::atomic<std::uint32_t>, kSignals> early{};
  std::atomic<int> delivered{0};  ///< By the program's thread at the moment; 0: none.
  std::atomic<std::int64_t> step_began_ns{0};
  std::atomic<std::int64_t> longest_step_ns{0};
};
Shared shared;

std::int64_t steady_ns() { return SteadyClock().now().time_since_epoch().count(); }

constexpr std::uint64_t bit_of(int signal) { return std::uint64_t{1} << (signal - 1); }

bool has_ceased() {
  return steady_ns() - shared.step_began_ns.load() >
         std::max(kLeastWaitNs, kLongestSteps * shared.longest_step_ns.load());
}

bool is_handled(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 &&
         ((action.sa_flags & SA_SIGINFO) != 0 ||
          (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN));
}

}  // namespace

HeldSignals::HeldSignals(transport::Transport& transport, pipeline::Job& job)
    : transport_(transport), job_(job) {
  shared.is_first.store(transport.rank() == kFirst);
}

HeldSignals::~HeldSignals() { shared.owner.store(0); }

bool HeldSignals::hold(int signal) noexcept {
  if (shared.owner.load() != ::getpid() || signal < 1 || signal > kSignals) return false;
  if (shared.delivered.load() == signal) return false;
  std::atomic<std::uint32_t>& early = shared.early[static_cast<std::size_t>(signal - 1)];
  for (std::uint32_t count = early.load(); count > 0;)
    if (early.compare_exchange_weak(count, count - 1)) return true;
  const bool is_repeated = (shared.waiting.fetch_or(bit_of(signal)) & bit_of(signal)) != 0;
  return !is_repeated && !(shared.is_first.load() && has_ceased());
}

void HeldSignals::begin_step(std::uint64_t step) {
  const transport::Tag tag{transport::Stream::kControl, kSignalNumber + step};
  const std::int64_t now = steady_ns();
  const std::int64_t before = shared.step_began_ns.exchange(now);
  if (before != 0)
    shared.longest_step_ns.store(std::max(shared.longest_step_ns.load(), now - before));
  shared.owner.store(::getpid());
  Told& next = coming_.emplace_back();
  if (transport_.rank() == kFirst) {
    next.signals = shared.waiting.load() & ~announced_;
    announced_ |= next.signals;
    while (!sent_.empty() && sent_.front().event.is_done()) sent_.pop_front();
    for (std::uint32_t rank = 1; rank < transport_.ranks(); ++rank) {
      Sent& sent = sent_.emplace_back(Sent{next.signals, {}});
      sent.event = transport_.send(Rank(rank), tag, device::host_span_of(sent.signals));
    }
  } else {
    next.event = transport_.receive(kFirst, tag, device::host_span_of(next.signals));
  }
  if (coming_.size() <= kAhead) return;
  if (transport_.rank() != kFirst)
    job_.wait(coming_.front().event, kFirst, [] { return std::string("which signals have come"); });
  const std::uint64_t signals = coming_.front().signals;
  coming_.pop_front();
  deliver(signals);
}

void HeldSignals::deliver(std::uint64_t signals) {
  announced_ &= ~signals;
  for (; signals != 0; signals &= signals - 1) {
    const int signal = std::countr_zero(signals) + 1;
    const bool is_here = (shared.waiting.fetch_and(~bit_of(signal)) & bit_of(signal)) != 0;
    if (!is_here && transport_.rank() != kFirst)
      ++shared.early[static_cast<std::size_t>(signal - 1)];
    log_debug("all ranks handle signal {} here", signal);
    if (!is_handled(signal)) continue;
    shared.delivered.store(signal);
    ::raise(signal);
    shared.delivered.store(0);
  }
}

}  // namespace spillway::split
