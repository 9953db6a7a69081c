#include "spillway/runtime/endings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/sanitized.h"

namespace spillway::runtime {
namespace {

struct Ended {
  int status = 0;
  std::string said;
};

// What a process does that runs `body`, which gets the file to speak to, and then waits for its
// end.
Ended run_in_child(const std::function<void(int)>& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    body(ends[1]);
    while (true) ::pause();
  }
  ::close(ends[1]);
  Ended ended;
  std::array<char, 64> buffer{};
  for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    ended.said.append(buffer.data(), static_cast<std::size_t>(size));
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, &ended.status, 0), child);
  return ended;
}

void say(int file, const std::string& text) {
  EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void require_death_by(int signal, const Ended& ended) {
  ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.status;
  EXPECT_EQ(WTERMSIG(ended.status), signal);
}

void ignore_in_vain(int) {}

/// Of a process that has last words: says whether a child that does `body` dies by `signal`.
void say_how_a_child_ends(int file, int signal, const std::function<void()>& body) {
  watch_endings([file] { say(file, "bye"); });
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  say(file, WIFSIGNALED(status) && WTERMSIG(status) == signal ? "child died" : "child lives");
  ::_exit(0);
}

TEST(EndingSignals, HaveTheLastWordsSaidAndEndTheProcess) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const Ended ended = run_in_child([signal](int file) {
      watch_endings([file] { say(file, "bye"); });
      ::raise(signal);
    });
    require_death_by(signal, ended);
    EXPECT_EQ(ended.said, "bye");
  }
}

TEST(EndingSignals, SentTwiceInARowAreAnsweredOnce) {
  const Ended ended = run_in_child([](int file) {
    watch_endings([file] { say(file, "bye"); }, std::chrono::hours(1));
    ::raise(SIGTERM);
    ::raise(SIGTERM);
  });
  require_death_by(SIGTERM, ended);
  EXPECT_EQ(ended.said, "bye");
}

TEST(EndingSignals, SentAgainLaterEndTheProcessAtOnce) {
  const Ended ended = run_in_child([](int) {
    watch_endings([] { ::pause(); }, Duration(0));
    ::raise(SIGTERM);
    ::raise(SIGINT);
    ::_exit(3);
  });
  require_death_by(SIGINT, ended);
}

TEST(EndingSignals, EndTheProcessWhenTheLastWordsDoNotCome) {
  const Ended ended = run_in_child([](int) {
    watch_endings([] { ::pause(); }, std::chrono::hours(1), std::chrono::milliseconds(1));
    ::raise(SIGTERM);
  });
  require_death_by(SIGTERM, ended);
}

TEST(EndingSignals, ThatTheProgramHandlesStayItsOwn) {
  const Ended ended = run_in_child([](int file) {
    ::signal(SIGTERM, &ignore_in_vain);
    watch_endings([file] { say(file, "bye"); });
    ::raise(SIGTERM);
    ::signal(SIGINT, &ignore_in_vain);  // Decided later.
    ::raise(SIGINT);
    say(file, "alive");
    ::_exit(5);
  });
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(WEXITSTATUS(ended.status), 5);
  EXPECT_EQ(ended.said, "alive");
}

TEST(AnsweredSignals, AreAnsweredAndEndNothing) {
  const Ended ended = run_in_child([](int file) {
    static std::binary_semaphore answered(0);
    watch_endings([file] { say(file, "bye"); });
    answer_signal(SIGUSR2, [file] {
      say(file, "here;");
      answered.release();
    });
    if (!is_answered(SIGUSR2)) ::_exit(3);
    for (int time = 0; time < 3; ++time) {
      ::raise(SIGUSR2);
      answered.acquire();
    }
    ::raise(SIGTERM);
  });
  require_death_by(SIGTERM, ended);
  EXPECT_EQ(ended.said, "here;here;here;bye");
}

TEST(AnsweredSignals, ThatTheProgramHandlesStayItsOwn) {
  for (const bool is_later : {false, true}) {
    const Ended ended = run_in_child([is_later](int file) {
      if (!is_later) ::signal(SIGUSR2, &ignore_in_vain);
      watch_endings([file] { say(file, "bye"); });
      answer_signal(SIGUSR2, [file] { say(file, "here;"); });
      ::signal(SIGUSR2, &ignore_in_vain);
      if (is_answered(SIGUSR2)) ::_exit(3);
      ::raise(SIGUSR2);
      ::raise(SIGTERM);
    });
    require_death_by(SIGTERM, ended);
    EXPECT_EQ(ended.said, "bye");
  }
}

TEST(AnsweredSignals, ArePassedOverByForkedChildren) {
  const Ended ended = run_in_child([](int file) {
    watch_endings([file] { say(file, "bye"); });
    answer_signal(SIGUSR2, [file] { say(file, "here;"); });
    const pid_t child = ::fork();
    if (child == 0) {
      unwatch_endings_in_child();
      ::raise(SIGUSR2);
      ::_exit(5);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    say(file, WIFEXITED(status) && WEXITSTATUS(status) == 5 ? "child lives;" : "child died;");
    ::raise(SIGTERM);
  });
  require_death_by(SIGTERM, ended);
  EXPECT_EQ(ended.said, "child lives;bye");
}

TEST(EndingSignals, ThatAreIgnoredStayIgnored) {
  const Ended ended = run_in_child([](int file) {
    ::signal(SIGHUP, SIG_IGN);
    watch_endings([file] { say(file, "bye"); });
    ::raise(SIGHUP);
    say(file, "alive");
    ::_exit(5);
  });
  EXPECT_EQ(ended.said, "alive");
}

TEST(Crashes, HaveTheLastWordsSaidAndEndTheProcessAsBefore) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers handle crashes themselves";
  const std::vector<std::pair<int, std::function<void()>>> crashes{
      {SIGABRT, [] { std::abort(); }},
      {SIGSEGV,
       [] {
         volatile std::uintptr_t nowhere =
             16;  // Read anew: a compiler would see through a constant.
         *reinterpret_cast<volatile int*>(nowhere) = 1;
       }},
      {SIGILL, [] { __builtin_trap(); }},
      {SIGSEGV, [] { ::raise(SIGSEGV); }},
      {SIGBUS, [] { ::kill(::getpid(), SIGBUS); }}};
  for (const auto& [signal, crash] : crashes) {
    const Ended ended = run_in_child([&](int file) {
      watch_endings([file] { say(file, "bye"); });
      crash();
    });
    require_death_by(signal, ended);
    EXPECT_EQ(ended.said, "bye");
  }
}

TEST(Crashes, InTheLastWordsEndTheProcessAtOnce) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers handle crashes themselves";
  const Ended ended = run_in_child([](int file) {
    watch_endings([file] {
      say(file, "bye");
      std::abort();
    });
    ::raise(SIGTERM);
  });
  require_death_by(SIGABRT, ended);
  EXPECT_EQ(ended.said, "bye");
}

TEST(Crashes, ThatTheProgramHandlesStayItsOwn) {
  const Ended ended = run_in_child([](int file) {
    ::signal(SIGFPE, &ignore_in_vain);
    watch_endings([file] { say(file, "bye"); });
    ::raise(SIGFPE);
    say(file, "alive");
    ::_exit(5);
  });
  ASSERT_TRUE(WIFEXITED(ended.status));
  EXPECT_EQ(ended.said, "alive");
}

TEST(Crashes, EndAForkedChildWithoutTheParentsLastWords) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers handle crashes themselves";
  const Ended ended =
      run_in_child([](int file) { say_how_a_child_ends(file, SIGABRT, [] { std::abort(); }); });
  EXPECT_EQ(ended.said, "child died");
}

TEST(EndingSignals, EndAForkedChildWithoutTheParentsLastWords) {
  const Ended ended = run_in_child([](int file) {
    say_how_a_child_ends(file, SIGTERM, [] {
      unwatch_endings_in_child();
      ::raise(SIGTERM);
    });
  });
  EXPECT_EQ(ended.said, "child died");
}

TEST(EndingSignals, EndAChildThatWasNotToldSo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer holds up signals that a handler raises";
#endif
  const Ended ended =
      run_in_child([](int file) { say_how_a_child_ends(file, SIGINT, [] { ::raise(SIGINT); }); });
  EXPECT_EQ(ended.said, "child died");
}

/// Not on the thread of the test, whose framework would catch it.
void throw_uncaught() {
  std::thread([] { throw std::runtime_error("lost"); }).join();
}

TEST(UncaughtExceptions, HaveTheLastWordsSaidAndEndTheProcess) {
  const Ended ended = run_in_child([](int file) {
    watch_endings([file] { say(file, "bye"); });
    throw_uncaught();
  });
  require_death_by(SIGABRT, ended);
  EXPECT_EQ(ended.said, "bye");
}

TEST(UncaughtExceptions, EndTheProcessWhenTheLastWordsDoNotCome) {
  const Ended ended = run_in_child([](int) {
    watch_endings([] { ::pause(); });
    throw_uncaught();
  });
  require_death_by(SIGABRT, ended);
}

/// A child that has something to do at its exit, and was told `words`.
Ended throw_uncaught_after(const std::string& words) {
  return run_in_child([&](int file) {
    static int said_to = file;
    watch_endings([file] { say(file, "bye"); });
    std::atexit([] { say(said_to, "left"); });
    exit_on_uncaught(words);
    throw_uncaught();
  });
}

TEST(UncaughtExceptions, ThatWereToldExitAndLoseNothing) {
  const Ended ended = throw_uncaught_after("lost");
  ASSERT_TRUE(WIFEXITED(ended.status)) << ended.status;
  EXPECT_EQ(WEXITSTATUS(ended.status), 2);
  EXPECT_EQ(ended.said, "left");
}

TEST(UncaughtExceptions, OfOtherWordsThanWereToldAbort) {
  const Ended ended = throw_uncaught_after("found");
  require_death_by(SIGABRT, ended);
  EXPECT_EQ(ended.said, "bye");
}

TEST(UncaughtExceptions, OfAForkedChildDoNotSayTheParentsLastWords) {
  // Its parent's other thread may hold a lock of the sanitizer's at the fork.
  if (kIsSanitized)
    GTEST_SKIP() << "a sanitizer has no threads in children of processes with several";
  const Ended ended =
      run_in_child([](int file) { say_how_a_child_ends(file, SIGABRT, [] { throw_uncaught(); }); });
  EXPECT_EQ(ended.said, "child died");
}

}  // namespace
}  // namespace spillway::runtime
