#include "signal/fault_handler.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <mutex>

#include "spillway/base/error.h"
#include "spillway/base/waiting_signal.h"
#include "spillway/memory/hand_on_signal.h"

// Everything that the handler itself uses is atomic and fixed in size: it runs on any thread, at
// any instruction that touches memory. The process has one set of handlers, so this state is
// static.
namespace spillway::memory::signal {
namespace {

constexpr std::array<int, 2> kSignals{SIGSEGV, SIGBUS};
const struct sigaction kDefaultAction {};

struct Watch {
  std::atomic<bool> taken{false};
  std::atomic<AccessSink*> sink{nullptr};  ///< Set last: a watch without a sink is not looked at.
  const PageChanges* changes = nullptr;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};
std::array<Watch, 16> watches;

/// What the trap of one thread looked like last time. Threads that share an entry reset each other.
struct LastTrap {
  std::atomic<long> thread{0};
  std::atomic<std::uintptr_t> address{0};
  std::atomic<std::uint32_t> changes{0};
  std::atomic<int> count{0};
  /// While an earlier handler runs: our stack address, and where the kernel put the signal's
  /// context. They stay when that handler leaves by a jump.
  std::atomic<std::uintptr_t> forwarding_frame{0};
  std::atomic<const void*> forwarded_context{nullptr};
};
std::array<LastTrap, 1024> last_traps;
constexpr int kFutileTraps = 50;

/// The handlers that were found in our place, newest last. Old entries are overwritten only after
/// several replacements, when no thread can still be reading them.
struct Displaced {
  std::array<struct sigaction, 8> actions{};
  std::atomic<unsigned> newest{0};
};
std::array<Displaced, 2> displaced;

std::mutex install_mutex;  // Never taken by the handler on behalf of a foreign fault.
std::size_t installed_for = 0;

Displaced& displaced_by(int signal_number) {
  return displaced[signal_number == kSignals[0] ? 0 : 1];
}

LastTrap& last_trap_of_this_thread() {
  const long thread = syscall(SYS_gettid);
  LastTrap& trap = last_traps[static_cast<std::size_t>(thread) % last_traps.size()];
  if (trap.thread.exchange(thread, std::memory_order_relaxed) != thread) {
    trap.count.store(0, std::memory_order_relaxed);
    trap.forwarding_frame.store(0, std::memory_order_relaxed);
  }
  return trap;
}

#if defined(__x86_64__)
Access access_of(const ucontext_t& context) {
  constexpr greg_t kWriteBit = 2;  // Of the page-fault error code.
  return (context.uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0 ? Access::kWrite : Access::kRead;
}
#elif defined(__aarch64__)
Access access_of(const ucontext_t& context) {
  constexpr std::uint64_t kWriteNotRead = std::uint64_t{1} << 6;  // Of the exception syndrome.
  const auto* record = reinterpret_cast<const _aarch64_ctx*>(context.uc_mcontext.__reserved);
  while (record->magic != 0 && record->size != 0) {
    if (record->magic == ESR_MAGIC) {
      const auto syndrome = reinterpret_cast<const esr_context*>(record)->esr;
      return (syndrome & kWriteNotRead) != 0 ? Access::kWrite : Access::kRead;
    }
    record =
        reinterpret_cast<const _aarch64_ctx*>(reinterpret_cast<const char*>(record) + record->size);
  }
  return Access::kWrite;
}
#else
// Unknown is taken for a write: the page counts as dirty without need, and nothing is lost.
Access access_of(const ucontext_t& /*context*/) { return Access::kWrite; }
#endif

/// Whether this thread came back to the same address again and again, although nothing was done to
/// the page meanwhile. A page that arrives and leaves between two attempts does not count.
bool is_endless(const std::byte* address, const Watch& watch) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const auto page = static_cast<std::size_t>(address - watch.begin) / kPageBytes;
  const std::uint32_t changes = (*watch.changes)[page].load(std::memory_order_relaxed);
  LastTrap& trap = last_trap_of_this_thread();
  const bool same_address = trap.address.exchange(number, std::memory_order_relaxed) == number;
  const bool same_page = trap.changes.exchange(changes, std::memory_order_relaxed) == changes;
  if (!same_address || !same_page) trap.count.store(0, std::memory_order_relaxed);
  return trap.count.fetch_add(1, std::memory_order_relaxed) >= kFutileTraps;
}

/// A trap that gave way to a signal says nothing about the page.
void forgive_trap() { last_trap_of_this_thread().count.store(0, std::memory_order_relaxed); }

void report_endless(const std::byte* address, Access access) {
  char text[256];
  const int length = std::snprintf(
      text, sizeof text,
      "[spillway] error: %s at address %p trapped %d times and nothing was done about it; another "
      "library may have changed the protection of the page. The mapper \"userfaultfd\" does "
      "without "
      "signals where the system allows it\n",
      access == Access::kWrite ? "a write" : "a read", static_cast<const void*>(address),
      kFutileTraps);
  const auto size = static_cast<std::size_t>(length) < sizeof text ? length : sizeof text - 1;
  if (write(STDERR_FILENO, text, static_cast<std::size_t>(size)) < 0) return;
}

void hand_on(int signal_number, siginfo_t* info, void* context) {
  const Displaced& before = displaced_by(signal_number);
  const struct sigaction& action =
      before.actions[before.newest.load(std::memory_order_acquire) % before.actions.size()];
  LastTrap& trap = last_trap_of_this_thread();
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const std::uintptr_t outer = trap.forwarding_frame.load(std::memory_order_relaxed);
  // A later handler that saved ours as its predecessor, and that we displaced in turn, calls us
  // back: with the same context, and deeper in the stack. A fault after a handler was left by a
  // jump has a context of its own, or comes at the same depth.
  const bool is_same = trap.forwarded_context.exchange(context) == context;
  if (is_same && frame < outer) return hand_on_signal(kDefaultAction, signal_number, info, context);
  trap.forwarding_frame.store(frame, std::memory_order_relaxed);
  hand_on_signal(action, signal_number, info, context);
  trap.forwarding_frame.store(0, std::memory_order_relaxed);
}

void handle_fault(int signal_number, siginfo_t* info, void* context) {
  const int error = errno;
  auto* address = static_cast<std::byte*>(info->si_addr);
  for (Watch& watch : watches) {
    AccessSink* sink = watch.sink.load(std::memory_order_acquire);
    if (info->si_code <= 0 || sink == nullptr) continue;
    if (address < watch.begin || address >= watch.end) continue;
    const auto& trapped = *static_cast<const ucontext_t*>(context);
    const Access access = access_of(trapped);
    if (is_endless(address, watch)) {
      report_endless(address, access);
      break;
    }
    const auto is_interrupted = [&trapped] { return is_signal_waiting(trapped.uc_sigmask); };
    if (sink->serve_access(page_at(address, watch.begin), access, is_interrupted) ==
        TrapEnd::kInterrupted)
      forgive_trap();
    errno = error;
    return;
  }
  hand_on(signal_number, info, context);
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle_fault;
}

void install(int signal_number) {
  struct sigaction now {};
  sigaction(signal_number, nullptr, &now);
  if (is_ours(now)) return;
  Displaced& before = displaced_by(signal_number);
  const unsigned next = before.newest.load(std::memory_order_relaxed) + 1;
  before.actions[next % before.actions.size()] = now;
  before.newest.store(next, std::memory_order_release);
  struct sigaction ours {};
  ours.sa_sigaction = handle_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  // A handler of the trainer that touched a tensor in the middle of a served fault would wait for
  // the lock that this very thread may hold. A trap that has to wait is left for it instead.
  sigfillset(&ours.sa_mask);
  sigaction(signal_number, &ours, nullptr);
}

// When somebody else is in front, they may call us as their predecessor: then ours stays.
void uninstall(int signal_number) {
  struct sigaction now {};
  sigaction(signal_number, nullptr, &now);
  if (!is_ours(now)) return;
  const Displaced& before = displaced_by(signal_number);
  sigaction(signal_number, &before.actions[before.newest.load() % before.actions.size()], nullptr);
}

}  // namespace

FaultHandler::FaultHandler(std::byte* begin, const PageChanges& changes, AccessSink& sink)
    : watch_(0) {
  const std::lock_guard lock(install_mutex);
  while (watch_ < watches.size() && watches[watch_].taken.load()) ++watch_;
  if (watch_ == watches.size()) {
    throw UnsupportedError("more than {} signal mappers in one process", watches.size());
  }
  Watch& watch = watches[watch_];
  watch.taken.store(true);
  watch.begin = begin;
  watch.end = begin + changes.size() * kPageBytes;
  watch.changes = &changes;
  watch.sink.store(&sink, std::memory_order_release);
  if (installed_for++ > 0) return;
  for (const int signal_number : kSignals) install(signal_number);
}

FaultHandler::~FaultHandler() {
  const std::lock_guard lock(install_mutex);
  watches[watch_].sink.store(nullptr, std::memory_order_release);
  watches[watch_].taken.store(false);
  if (--installed_for > 0) return;
  for (const int signal_number : kSignals) uninstall(signal_number);
}

void FaultHandler::stay_in_front() {
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if (is_ours(now)) return;
  const std::lock_guard lock(install_mutex);
  if (installed_for == 0) return;
  for (const int signal_number : kSignals) install(signal_number);
}

}  // namespace spillway::memory::signal
