#include "spillway/runtime/endings.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "alarm.h"
#include "spillway/base/default_signal.h"
#include "spillway/base/error.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::runtime {
namespace {

constexpr std::array kEndingSignals{SIGHUP, SIGINT, SIGTERM};

// Of a thread that cannot go on.
constexpr std::array kCrashSignals{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

constexpr std::int64_t kSecondNs = 1'000'000'000;

// In place of a signal: the thread that asks waits for the words, and then dies by itself.
constexpr int kAsked = -1;
constexpr std::int64_t kAskedPatienceSeconds = 5;

// How often is looked for a signal that nobody can take.
constexpr std::int64_t kLookEveryNs = 250'000'000;

struct Watch {
  pid_t owner = 0;
  sem_t asked{};
  sem_t answered{};
  std::terminate_handler earlier = nullptr;
  std::atomic<const std::string*> told{nullptr};  ///< Exceptions of these words exit. Leaked.
  std::atomic<int> signal{0};
  std::atomic<std::int64_t> since_ns{0};
  std::int64_t copies_within_ns = 0;
  Duration words_within{};
  std::function<void()> last_words;
  std::atomic<bool> is_questioned{false};
  std::function<void()> answer;
};

// Leaked: a signal may come while static destructors run.
std::atomic<Watch*> watch{nullptr};

std::int64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

void on_ending_signal(int signal) {
  const int saved_errno = errno;
  Watch& here = *watch.load();
  int none = 0;
  // A child of vfork shares our memory, and no thread of its own would answer.
  const bool is_ours = ::getpid() == here.owner;
  if (is_ours && here.signal.compare_exchange_strong(none, signal)) {
    here.since_ns.store(now_ns());
    ::sem_post(&here.asked);
  } else {
    const std::int64_t since = here.since_ns.load();
    const bool is_repeated = since != 0 && now_ns() - since >= here.copies_within_ns;
    if (!is_ours || is_repeated) raise_default(signal);
  }
  errno = saved_errno;
}

void on_question(int /*signal*/) {
  const int saved_errno = errno;
  Watch& here = *watch.load();
  if (::getpid() == here.owner && !here.is_questioned.exchange(true)) ::sem_post(&here.asked);
  errno = saved_errno;
}

/// Has the last words said, where nobody did so far. Safe in a signal handler.
void ask_and_wait(Watch& here) {
  int none = 0;
  if (::getpid() != here.owner || !here.signal.compare_exchange_strong(none, kAsked)) return;
  here.since_ns.store(now_ns());  // A signal after that ends what the callers may hold up.
  ::sem_post(&here.asked);
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kAskedPatienceSeconds;
  while (::sem_clockwait(&here.answered, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) {
  }
}

bool is_of_these_words(const std::string& words) noexcept {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return std::string_view(error.what()).find(words) != std::string_view::npos;
  } catch (...) {  // Not of ours.
  }
  return false;
}

void on_uncaught_exception() {
  Watch& here = *watch.load();
  // Taken, as functions at exit may throw, too.
  const std::string* const told = here.told.exchange(nullptr);
  if (told != nullptr && ::getpid() == here.owner && is_of_these_words(*told)) std::exit(2);
  ask_and_wait(here);
  here.earlier();
}

void on_crash(int signal, siginfo_t* info, void* /*context*/) {
  ask_and_wait(*watch.load());
  // What the processor raised comes again when this returns, at its place: so a core shows it.
  if (info->si_code <= 0) raise_default(signal);
  ::signal(signal, SIG_DFL);
}

bool has_handler(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
         action.sa_handler == handler;
}

/// Whether some thread of the process does not block the signal.
bool is_open_to(int signal) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator task("/proc/self/task", error); !error && task != end;
       task.increment(error)) {
    std::ifstream status(task->path() / "status");
    for (std::string line; std::getline(status, line);) {
      unsigned long blocked = 0;
      const bool is_mask = std::sscanf(line.c_str(), "SigBlk: %lx", &blocked) == 1;
      if (is_mask && (blocked >> (signal - 1) & 1U) == 0) return true;
    }
  }
  return false;
}

/// Takes a signal in place of the thread that should: in a system call that waits for memory which
/// a userfaultfd serves, the kernel lets it take none that has a handler or leaves a core.
void take_stranded_signal() {
  sigset_t waiting;
  ::sigemptyset(&waiting);
  ::sigpending(&waiting);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGQUIT}) {
    if (::sigismember(&waiting, signal) != 1) continue;
    if (has_handler(signal, &on_ending_signal)) {
      if (is_open_to(signal)) on_ending_signal(signal);
    } else if (has_handler(signal, SIG_DFL)) {
      if (is_open_to(signal)) raise_default(signal);
    }
  }
}

/// For last words.
void wait_until_asked(Watch& here) {
  while (true) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kLookEveryNs;
    until.tv_sec += until.tv_nsec / kSecondNs;
    until.tv_nsec %= kSecondNs;
    const int error = ::sem_clockwait(&here.asked, CLOCK_MONOTONIC, &until) == 0 ? 0 : errno;
    if (here.is_questioned.exchange(false)) here.answer();
    if (here.signal.load() != 0) return;
    if (error == ETIMEDOUT) take_stranded_signal();
  }
}

void answer(Watch& here) {
  wait_until_asked(here);
  const int signal = here.signal.load();
  if (signal == kAsked) {
    here.last_words();
    ::sem_post(&here.answered);
    return;
  }
  const Alarm limit(here.words_within, [signal] {
    raise_default(signal);
    return Ring::kOnce;
  });
  here.last_words();
  raise_default(signal);
}

void start_answering_thread(Watch& here) {
  const SignalsBlocked blocked;
  try {
    std::thread thread([&here] { answer(here); });
    ::pthread_setname_np(thread.native_handle(), "spillway-end");
    thread.detach();
  } catch (const std::system_error&) {
    throw UnsupportedError("no thread can be started that answers ending signals: {}",
                           memory::why_no_thread());
  }
}

}  // namespace

void watch_endings(std::function<void()> last_words, Duration copies_within,
                   Duration words_within) {
  auto* here = new Watch;
  here->owner = ::getpid();
  ::sem_init(&here->asked, 0, 0);
  ::sem_init(&here->answered, 0, 0);
  here->last_words = std::move(last_words);
  here->copies_within_ns = copies_within.count();
  here->words_within = words_within;
  watch.store(here);
  start_answering_thread(*here);
  struct sigaction action {};
  action.sa_handler = &on_ending_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  for (const int signal : kEndingSignals)
    if (has_handler(signal, SIG_DFL)) ::sigaction(signal, &action, nullptr);
  action.sa_sigaction = &on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kCrashSignals)
    if (has_handler(signal, SIG_DFL)) ::sigaction(signal, &action, nullptr);
  here->earlier = std::set_terminate(&on_uncaught_exception);
}

void exit_on_uncaught(const std::string& told) { watch.load()->told.store(new std::string(told)); }

void answer_signal(int signal, std::function<void()> answer) {
  watch.load()->answer = std::move(answer);
  if (!has_handler(signal, SIG_DFL)) return;
  struct sigaction action {};
  action.sa_handler = &on_question;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(signal, &action, nullptr);
}

bool is_answered(int signal) noexcept { return has_handler(signal, &on_question); }

void unwatch_endings_in_child() noexcept {
  for (const int signal : kEndingSignals)
    if (has_handler(signal, &on_ending_signal)) ::signal(signal, SIG_DFL);
}

}  // namespace spillway::runtime
